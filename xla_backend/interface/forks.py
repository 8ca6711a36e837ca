"""What an engine says in a process that was forked from its own.

Knows process ids. Must not know engines. A fork has none of the threads that answer, so a request
would wait for ever.
"""

from __future__ import annotations

import os

from xla_backend.interface.errors import EngineStopped


class Origin:
    """The process in which something was made."""

    def __init__(self) -> None:
        """This one."""
        self._pid = os.getpid()

    def check(self) -> None:
        """Does nothing in that process.

        Raises:
            EngineStopped: this is a fork of it.
        """
        if os.getpid() != self._pid:
            raise EngineStopped(
                "This process was forked from the one whose engine this is, and has none of its "
                "threads. Make the engine in this process, or start it with multiprocessing's "
                '"spawn".'
            )
