"""Runs that measure: their checks, and how other work is kept from running.

Knows the engine's reservations. Must not know what is measured, components or HTML. Such a run
waits in the queue like any other, and while it runs no other request does, nor is anything compiled
in the background.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, ClassVar

from playground.context.page_context import PageContext
from playground.context.runs import Occupation
from xla_backend import (
    AnyTextStream,
    EngineStatus,
    EngineStopped,
    GenerationOptions,
    ModelUnavailable,
    Prompt,
    SharedBackend,
)
from xla_backend.checkpoints.models import Registry
from xla_backend.interface.results import Progress

_END = object()


@contextlib.asynccontextmanager
async def reserved(
    backend: SharedBackend,
    what: str,
    left_s: Callable[[], float | None] = lambda: None,
    on_enter: Callable[[AnyTextStream], object] = lambda held: None,
) -> AsyncIterator[None]:
    """Waits until no other request runs, and keeps others from running inside the block.

    Args:
        backend: the engine.
        what, left_s: see `SharedBackend.reserve`.
        on_enter: called with the reservation when it has entered the queue.

    Raises:
        EngineStopped: there is no engine, or the reservation was stopped before its turn.
    """
    held = await asyncio.to_thread(backend.reserve, what, left_s)
    on_enter(held)
    try:
        async for event in held.events():
            if isinstance(event, Progress) and event.state == "reserved":
                break
        else:
            raise EngineStopped("It was stopped before its turn.")
        yield
    finally:
        held.close()


async def in_threads(steps: Generator[Any, None, None]) -> AsyncIterator[Any]:
    """The values of a generator that blocks, each computed in a thread."""
    try:
        while (value := await asyncio.to_thread(next, steps, _END)) is not _END:
            yield value
    finally:
        with contextlib.suppress(ValueError):  # its present step ends by itself: see `stop`
            steps.close()


class MeasuringRun:
    """One measurement of one visitor, from the click to its end.

    Attributes:
        pressed_at, taken_at, ahead, is_over: see `QueuedRun`.
        stopped: whether the visitor has stopped it.
        expected_s: seconds that it should take; None if unknown.
        ends_at: when it should end, as `time.perf_counter()`; None if unknown.
        held: its reservation, from its arrival in the queue on.
    """

    activity: ClassVar[str]
    """The page's text for the engine's activity meanwhile."""

    def __init__(self) -> None:
        self.expected_s: float | None = None
        self.ends_at: float | None = None
        self.pressed_at = time.perf_counter()
        self.taken_at: float | None = None
        self.ahead = 0
        self.is_over = False
        self.stopped = False
        self.held: AnyTextStream | None = None

    @property
    def request_progress(self) -> Progress | None:
        return None if self.held is None else self.held.progress

    def stop(self) -> None:
        """Stops it, but keeps finished measurements."""
        self.stopped = True
        if self.taken_at is None and self.held is not None:
            self.held.stop()

    def occupation(self, status: EngineStatus) -> Occupation | None:
        """Occupies the engine from start to end."""
        if self.taken_at is None:
            return None
        return Occupation(self.activity, self.taken_at, self.left_s)

    @property
    def left_s(self) -> float | None:
        """Seconds until it should end, negative if it takes longer; None if unknown."""
        ends_at = self.ends_at
        if ends_at is None and self.expected_s is not None and self.taken_at is not None:
            ends_at = self.taken_at + self.expected_s
        return None if ends_at is None else ends_at - time.perf_counter()

    async def steps(self, backend: SharedBackend) -> AsyncIterator[object]:
        """Waits for its turn, then measures; yields whenever there is something new to show."""
        try:
            async with reserved(backend, self.activity, lambda: self.left_s, self._enter):
                self.taken_at = time.perf_counter()
                async for step in in_threads(self.measure(backend)):
                    yield step
        except EngineStopped:
            if not self.stopped:
                raise

    def _enter(self, held: AnyTextStream) -> None:
        self.held, self.ahead = held, held.progress.ahead
        if self.stopped:
            held.stop()

    def measure(self, backend: SharedBackend) -> Generator[object, None, None]:
        """Measures while no other request runs; yields as `steps` does."""
        raise NotImplementedError


def check_answerable(
    page: PageContext, model: str, prompt: Prompt, options: GenerationOptions
) -> None:
    """Checks a request before anything slow starts.

    Raises:
        InvalidRequest, ModelUnavailable: the request is wrong.
    """
    page.check_request(model, prompt, options)
    try:
        page.backend.predict(model, prompt, options, mode="padded")
    except ModelUnavailable:
        # The tokenizer is not downloaded yet: the run will do it, or raise the error.
        if not any(info.source == "hub" for info in page.models() if info.name == model):
            raise


def registry_of(page: PageContext) -> Registry:
    """A registry of the models that the page offers, for a fresh process."""
    models = page.models()
    return Registry(
        [info.name for info in models if info.source == "hub"],
        allow_folders=any(info.source == "folder" for info in models),
    )
