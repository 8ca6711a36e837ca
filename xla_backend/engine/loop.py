"""`Loop`: the one thread that owns the engine.

Knows whose step is next: arrivals, rows of pools, and requests that need the engine for themselves.
Must not know models, texts or keys. In each round every pool with rows reads a chunk of a prompt
and generates a chunk of text, and the oldest other request takes one step. What takes seconds
(loading, tracing, compiling) runs in other threads; requests that need it wait for its future.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from xla_backend.engine.background import Background
from xla_backend.interface.errors import EngineStopped
from xla_backend.interface.forks import Origin
from xla_backend.interface.results import EngineStatus
from xla_backend.interface.timing import BusyClock
from xla_backend.rows.scheduler import RowScheduler, Seat

READY = EngineStatus("ready")
ALIVE_S = 5.0
"""Seconds after which a working engine repeats its status, so that it is not considered hung."""
CLOSED = "The engine was closed."

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wait:
    """The request waits for a result from another thread."""

    future: Future[Any]


@dataclass(frozen=True)
class Join:
    """The request waits until its row of a pool has ended."""

    rows: RowScheduler
    seat: Seat


@dataclass(frozen=True)
class Turn:
    """The request waits for the engine, and keeps it until it ends or waits for something else."""


Wish = Wait | Join | Turn
"""What a request yields before its next step."""


class Watched(Protocol):
    """The caller's side of a request: its stream."""

    is_stopped: bool
    on_stop: Callable[[], object]

    def fail(self, error: BaseException) -> None:
        """Is called with the error that ended the request."""


class Stopped(Exception):
    """Raised in a waiting request that was stopped."""


class _Work:
    """A request: a generator whose steps the loop runs one by one."""

    def __init__(self, steps: Generator[Wish, Any, None], asker: Watched) -> None:
        self.steps = steps
        self.asker = asker
        self.wish: Wish = Turn()
        self.has_turn = False


