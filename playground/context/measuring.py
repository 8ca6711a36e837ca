"""Runs that measure in fresh processes: their checks, and how other work is kept from running.

Knows the engine's work in the background. Must not know what is measured, components or HTML. Such
a run waits in the queue like any other, and while it runs nothing is compiled in the background.
"""

import time
from collections.abc import Iterator
from typing import ClassVar

from playground.context.page_context import PageContext
from playground.context.runs import Occupation
from xla_backend import (
    CacheKey,
    EngineStatus,
    GenerationOptions,
    ModelUnavailable,
    Prompt,
    ServedBackend,
)
from xla_backend.checkpoints.models import Registry

TICK_S = 0.5
"""Seconds between checks whether the engine is idle."""


class MeasuringRun:
    """One measurement of one visitor, from the click to its end.

    Attributes:
        pressed_at, taken_at, ahead, is_over: see `QueuedRun`.
        stopped: whether the visitor has stopped it.
        expected_s: seconds that it should take; None if unknown.
        ends_at: when it should end, as `time.perf_counter()`; None if unknown.
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

    def stop(self) -> None:
        """Stops it, but keeps finished measurements."""
        self.stopped = True

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

    def steps(self, backend: ServedBackend, waited_s: float = 0.0) -> Iterator[object]:
        """Runs it; yields whenever there is something new to show."""
        raise NotImplementedError

    def on_idle_engine(self, backend: ServedBackend, work: Iterator[None]) -> Iterator[None]:
        """Runs `work` once the engine is idle; its background jobs are postponed."""
        put_off: dict[tuple[str, CacheKey], None] = {}
        try:
            while not self.stopped and not is_idle(backend):
                put_off |= dict.fromkeys(backend.prefetching())
                backend.cancel_prefetch()
                yield
                time.sleep(TICK_S)
            yield from work
        finally:
            for model, key in put_off:
                backend.prefetch(model, [key])


def check_answerable(
    page: PageContext, model: str, prompt: Prompt, options: GenerationOptions
) -> None:
    """Checks a request before anything slow starts.

    Raises:
        InvalidRequest, ModelUnavailable: the request is wrong.
    """
    page.check_request(model, prompt, options)
    try:
        page.backend.predict(model, prompt, options, exact_key=True)
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


def is_idle(backend: ServedBackend) -> bool:
    """Whether it neither runs a request nor compiles."""
    return backend.status.state in ("ready", "stopped") and not backend.prefetching()
