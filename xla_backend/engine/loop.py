"""`Loop`: the one thread that owns the engine.

Knows whose step is next: arrivals, rows of pools, and work that has the engine for itself. Must not
know models, texts or keys. In each round every pool with rows reads a chunk of a prompt and
generates a chunk of text, and the work whose turn it is takes one step. What takes seconds
(loading, tracing, compiling) is done beside the loop, and whoever needs it waits for its future.
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
"""After so long without news an engine at work says its status again, lest it be taken for hung."""
CLOSED = "The engine was closed."

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wait:
    """What a work wants before its next step: the result of something that is done elsewhere."""

    future: Future[Any]


@dataclass(frozen=True)
class Join:
    """What a work wants before its next step: that a row of a pool has ended."""

    rows: RowScheduler
    seat: Seat


@dataclass(frozen=True)
class Turn:
    """What a work wants before its next step: its turn. One at a time has one, up to its end."""


Wish = Wait | Join | Turn
"""What a step asks for."""


class Watched(Protocol):
    """Who asked for a work."""

    is_stopped: bool
    on_stop: Callable[[], object]

    def fail(self, error: BaseException) -> None:
        """Is told what ended it."""


class Stopped(Exception):
    """Raised in a work that waits, where its end was asked for."""


class _Work:
    """A request on its way: a generator, whose steps the loop runs one by one."""

    def __init__(self, steps: Generator[Wish, Any, None], asker: Watched) -> None:
        self.steps = steps
        self.asker = asker
        self.wish: Wish = Turn()
        self.has_turn = False


class Loop:
    """Runs works in a thread of its own. Its methods may be called from any thread.

    Attributes:
        background: what is done in moments in which no work is under way.
        compiling: how long functions have been made beside the loop.
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
        """Takes a work; returns at once. Its errors go to who asked.

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
        """Runs a function in the thread, between two steps; waits for its result.

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
        """Has a function called in the thread, soon; returns whether there still is one."""
        with self._changed:
            if not self._ending:
                self._inbox.append(function)
                self._changed.notify()
            return not self._ending

    def tell(self, status: EngineStatus) -> None:
        """Says what the thread does from now on; what is said again goes on.

        What is done beside it takes longer, and so goes before: `status` tells that.
        """
        self._own = status
        self._show(next(iter(self._beside.values()), status))

    def tell_beside(self, what: str, status: EngineStatus | None) -> None:
        """Says what is done beside the thread from now on; None where it is over."""
        if status is not None:
            self._beside[what] = status
            self._show(status)
            return
        self._beside.pop(what, None)
        if self._own.state != "ready":
            self.tell(self._own)
        self.post(lambda: None)  # says so if nothing is left to do

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
        """Ends after the step under way; works that go on fail. The background may take longer."""
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
        """Waits until there is something to do; returns whether the loop goes on."""
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
        """Says that something else runs now."""
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
        """Runs a work up to its next wish."""
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
            # Who has a turn goes on before others begin.
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
        """Goes on with a work whose future is done."""
        if work not in self._parked:  # it was stopped
            return
        self._parked.remove(work)
        assert isinstance(work.wish, Wait), "only a future resumes a work"
        if (error := work.wish.future.exception()) is not None:
            self._step(work, error=error)
        else:
            self._step(work, work.wish.future.result())

    def _stop(self, work: _Work) -> None:
        """Ends a work that waits; one that has its turn looks itself, and rows each round."""
        if work in self._parked and isinstance(work.wish, Wait):
            self._parked.remove(work)
            self._step(work, error=Stopped())
        elif work in self._turns and not work.has_turn:
            self._turns.remove(work)
            self._step(work, error=Stopped())
