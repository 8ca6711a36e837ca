"""Several requests of one visitor to one engine, together or one after the other.

Knows how they are sent and stopped. Must not know their contents, components or HTML.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import ClassVar

from playground.context.runs import Occupation, TextRun, reporting_errors
from xla_backend import EngineStatus, GenerationResult, ServedBackend
from xla_backend.interface.timing import Span


class Member:
    """One of the requests.

    Attributes:
        run: the request.
        said: the prompt as typed.
        problem: why it failed; empty otherwise.
        is_over: whether it has ended in any way.
    """

    def __init__(self, run: TextRun, typed: str = "") -> None:
        self.run = run
        self.typed = typed
        self.problem = ""
        self.is_over = False
        self._steps: list[float] = []  # times of sending, start and first text

    @property
    def was_sent(self) -> bool:
        """Whether it has arrived at the engine."""
        return bool(self._steps)

    @property
    def whole(self) -> GenerationResult | None:
        """The result; None before it is there, and if it was stopped or failed."""
        result = self.run.result
        return None if result is None or result.finish == "stopped" else result

    def send(self, backend: ServedBackend) -> None:
        """Runs the request; its error is then in `problem`."""
        self.run.taken_at = time.perf_counter()
        self._steps = [self.run.taken_at]
        with reporting_errors() as ending:
            for text in self.run.steps(backend, 0.0):
                if len(self._steps) < (3 if text else 2):
                    self._steps.append(time.perf_counter())
        self.problem = ending.problem
        self.is_over = True

    def spans(self) -> tuple[Span, ...]:
        """The engine's timings; before the result, those known so far."""
        if (result := self.run.result) is not None:
            return result.spans
        if self.problem:
            return ()
        steps = [*self._steps, time.perf_counter()]
        return tuple(
            Span(name, start, end - start)
            for name, start, end in zip(
                ("queue", "prefill", "decode"), steps, steps[1:], strict=False
            )
        )


class RunsTogether:
    """Requests that arrive at fixed intervals, or one after the other.

    Attributes:
        members: in the order of their arrival.
        apart_s: seconds between arrivals; None for one after the other.
        is_over: whether all have ended, or were stopped.
        stopped: whether the visitor has stopped them.
        update_s: seconds between updates.
        pressed_at, taken_at, ahead, left_s: see `QueuedRun`.
    """

    left_s: ClassVar[float | None] = None
    update_s: ClassVar[float] = 0.5

    def __init__(self, members: Sequence[Member], apart_s: float | None) -> None:
        self.pressed_at = time.perf_counter()
        self.taken_at: float | None = None
        self.ahead = 0
        self.members = members
        self.apart_s = apart_s
        self.is_over = False
        self.stopped = False
        self._stopping = threading.Event()

    def occupation(self, status: EngineStatus) -> Occupation | None:
        """Others' requests run beside these."""

    def stop(self) -> None:
        """Stops all requests. May be called from any thread."""
        self.stopped = self.stopped or not self.is_over
        self._end()

    def steps(self, backend: ServedBackend, waited_s: float) -> Iterator[None]:
        """Sends the requests; yields regularly. Ends when all have, also if the generator is
        closed."""
        del waited_s
        with ThreadPoolExecutor(len(self.members)) as threads:
            if self.apart_s is None:
                works = [threads.submit(self._one_at_a_time, backend)]
            else:
                started = time.perf_counter()
                works = [
                    threads.submit(self._arrive, backend, member, started + i * self.apart_s)
                    for i, member in enumerate(self.members)
                ]
            try:
                while wait(works, self.update_s).not_done:
                    yield
            finally:
                self._end()
        self.is_over = True

    def _end(self) -> None:
        self._stopping.set()
        for member in self.members:
            member.run.stop()

    def _arrive(self, backend: ServedBackend, member: Member, due: float) -> None:
        if not self._stopping.wait(max(0.0, due - time.perf_counter())):
            member.send(backend)

    def _one_at_a_time(self, backend: ServedBackend) -> None:
        for member in self.members:
            self._arrive(backend, member, 0.0)
