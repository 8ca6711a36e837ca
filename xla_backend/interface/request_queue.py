"""`RequestQueue`: the order in which the requests of all callers reach the engine.

Knows arrivals, how many may wait, how many may run at once, runs that exclude all others, and that
nothing is admitted while no engine is there. Must not know what a request is, nor how it is carried
out.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from xla_backend.interface.errors import NoRoom
from xla_backend.interface.results import Progress


class Source(NamedTuple):
    """Who sends a request.

    Attributes:
        protocol: "page", "Gradio", "MCP" or the path of the API's address; empty for the library.
        session: of the page, which only that page knows; empty for programs.
        address: of a program, for the limit of each; empty where that limit does not apply.
    """

    protocol: str = ""
    session: str = ""
    address: str = ""


SOURCE: ContextVar[Source] = ContextVar("source", default=Source())  # noqa: B039 (immutable)
"""Who sends the current request."""
RESERVATION: ContextVar[Entry | None] = ContextVar("reservation", default=None)
"""The exclusive run that sends the current request, which may then run beside it."""
AT_ONCE = 64
"""Bound on the requests at the engine; those without a row wait there."""


@dataclass(frozen=True)
class QueueLimits:
    """How many requests may wait.

    Attributes:
        waiting: of all visitors together.
        waiting_each: of one visitor.
    """

    waiting: float = math.inf
    waiting_each: float = math.inf

    def check(self, waiting: int, own: int) -> None:
        """Refuses one more request.

        Args:
            waiting: how many requests wait already.
            own: how many of them are from the same visitor.

        Raises:
            NoRoom: there is no room for it.
        """
        if own >= self.waiting_each:
            raise NoRoom(
                f"{_count(own)} of yours wait already; at most {self.waiting_each} may. "
                "Wait for an answer, then send the next."
            )
        if waiting >= self.waiting:
            raise NoRoom(
                f"The server is busy: {_count(waiting)} wait already, the limit. "
                "Nothing is wrong with yours; try again in a minute."
            )


class Entry:
    """A request in a queue, from its arrival to its end.

    Attributes:
        source: see `SOURCE`. within: see `RESERVATION`.
        excludes: what it is, for those who wait, if no other request may run beside it.
        left_s: gives the expected seconds until its end; None if unknown.
        arrival: its number in the order of arrival.
    """

    arrival: int

    def __init__(
        self,
        queue: RequestQueue,
        admit: Callable[[], None],
        excludes: str = "",
        left_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`admit` is called in any thread when it may run; again if it was returned since."""
        self.source = SOURCE.get()
        self.within = RESERVATION.get()
        self.excludes = excludes
        self.left_s = left_s
        self.admit = admit
        self._queue = queue

    def leave(self) -> bool:
        """Ends or withdraws it; returns whether it still waited. May be called twice."""
        return self._queue.leave(self)

    def put_back(self) -> None:
        """Lets it wait again, before all that came later: it was admitted, but could not start."""
        self._queue.put_back(self)

    def before(self) -> list[Entry]:
        """The requests before it, in their order."""
        return self._queue.before(self)

    def placed(self, progress: Progress) -> Progress:
        """The state of its request; while that is queued, with what is before it."""
        if progress.state != "queued":
            return progress
        before = [each for each in self.before() if each.within is None]
        left = [each.left_s() for each in before]
        return dataclasses.replace(
            progress,
            ahead=len(before),
            waits_for=next((each.excludes for each in before if each.excludes), ""),
            wait_s=None if None in left else sum(each or 0.0 for each in left),
        )


class RequestQueue:
    """Requests in the order of arrival. Its methods may be called from any thread.

    Attributes:
        version: changes with every arrival, start and end.
    """

    def __init__(self, limits: QueueLimits = QueueLimits(), at_once: int = AT_ONCE) -> None:
        self._limits = limits
        self._at_once = at_once
        self._lock = threading.Lock()
        # Guarded by the lock; in the order of arrival:
        self._running: dict[Entry, None] = {}
        self._waiting: dict[Entry, None] = {}
        self._is_admitting = False
        self._is_held = False
        self._arrivals = itertools.count()
        self.version = 0

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of requests at the engine."""
        return len(self._running)

    def enter(self, entry: Entry) -> None:
        """Adds a request, which is admitted at once if nothing stands in its way.

        Raises:
            NoRoom: too many wait.
        """
        with self._lock:
            is_within = entry.within in self._running
            if not is_within and (self._waiting or not self._has_place(entry)):
                address = entry.source.address
                own = sum(each.source.address == address for each in self._waiting)
                self._limits.check(len(self._waiting), own if address else 0)
            entry.arrival = next(self._arrivals)
            self._waiting[entry] = None
            self.version += 1
        self._admit()

    def leave(self, entry: Entry) -> bool:
        """See `Entry.leave`."""
        with self._lock:
            has_waited = entry in self._waiting
            if not has_waited and entry not in self._running:
                return False
            del (self._waiting if has_waited else self._running)[entry]
            self.version += 1
        self._admit()
        return has_waited

    def put_back(self, entry: Entry) -> None:
        """See `Entry.put_back`."""
        with self._lock:
            if entry in self._running:
                del self._running[entry]
                waiting = sorted([*self._waiting, entry], key=lambda each: each.arrival)
                self._waiting = dict.fromkeys(waiting)
                self.version += 1
        self._admit()

    def hold(self) -> None:
        """Admits nothing until `release`."""
        with self._lock:
            self._is_held = True

    def release(self) -> None:
        """Ends `hold`."""
        with self._lock:
            self._is_held = False
        self._admit()

    def before(self, entry: Entry) -> list[Entry]:
        """See `Entry.before`."""
        return list(itertools.takewhile(lambda each: each is not entry, self.order()))

    def order(self) -> list[Entry]:
        """All requests: those at the engine, then those that wait."""
        with self._lock:
            return [*self._running, *self._waiting]

    def _admit(self) -> None:
        """Admits requests in their order: one thread does it for all, outside the lock."""
        with self._lock:
            if self._is_admitting:
                return
            self._is_admitting = True
        while True:
            with self._lock:
                entry = self._next()
                if entry is None:
                    self._is_admitting = False
                    return
                del self._waiting[entry]
                self._running[entry] = None
                self.version += 1
            entry.admit()

    def _next(self) -> Entry | None:
        """The request that is admitted next: the first one, or one of the run that excludes it."""
        first = next(iter(self._waiting), None)
        if first is not None and self._has_place(first):
            return first
        within = (each for each in self._waiting if each.within in self._running)
        return None if self._is_held else next(within, None)

    def _has_place(self, entry: Entry) -> bool:
        if self._is_held or entry.within in self._running:
            return not self._is_held
        if entry.excludes:
            return not self._running
        is_reserved = any(each.excludes for each in self._running)
        return not is_reserved and len(self._running) < self._at_once


def _count(requests: int) -> str:
    return f"{requests} request{'' if requests == 1 else 's'}"
