"""`MemoryBound`: when an engine has become too large to go on.

Knows sizes: the limit, the engine's at its start, and how much single requests added. Must not know
processes or requests: the caller measures and acts.

XLA frees no compiled function inside a process, so an engine only grows. Between its size at the
start and what it may hold lie three marks. Above the first, nothing is made ready in idle moments
by itself any more; above the soft limit, a successor is started while the engine goes on; above the
hard limit, another request could need more than there is, and the engine takes none.
"""

from __future__ import annotations

import logging
from collections import deque

logger = logging.getLogger(__name__)

MIN_RESERVE, MAX_RESERVE_SHARE = 250 * 10**6, 0.5
"""Bytes, and share of the room: what the hard limit keeps free for the next request, whatever
single ones have added so far. Measured over 367 requests of 35 engines: the
first to compile adds up to 270 MB, most of it for as long as the compiler works; a later one up to
180, and 50 to 75 in the middle. That it was not needed yet says nothing of the next request."""
AHEAD, MAX_AHEAD_SHARE = 400 * 10**6, 0.5
"""Bytes, and share of the way from the start to the hard limit: how long before it the soft one
comes. A successor needs 5 to 10 s to get ready, in which requests that compile add so much."""
WARM_SHARE = 0.75
"""Of the way from the start to the soft limit."""
REMEMBERED = 20
"""Requests that the reserve is taken from."""
MIN_ROOM = 600 * 10**6
"""Bytes that an engine must be able to grow by: with less it would start anew for every request."""


class MemoryBound:
    """The marks of one engine, and where it stands. All sizes are bytes."""

    def __init__(self, limit: int | None, at_start: int) -> None:
        """Raises a limit that the engine could not work under, and says so in the log.

        Args:
            limit: what may be held; None for no bound.
            at_start: what the engine holds before its first request, the default model included.
        """
        self.limit = limit
        if limit is not None and limit < at_start + MIN_ROOM:
            self.limit = at_start + MIN_ROOM
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
        if self.limit is None:
            return True
        return held < self._at_start + WARM_SHARE * (self._soft_limit() - self._at_start)

    def is_above_soft_limit(self, held: int) -> bool:
        """Whether it is time for a successor to get ready."""
        return self.limit is not None and held >= self._soft_limit()

    def is_above_hard_limit(self, held: int) -> bool:
        """Whether the next request could pass the limit."""
        return self.limit is not None and held > self._hard_limit()

    def _soft_limit(self) -> float:
        hard_limit = self._hard_limit()
        return hard_limit - min(AHEAD, MAX_AHEAD_SHARE * (hard_limit - self._at_start))

    def _hard_limit(self) -> float:
        assert self.limit is not None, "without a limit there are no marks"
        reserve = max((MIN_RESERVE, *self._steps))
        return self.limit - min(reserve, MAX_RESERVE_SHARE * (self.limit - self._at_start))