class Loop:
    """Runs requests in its own thread. Its methods may be called from any thread.

    Attributes:
        background: jobs that run while there is no request.
        compiling: how long functions have been compiled beside the loop.
        status: what the engine is doing now.
    """

    def __init__(
        self,
        on_status: Callable[[EngineStatus], None] | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """Starts the thread; arguments as for `Backend`."""
        self._origin = Origin()
        self.background = Background(on_change)
        self.compiling = BusyClock()
        self.status = READY.replace(since=time.perf_counter())
        self._own = READY
        self._beside: dict[str, EngineStatus] = {}
        self._told = 0.0
        self._on_status = on_status
        self._changed = threading.Condition()
        # Guarded by the condition:
        self._inbox: deque[Callable[[], None]] = deque()
        self._ending = False
        # The thread's own:
        self._turns: deque[_Work] = deque()
        self._parked: list[_Work] = []
        self._pools: dict[RowScheduler, None] = {}
        self._thread = threading.Thread(target=self._run, daemon=True, name="engine")
        self._thread.start()

    def submit(self, steps: Generator[Wish, Any, None], asker: Watched) -> None:
        """Queues a request and returns; errors go to `asker`.

        Raises:
            EngineStopped: this process is a fork.
        """
        self._origin.check()
        work = _Work(steps, asker)
        asker.on_stop = lambda: self.post(lambda: self._stop(work))
        self.background.begin_request()
        if not self.post(lambda: self._step(work)):
            self._fail(work, EngineStopped(CLOSED))

    def call(self, function: Callable[[], Value]) -> Value:
        """Runs a function in the loop's thread between two steps, and returns its result.

        Raises:
            EngineStopped: the loop was closed.
        """
        self._origin.check()
        future: Future[Value] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        if not self.post(run):
            raise EngineStopped(CLOSED)
        return future.result()

    def post(self, function: Callable[[], None]) -> bool:
        """Queues a function for the loop's thread; returns False if the loop has ended."""
        with self._changed:
            if not self._ending:
                self._inbox.append(function)
                self._changed.notify()
            return not self._ending

    def tell(self, status: EngineStatus) -> None:
        """Sets the status of the loop's thread; repeating it keeps its start time.

        What runs beside the loop takes longer, so `status` shows that instead.
        """
        self._own = status
        self._show(next(iter(self._beside.values()), status))

    def tell_beside(self, what: str, status: EngineStatus | None) -> None:
        """Sets the status of something that runs beside the loop; None ends it."""
        if status is not None:
            self._beside[what] = status
            self._show(status)
            return
        self._beside.pop(what, None)
        if self._own.state != "ready":
            self.tell(self._own)
        self.post(lambda: None)  # the loop says that it is ready if nothing is left to do

    def _show(self, status: EngineStatus) -> None:
        before = self.status
        is_same = (before.state, before.detail) == (status.state, status.detail)
        goes_on = is_same or before.state == status.state == "downloading"
        self.status = status.replace(since=before.since if goes_on else time.perf_counter())
        if self.status != before:
            self._say()

    def _say(self) -> None:
        self._told = time.perf_counter()
        if self._on_status is not None:
            self._on_status(self.status)

    def close(self) -> None:
        """Ends after the present step; unfinished requests fail. The background may take longer."""
        self.background.stop(0)
        with self._changed:
            self._ending = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while self._take_arrivals():
            for pool in list(self._pools):
                self._step_pool(pool)
            if self._turns:
                self._pause_pools()
                self._step(self._turns.popleft(), has_turn=True)
            if not (self._turns or self._parked or self._pools):
                self.tell(READY)
            elif (self._turns or self._pools) and time.perf_counter() - self._told > ALIVE_S:
                self._say()
        for work in [*self._turns, *self._parked]:
            self._fail(work, EngineStopped(CLOSED))

    def _take_arrivals(self) -> bool:
        """Waits until there is something to do; returns False when the loop ends."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._inbox or self._turns or self._pools or self._ending
            )
            arrivals, self._inbox = self._inbox, deque()
            is_ending = self._ending
        if arrivals:
            self._pause_pools()
        for arrival in arrivals:
            arrival()
        return not is_ending

    def _pause_pools(self) -> None:
        """Tells the pools that they wait for another request."""
        for pool in self._pools:
            pool.pause()

    def _step_pool(self, pool: RowScheduler) -> None:
        try:
            ended = pool.round()
        except Exception as error:
            logger.exception("The rows of a model failed")
            ended = pool.give_up(error)
        if not pool.goes_on:
            del self._pools[pool]
        for seat in ended:
            work = next(
                work
                for work in self._parked
                if isinstance(work.wish, Join) and work.wish.seat is seat
            )
            self._parked.remove(work)
            self._step(work, error=seat.error)

    def _step(
        self,
        work: _Work,
        value: Any = None,
        error: BaseException | None = None,
        has_turn: bool = False,
    ) -> None:
        """Runs a request until it waits again."""
        work.has_turn = has_turn
        try:
            wish = work.steps.send(value) if error is None else work.steps.throw(error)
        except StopIteration:
            self.background.end_request()
            return
        except BaseException as failure:
            self._fail(work, failure)
            return
        work.wish = wish
        if isinstance(wish, Turn):
            # A request that has the engine goes on before others begin.
            (self._turns.appendleft if has_turn else self._turns.append)(work)
            return
        self._parked.append(work)
        if isinstance(wish, Join):
            wish.rows.join(wish.seat)
            self._pools[wish.rows] = None
        else:
            wish.future.add_done_callback(lambda _: self.post(lambda: self._resume(work)))
        if work.asker.is_stopped:
            self._stop(work)

    def _fail(self, work: _Work, error: BaseException) -> None:
        self.background.end_request()
        work.asker.fail(error)

    def _resume(self, work: _Work) -> None:
        """Continues a request whose future is done."""
        if work not in self._parked:  # it was stopped
            return
        self._parked.remove(work)
        assert isinstance(work.wish, Wait), "only a future resumes a work"
        if (error := work.wish.future.exception()) is not None:
            self._step(work, error=error)
        else:
            self._step(work, work.wish.future.result())

    def _stop(self, work: _Work) -> None:
        """Ends a waiting request; one that has the engine or a row checks by itself."""
        if work in self._parked and isinstance(work.wish, Wait):
            self._parked.remove(work)
            self._step(work, error=Stopped())
        elif work in self._turns and not work.has_turn:
            self._turns.remove(work)
            self._step(work, error=Stopped())
