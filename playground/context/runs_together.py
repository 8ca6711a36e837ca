"""Several requests of one visitor to one engine, together or one after the other.

Knows how they are sent and stopped. Must not know their contents, components or HTML.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from playground.context.runs import Occupation, TextRun, reporting_errors
from xla_backend import EngineStatus, GenerationResult, SharedBackend
from xla_backend.interface.results import Progress


class Member:
    """One of the requests.

    Attributes:
        run: the request.
        said: the prompt as typed.
        problem: why it failed; empty otherwise.
        was_sent: whether it has arrived at the engine.
        is_over: whether it has ended in any way.
    """

    def __init__(self, run: TextRun, typed: str = "") -> None:
        self.run = run
        self.typed = typed
        self.problem = ""
        self.is_over = False
        self.was_sent = False

    @property
    def whole(self) -> GenerationResult | None:
        """The result; None before it is there, and if it was stopped or failed."""
        result = self.run.result
        return None if result is None or result.finish == "stopped" else result

    async def send(self, backend: SharedBackend) -> None:
        """Runs the request; its error is then in `problem`."""
        self.was_sent = True
        with reporting_errors() as ending:
            async for _ in self.run.steps(backend):
                pass
        self.problem = ending.problem
        self.is_over = True


class RunsTogether:
    """Requests that arrive at fixed intervals, or one after the other.

    Attributes:
        members: in the order of their arrival.
        apart_s: seconds between arrivals; None for one after the other.
        is_over: whether all have ended, or were stopped.
        stopped: whether the visitor has stopped them.
        update_s: seconds between updates.
        pressed_at, taken_at, ahead, request_progress: see `QueuedRun`.
    """

    request_progress: ClassVar[Progress | None] = None
    update_s: float = 0.5

    def __init__(self, members: Sequence[Member], apart_s: float | None) -> None:
        self.pressed_at = time.perf_counter()
        self.taken_at: float | None = None
        self.ahead = 0
        self.members = members
        self.apart_s = apart_s
        self.is_over = False
        self.stopped = False
        self._is_ending = False

    def occupation(self, status: EngineStatus) -> Occupation | None:
        """Others' requests run beside these."""

    def stop(self) -> None:
        """Stops all requests. May be called from any thread."""
        self.stopped = self.stopped or not self.is_over
        self._end()

    async def steps(self, backend: SharedBackend) -> AsyncIterator[None]:
        """Sends the requests; yields regularly. Ends when all have, also if the generator is
        closed."""
        self.taken_at = started = time.perf_counter()
        if self.apart_s is None:
            works = [self._one_at_a_time(backend)]
        else:
            works = [
                self._arrive(backend, member, started + number * self.apart_s)
                for number, member in enumerate(self.members)
            ]
        pending = {asyncio.ensure_future(work) for work in works}
        try:
            while pending:
                _, pending = await asyncio.wait(pending, timeout=self.update_s)
                yield
        finally:
            self._end()
        self.is_over = True

    def _end(self) -> None:
        self._is_ending = True
        for member in self.members:
            member.run.stop()

    async def _arrive(self, backend: SharedBackend, member: Member, due: float) -> None:
        while not self._is_ending and (left_s := due - time.perf_counter()) > 0:
            await asyncio.sleep(min(left_s, self.update_s))
        if not self._is_ending:
            await member.send(backend)

    async def _one_at_a_time(self, backend: SharedBackend) -> None:
        for member in self.members:
            await self._arrive(backend, member, 0.0)
