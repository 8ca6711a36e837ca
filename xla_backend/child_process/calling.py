"""`started`: a process that calls one function for this one, and ends with its answer, or with
this one.

Knows how the call and its answer are sent, on both sides. Functions are named
("package.module:function"), so that only the process imports what they need.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import threading
from collections.abc import Mapping
from typing import Any

from xla_backend.child_process.channel import Channel
from xla_backend.child_process.child_side import connect, end, reporting_errors
from xla_backend.child_process.parent_side import ChildProcess
from xla_backend.compilation.startup import ENVIRONMENT


def started(
    function: str,
    *arguments: Any,
    sends_chunks: bool = False,
    before: str = "",
    niceness: int = 0,
    variables: Mapping[str, str] = ENVIRONMENT,
) -> ChildProcess:
    """Starts the process; its `answer` is what the function returns.

    Args:
        function: its module and name.
        *arguments: can be pickled.
        sends_chunks: whether its first argument is a function that sends a "chunk" of the answer.
        before: another function, without arguments, that is called first: it prepares the imports.
        niceness: added to this process's, for use beside a serving engine.
        variables: added to this process's environment.

    Raises:
        EngineStopped: it cannot be started.
    """
    call = before, function, arguments, sends_chunks, niceness
    return ChildProcess("xla_backend.child_process.calling", call, variables)


def main() -> None:
    """Calls the parent's function."""
    channel, (before, function, arguments, sends_chunks, niceness) = connect()
    threading.Thread(target=_end_with_parent, args=(channel,), daemon=True).start()
    os.nice(niceness)
    if sends_chunks:
        arguments = (lambda chunk: channel.send(("chunk", None, chunk)), *arguments)
    with reporting_errors(channel):
        if before:
            pkgutil.resolve_name(before)()
        channel.send(("result", None, pkgutil.resolve_name(function)(*arguments)))
    end(channel)


def _end_with_parent(channel: Channel) -> None:
    """Ends this process with its parent: a download could go on for hours."""
    with contextlib.suppress(EOFError, OSError):
        channel.receive()
    end(channel, 1)


if __name__ == "__main__":
    main()
