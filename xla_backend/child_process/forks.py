"""The error of an engine that is used in a fork of its process.

Knows process ids. Must not know engines. A fork has none of the engine's threads, so a request
would wait forever.
"""

from __future__ import annotations

import os

from xla_backend.interface.errors import EngineStopped


class Origin:
    """Remembers the process in which it was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self) -> None:
        """Raises EngineStopped in a fork of that process."""
        if os.getpid() != self._pid:
            raise EngineStopped(
                "This process was forked from the one that made this engine, and has none of its "
                "threads. Make the engine in this process, or start it with multiprocessing's "
                '"spawn".'
            )
