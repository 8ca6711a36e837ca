"""`Loop`: the one thread that owns the engine.

Knows whose step is next: arrivals, rows of pools, and requests that need the engine for themselves.
Must not know models, texts or keys. In each round every pool with rows reads a chunk of a prompt
and generates a chunk of text, and the oldest other request takes one step. What takes seconds
(loading, tracing, compiling) runs in other threads; requests that need it wait for its future.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from xla_backend.engine.background import Background
from xla_backend.engine.request import AwaitEngine, AwaitResult, AwaitRow, Request, Stopped
from xla_backend.interface.errors import FORKED, EngineStopped
from xla_backend.interface.results import EngineStatus
from xla_backend.interface.timing import BusyClock
from xla_backend.rows.scheduler import RowScheduler

READY = EngineStatus("ready")
ALIVE_S = 5.0
"""Seconds after which a working engine repeats its status, so that it is not considered hung."""
CLOSED = "The engine was closed."

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


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
        self._pid = os.getpid()
        self.background = Background(on_change)
        self.compiling = BusyClock()
        self.status = dataclasses.replace(READY, since=time.perf_counter())
        self._own = READY
        self._others: dict[str, EngineStatus] = {}
        self._sent_at = 0.0
        self._on_status = on_status
        self._changed = threading.Condition()
        # Guarded by the condition:
        self._inbox: deque[Callable[[], None]] = deque()
        self._ending = False
        # The thread's own:
        self._queue: deque[Request] = deque()
        self._waiting: list[Request] = []
        self._pools: dict[RowScheduler[Any], None] = {}
        self._thread = threading.Thread(target=self._run, daemon=True, name="engine")
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queues a request and returns; errors go to its stream.

        Raises:
            EngineStopped: this process is a fork.
        """
        request.stream.on_stop = lambda: self.post(lambda: self._stop(request))
        self.background.begin_request()
        if not self.post(lambda: self._step(request)):
            self._fail(request, EngineStopped(CLOSED))

    def call(self, function: Callable[[], Value]) -> Value:
        """Runs a function in the loop's thread between two steps, and returns its result.

        Raises:
            EngineStopped: the loop was closed.
        """
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
        """Queues a function for the loop's thread; returns False if the loop has ended.

        Raises:
            EngineStopped: this process is a fork.
        """
        if os.getpid() != self._pid:
            raise EngineStopped(FORKED)
        with self._changed:
            if not self._ending:
                self._inbox.append(function)
                self._changed.notify()
            return not self._ending

    def set_status(self, status: EngineStatus) -> None:
        """Sets the status of the loop's thread; repeating it keeps its start time.

        What runs beside the loop takes longer, so `status` shows that instead.
        """
        self._own = status
        self._show(next(iter(self._others.values()), status))

    def set_other_status(self, what: str, status: EngineStatus | None) -> None:
        """Sets the status of something that runs beside the loop; None ends it."""
        if status is not None:
            self._others[what] = status
            self._show(status)
            return
        self._others.pop(what, None)
        if self._own.state != "ready":
            self.set_status(self._own)
        self.post(lambda: None)  # the loop says that it is ready if nothing is left to do

    def _show(self, status: EngineStatus) -> None:
        before = self.status
        is_same = (before.state, before.detail) == (status.state, status.detail)
        goes_on = is_same or before.state == status.state == "downloading"
        since = before.since if goes_on else time.perf_counter()
        self.status = dataclasses.replace(status, since=since)
        if self.status != before:
            self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
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
            if self._queue:
                self._pause_pools()
                self._step(self._queue.popleft(), has_engine=True)
            if not (self._queue or self._waiting or self._pools):
                self.set_status(READY)
            elif (self._queue or self._pools) and time.perf_counter() - self._sent_at > ALIVE_S:
                self._send()
        for request in [*self._queue, *self._waiting]:
            self._fail(request, EngineStopped(CLOSED))

    def _take_arrivals(self) -> bool:
        """Waits until there is something to do; returns False when the loop ends."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._inbox or self._queue or self._pools or self._ending
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

    def _step_pool(self, pool: RowScheduler[Any]) -> None:
        try:
            ended = pool.round()
        except Exception as error:
            logger.exception("The rows of a model failed")
            ended = pool.give_up(error)
        if not pool.goes_on:
            del self._pools[pool]
        for request in ended:
            self._waiting.remove(request)
            self._step(request, error=request.error)

    def _step(
        self,
        request: Request,
        value: Any = None,
        error: BaseException | None = None,
        has_engine: bool = False,
    ) -> None:
        request.has_engine = has_engine
        try:
            awaited = request.steps.send(value) if error is None else request.steps.throw(error)
        except (StopIteration, Stopped) as end:
            self.background.end_request()
            if isinstance(end, Stopped):
                request.finish(None)
            return
        except BaseException as failure:
            self._fail(request, failure)
            return
        request.awaited = awaited
        if isinstance(awaited, AwaitEngine):
            # A request that has the engine goes on before others begin.
            (self._queue.appendleft if has_engine else self._queue.append)(request)
            return
        self._waiting.append(request)
        if isinstance(awaited, AwaitRow):
            awaited.rows.join(request)
            self._pools[awaited.rows] = None
        else:
            awaited.future.add_done_callback(lambda _: self.post(lambda: self._resume(request)))
        if request.stream.is_stopped:
            self._stop(request)

    def _fail(self, request: Request, error: BaseException) -> None:
        self.background.end_request()
        request.fail(error)

    def _resume(self, request: Request) -> None:
        """Continues a request whose future is done."""
        if request not in self._waiting:  # it was stopped
            return
        self._waiting.remove(request)
        assert isinstance(request.awaited, AwaitResult), "only a future resumes a request"
        if (error := request.awaited.future.exception()) is not None:
            self._step(request, error=error)
        else:
            self._step(request, request.awaited.future.result())

    def _stop(self, request: Request) -> None:
        """Ends a waiting request; one that has the engine checks by itself."""
        if request in self._waiting:
            self._waiting.remove(request)
            if isinstance(request.awaited, AwaitRow):
                request.awaited.rows.remove(request)
                self._step(request)  # what was generated is its result
            else:
                self._step(request, error=Stopped())
        elif request in self._queue and not request.has_engine:
            self._queue.remove(request)
            self._step(request, error=Stopped())
