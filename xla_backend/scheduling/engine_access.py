"""`EngineAccess`: whose turn it is on the engine, and what the engine says that it is doing.

Knows the scheduler, idle moments and the status, which ends with the turn that it is about. Must
not know models, keys or compiled functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xla_backend.interface.results import EngineStatus
from xla_backend.scheduling.background import Background
from xla_backend.scheduling.batch import Batch
from xla_backend.scheduling.scheduler import Scheduler, Ticket

READY = EngineStatus("ready")


class EngineAccess:
    """What all requests to one engine share. Thread-safe.

    Attributes:
        scheduler: who has the engine.
        background: work for moments in which no request runs.
        status: what the engine is doing now.
    """

    def __init__(
        self,
        on_status: Callable[[EngineStatus], None] | None,
        on_change: Callable[[], None] | None,
    ) -> None:
        """The engine is free; arguments as for `Backend`."""
        self.scheduler = Scheduler()
        self.background = Background(on_change)
        self.status = READY.replace(since=time.perf_counter())
        self._on_status = on_status
        self._about: Batch | Ticket | None = None

    @contextmanager
    def turn(
        self,
        enter: Callable[[str], None],
        ticket: Ticket | None = None,
        unless: Callable[[], bool] = lambda: False,
    ) -> Iterator[bool]:
        """Waits for the other requests, in phase `queue`; see `Scheduler.acquire`.

        Where the block fails, the engine is ready again.
        """
        enter("queue")
        with self.scheduler.acquire(ticket, unless) as is_held:
            try:
                yield is_held
            except BaseException:
                self.tell(READY)
                raise

    def tell(self, status: EngineStatus, about: Batch | Ticket | None = None) -> None:
        """Says what the engine does from now on.

        Args:
            status: its `since` is set here; a download goes on, everything else begins.
            about: the batch, or the request that is in none yet, with whose end the status ends.
        """
        goes_on = self.status.state == status.state == "downloading"
        since = self.status.since if goes_on else time.perf_counter()
        self._about = about
        self.status = status.replace(since=since)
        if self._on_status is not None:
            self._on_status(self.status)

    def leave(self, about: Batch | Ticket) -> None:
        """Says that the engine is ready, if the status is about this and it has ended."""
        if self._about is about and not (isinstance(about, Batch) and about.goes_on):
            self.tell(READY)
