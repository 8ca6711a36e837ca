"""`MemoryBound`: when an engine has become too large to go on.

Knows sizes: the limit, the engine's at its start, and how much single requests added; and the share
of the kernel's memory mappings. Must not know processes or requests: the caller measures and acts.

XLA frees no compiled function inside a process, so an engine only grows. There are three marks
between its size at the start and the limit. Above the first, nothing more is compiled in the
background by itself; above the soft limit, it is replaced when nobody needs it; above the
hard limit, another request could exceed the limit, and the engine takes none.
"""

from __future__ import annotations

import logging
from collections import deque

logger = logging.getLogger(__name__)

MIN_RESERVE, MAX_RESERVE_SHARE = 250 * 10**6, 0.5
"""Bytes, and share of the room, that the hard limit leaves for the next request at least. Measured
over 367 requests of 35 engines: the first one that compiles adds up to 270 MB, mostly while the
compiler works; a later one up to 180, typically 50 to 75."""
AHEAD, MAX_AHEAD_SHARE = 400 * 10**6, 0.5
"""Bytes, and share of the way from the start to the hard limit, by which the soft limit is lower:
so most engines are replaced in a pause and not at the hard limit."""
WARM_SHARE = 0.75
"""Of the way from the start to the soft limit."""
REMEMBERED = 20
"""How many of the latest requests determine the reserve."""
MIN_ROOM = 600 * 10**6
"""Bytes by which an engine must be able to grow: with less it would restart for every request."""
MAPPED_WARM, MAPPED_SOFT, MAPPED_HARD = 0.7, 0.8, 0.9
"""The same three marks for the share of memory mappings (`memory.mapped_share`)."""


class MemoryBound:
    """The marks of one engine. All sizes are bytes."""

    def __init__(self, limit: int | None, at_start: int) -> None:
        """A limit that is too low for the engine is raised, with a warning in the log.

        Args:
            limit: of the memory; None for no bound.
            at_start: size of the engine before its first request, including the default model.
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
        """Takes the memory held after a request, and the most that was ever held.

        XLA needs more while it compiles than it keeps, and will need that again. The very first
        request does not count: some 150 MB of it are XLA's own and not needed again.
        """
        if not self._is_first:
            self._steps.append((peak if peak > self._peak else held) - self._before)
        self._is_first = False
        self._before, self._peak = held, max(peak, self._peak)

    def may_warm(self, held: int, mapped: float = 0.0) -> bool:
        """Whether background work may make it larger.

        Args:
            held: bytes.
            mapped: share of the memory mappings, here and below.
        """
        if mapped >= MAPPED_WARM:
            return False
        if self.limit is None:
            return True
        return held < self._at_start + WARM_SHARE * (self._soft_limit() - self._at_start)

    def is_above_soft_limit(self, held: int, mapped: float = 0.0) -> bool:
        """Whether it should be replaced in the next pause."""
        return mapped >= MAPPED_SOFT or (self.limit is not None and held >= self._soft_limit())

    def is_above_hard_limit(self, held: int, mapped: float = 0.0) -> bool:
        """Whether the next request could exceed the limit."""
        return mapped >= MAPPED_HARD or (self.limit is not None and held > self._hard_limit())

    def _soft_limit(self) -> float:
        hard_limit = self._hard_limit()
        return hard_limit - min(AHEAD, MAX_AHEAD_SHARE * (hard_limit - self._at_start))

    def _hard_limit(self) -> float:
        assert self.limit is not None, "without a limit there are no marks"
        reserve = max((MIN_RESERVE, *self._steps))
        return self.limit - min(reserve, MAX_RESERVE_SHARE * (self.limit - self._at_start))
