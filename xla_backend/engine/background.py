"""`Background`: jobs that run while no request is under way.

Knows a queue of jobs and when the engine is idle. Must not know what the jobs do. Before each of
its steps a job waits until the engine has been idle for a moment, because compiling beside a
request makes that request several times slower. Jobs that make a busy engine faster have a
deadline, after which they run beside requests.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

logger = logging.getLogger(__name__)

IDLE_S = 0.3
"""Seconds without a request after which the engine counts as idle."""


class JobStopped(BaseException):
    """Ends a job between two steps; not an error."""


class _Postponed(BaseException):
    """Ends a waiting job in favour of one whose deadline has passed; it is started again later."""


class Background:
    """Runs jobs one after the other in its own thread while the engine is idle."""

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        """The thread starts with the first job.

        Args:
            on_change: called when a job begins, ends or is cancelled.
        """
        self._on_change = on_change or (lambda: None)
        self._condition = threading.Condition()
        # Guarded by the condition:
        self._jobs: dict[Hashable, Callable[[Callable[[], None]], None]] = {}
        self._due: dict[Hashable, float] = {}  # each job's deadline
        self._current: Hashable | None = None
        self._busy = 0
        self._idle_since = time.monotonic()
        self._ending = False
        self._is_cancelled = False
        self._only_due = False
        self._in_step = False
        self._holds = 0
        self._rested: list[Future[None]] = []
        self._thread: threading.Thread | None = None
        # A thread inside XLA while the interpreter goes down would crash the process.
        atexit.register(_stop, weakref.ref(self))

    @contextmanager
    def request(self) -> Iterator[None]:
        """Marks the engine as busy inside the block."""
        self.begin_request()
        try:
            yield
        finally:
            self.end_request()

    def begin_request(self) -> None:
        """Marks the engine as busy, until `end_request`."""
        with self._condition:
            self._busy += 1

    def end_request(self) -> None:
        with self._condition:
            self._busy -= 1
            self._idle_since = time.monotonic()
            self._condition.notify_all()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lets no step begin inside the block, not even of jobs whose deadline has passed."""
        with self._condition:
            self._holds += 1
        try:
            yield
        finally:
            with self._condition:
                self._holds -= 1
                self._condition.notify_all()

    def add(
        self,
        name: Hashable,
        job: Callable[[Callable[[], None]], None],
        patience_s: float = math.inf,
    ) -> None:
        """Queues a job; a waiting job of that name gets the shorter patience of both.

        Args:
            name: identifies the job.
            job: gets a function that it must call before each step, which returns when the engine
                is idle, or ends the job. A job may be started more than once.
            patience_s: seconds after which it runs beside requests.
        """
        with self._condition:
            due, known = time.monotonic() + patience_s, self._due.get(name)
            is_refused = self._only_due and due == math.inf
            if self._ending or is_refused or (known is not None and known <= due):
                return
            self._due[name] = due
            if known is None:
                self._jobs[name] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="background")
                self._thread.start()
            self._condition.notify_all()
        self._on_change()

    def pending(self) -> list[Hashable]:
        """The running job and the waiting ones, in order."""
        with self._condition:
            running = [] if self._current is None else [self._current]
            return [*running, *self._jobs]

    def cancel(self) -> None:
        """Drops the waiting jobs; the running one ends before its next step."""
        with self._condition:
            for name in self._jobs:
                del self._due[name]
            self._jobs.clear()
            self._is_cancelled = self._current is not None
            self._condition.notify_all()
        self._on_change()

    def pause(self) -> None:
        """Drops jobs without a deadline, and accepts none until `resume`."""
        with self._condition:
            dropped = [name for name in self._jobs if self._due[name] == math.inf]
            for name in dropped:
                del self._jobs[name], self._due[name]
            is_new, self._only_due = not self._only_due, True
            if self._current is not None and self._due.get(self._current) == math.inf:
                self._is_cancelled = True
            self._condition.notify_all()
        if dropped or is_new:
            self._on_change()

    def resume(self) -> None:
        """Accepts all jobs again."""
        with self._condition:
            self._only_due = False

    def rested(self) -> Future[None]:
        """A future that is done when no step is under way; while the engine is busy, none begins
        except of jobs whose deadline has passed."""
        future: Future[None] = Future()
        with self._condition:
            self._rested.append(future)
            self._set_in_step(self._in_step)
        return future

    def stop(self, timeout_s: float | None = None) -> None:
        """Ends after the present step, and waits for it."""
        with self._condition:
            self._ending = True
            self._jobs.clear()
            self._condition.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._jobs or self._ending)
                if self._ending:
                    return
                self._current = self._overdue() or next(iter(self._jobs))
                job = self._jobs.pop(self._current)
                self._is_cancelled = False
            self._on_change()
            try:
                job(self._wait_until_idle)
            except JobStopped:
                pass
            except _Postponed:
                with self._condition:
                    if not (self._is_cancelled or self._ending):
                        self._jobs[self._current] = job
            except Exception:
                logger.exception("Work in the background failed (%s)", self._current)
            with self._condition:
                self._set_in_step(False)
                if self._current not in self._jobs:
                    del self._due[self._current]
                self._current = None
            self._on_change()

    def _set_in_step(self, in_step: bool) -> None:
        self._in_step = in_step
        while self._rested and not in_step:
            self._rested.pop().set_result(None)

    def _wait_until_idle(self) -> None:
        with self._condition:
            self._set_in_step(False)
            while True:
                if self._ending or self._is_cancelled:
                    raise JobStopped
                now = time.monotonic()
                rest = IDLE_S - (now - self._idle_since) if self._busy == 0 else math.inf
                is_due = self._due[self._current] <= now
                if not self._holds and (rest <= 0 or is_due):
                    self._set_in_step(True)
                    return
                if not is_due and self._overdue() is not None:
                    raise _Postponed
                next_due = min(self._due[name] for name in (self._current, *self._jobs))
                pause = math.inf if self._holds else min(rest, next_due - now)
                self._condition.wait(None if pause == math.inf else pause)

    def _overdue(self) -> Hashable | None:
        """A waiting job whose deadline has passed."""
        now = time.monotonic()
        return next((name for name in self._jobs if self._due[name] <= now), None)


def _stop(background: weakref.ref[Background]) -> None:
    if (alive := background()) is not None:
        alive.stop()
