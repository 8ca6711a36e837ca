"""`BusyClock`: for how many seconds something has been going on.

Knows threads that begin and end. Must not know what they do.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType


class BusyClock:
    """Runs while at least one thread is inside its block.

    Example:
        >>> clock = BusyClock()
        >>> with clock:
        ...     pass
        >>> clock.read() >= 0
        True
    """

    def __init__(self) -> None:
        """Stands still."""
        self._lock = threading.Lock()
        self._inside = 0
        self._seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._since = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._seconds += time.perf_counter() - self._since

    def read(self) -> float:
        """The seconds so far."""
        with self._lock:
            going = time.perf_counter() - self._since if self._inside else 0.0
            return self._seconds + going
