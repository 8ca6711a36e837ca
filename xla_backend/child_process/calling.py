"""`started`: a process that calls one function for this one, and ends with its answer.

Knows how the call and its answer are sent, on both sides. Must not know what is called. Functions
are named ("package.module:function"), so that only the process imports what they need.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Mapping
from typing import Any

from xla_backend.child_process.child_side import connect, end, reporting_errors
from xla_backend.child_process.parent_side import ChildProcess
from xla_backend.compilation.startup import ENVIRONMENT


def started(
    function: str,
    *arguments: Any,
    before: str = "",
    niceness: int = 0,
    variables: Mapping[str, str] = ENVIRONMENT,
) -> ChildProcess:
    """Starts the process; its `answer` is what the function returns.

    Args:
        function: its module and name.
        *arguments: can be pickled.
        before: another function, without arguments, that is called first: it prepares the imports.
        niceness: added to this process's, for use beside a serving engine.
        variables: added to this process's environment.

    Raises:
        EngineStopped: it cannot be started.
    """
    call = before, function, arguments, niceness
    return ChildProcess("xla_backend.child_process.calling", call, variables)


def main() -> None:
    """Calls the parent's function."""
    channel, (before, function, arguments, niceness) = connect()
    os.nice(niceness)
    with reporting_errors(channel):
        if before:
            pkgutil.resolve_name(before)()
        channel.send(("result", None, pkgutil.resolve_name(function)(*arguments)))
    end(channel)


if __name__ == "__main__":
    main()
