"""`MemoryBound`: when an engine has become too large to go on.

Knows sizes: the limit, the engine's at its start, and how much single requests added. Must not know
processes or requests: whoever asks measures, and acts.

XLA frees no compiled function inside a process, so an engine only grows. Between its size at the
start and the limit lie three marks. Above the first, nothing is made ready in idle moments by
itself any more; above the second, a successor is started while the engine goes on; above the third,
another request like the largest so far could pass the limit, and the engine takes none.
"""

from __future__ import annotations

import logging
from collections import deque

logger = logging.getLogger(__name__)

WARM_SHARE = 0.6
CROWDED_SHARE = 0.75
"""Of the room between the size at the start and the limit."""
LEAST_RESERVE, MOST_RESERVE_SHARE = 100 * 10**6, 0.5
"""Bytes, and share of the room: what is kept free for the next request, whatever single ones have
added so far."""
REMEMBERED = 20
"""Requests that the reserve is taken from."""
LEAST_ROOM = 400 * 10**6
"""Bytes that an engine must be able to grow by: below it would start anew for every request."""


class MemoryBound:
    """The marks of one engine, and where it stands. All sizes are bytes."""

    def __init__(self, limit: int | None, at_start: int) -> None:
        """Raises a limit that the engine could not work under, and says so in the log.

        Args:
            limit: what may be held; None for no bound.
            at_start: what the engine holds before its first request, the default model included.
        """
        self.limit = limit
        if limit is not None and limit < at_start + LEAST_ROOM:
            self.limit = at_start + LEAST_ROOM
            logger.warning(
                "The memory limit of %d MB leaves no room: the engine holds %d MB before its first "
                "request. It may grow to %d MB; raise the limit with --memory-limit.",
                limit // 10**6,
                at_start // 10**6,
                self.limit // 10**6,
            )
        self._at_start = at_start
        self._before = at_start
        self._peak = at_start
        self._is_first = True
        self._steps: deque[int] = deque(maxlen=REMEMBERED)

    def note_request(self, held: int, peak: int) -> None:
        """Takes in what is held after a request, and the most that was ever held.

        XLA needs more while it compiles than it keeps; that, too, is needed again. What the very
        first request adds is not: some 150 MB of it are what XLA holds for itself.
        """
        if not self._is_first:
            self._steps.append((peak if peak > self._peak else held) - self._before)
        self._is_first = False
        self._before, self._peak = held, max(peak, self._peak)

    def may_warm(self, held: int) -> bool:
        """Whether work that nobody asked for may make it larger."""
        return self._is_below(held, WARM_SHARE)

    def is_crowded(self, held: int) -> bool:
        """Whether it is time for a successor to get ready."""
        return not self._is_below(held, CROWDED_SHARE)

    def is_full(self, held: int) -> bool:
        """Whether the next request could pass the limit."""
        return self.limit is not None and held + self._reserve() > self.limit

    def _is_below(self, held: int, share: float) -> bool:
        return self.limit is None or held < self._at_start + share * (self.limit - self._at_start)

    def _reserve(self) -> float:
        room = self.limit - self._at_start
        largest = max(self._steps, default=0)
        return min(max(largest, LEAST_RESERVE), MOST_RESERVE_SHARE * room)
