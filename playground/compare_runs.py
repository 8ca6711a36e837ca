"""Comparisons that visitors have going: what each one does, step by step, and what it found.

Knows the engine, lanes and variants. Must not know components or HTML. A comparison waits its turn
like any run, and while it has the engine nothing else is measured or made ready.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xla_backend import (
    CacheKey,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    ModelUnavailable,
)
from xla_backend.lanes import TICK_S, Lane, LaneComparison, LaneProgress
from xla_backend.models import Registry

if TYPE_CHECKING:
    from playground.page import PageContext
    from xla_backend import Backend, BackendProcess, TextStream

MOST_VARIANTS = 4
REPEATS = 3
"""How often a variant is repeated after the call that made its function available."""


class ComparisonRun:
    """One comparison of one visitor, from the click to its end.

    Attributes:
        taken: whether the event that carries it out has begun.
        waited_for: whether others were before it when it was entered.
        stopped: whether the visitor has asked for the end.
    """

    def __init__(self) -> None:
        self.taken = False
        self.waited_for = False
        self.stopped = False

    def stop(self) -> None:
        """Asks for the end; what was measured is kept."""
        self.stopped = True

    def steps(self, backend: Backend | BackendProcess) -> Iterator[object]:
        """Runs it; yields whenever there is something new to show."""
        raise NotImplementedError


class LanesRun(ComparisonRun):
    """This engine beside Transformers, in fresh processes.

    Attributes:
        comparison: the lanes and what they measured.
        progress: where the lane under way is; None before the first and after the last.
    """

    def __init__(self, comparison: LaneComparison) -> None:
        super().__init__()
        self.comparison = comparison
        self.progress: LaneProgress | None = None

    def stop(self) -> None:
        """Ends the process of the lane under way."""
        super().stop()
        self.comparison.stop()

    def steps(self, backend: Backend | BackendProcess) -> Iterator[None]:
        """Waits until the engine is idle, then runs the lanes.

        Raises:
            InvalidRequest, ModelUnavailable: the request cannot be served in any lane.
        """
        put_off: dict[tuple[str, CacheKey], None] = {}
        try:
            while not self.stopped and not _is_idle(backend):
                # What waits in the background would be made between the lanes, and slow them.
                put_off |= dict.fromkeys(backend.warming())
                backend.cancel_warming()
                yield
                time.sleep(TICK_S)
            for progress in self.comparison:
                self.progress = progress
                yield
        finally:
            self.progress = None
            for model, key in put_off:
                backend.warm_soon(model, [key])


def lanes_run(
    page: PageContext, model: str, prompt: str, options: GenerationOptions, cached_calls: int
) -> LanesRun:
    """The lanes of a request, not started.

    Raises:
        InvalidRequest, ModelUnavailable: the request is at fault.
    """
    check_request(page, model, prompt, options)
    models = page.models()
    registry = Registry(
        [info.name for info in models if info.source == "hub"],
        allow_folders=any(info.source == "folder" for info in models),
    )
    return LanesRun(
        LaneComparison(model, prompt, options, cached_calls=cached_calls, registry=registry)
    )


def check_request(page: PageContext, model: str, prompt: str, options: GenerationOptions) -> None:
    """Finds mistakes before anything slow begins.

    Raises:
        InvalidRequest, ModelUnavailable: the request is at fault.
    """
    page.check_request(model, prompt, options)
    try:
        page.backend.predict(model, prompt, options, exact_key=True)
    except ModelUnavailable:
        # The model's vocabulary is not here yet: the run itself will fetch it, or say why not.
        if not any(info.source == "hub" for info in page.models() if info.name == model):
            raise


def _is_idle(backend: Backend | BackendProcess) -> bool:
    return backend.status.state in ("ready", "stopped") and not backend.warming()


class Durations:
    """How long lanes took on this machine, to say beforehand how long the next ones will take."""

    STATED_S = {  # noqa: RUF012 (a constant)
        Lane.EAGER: 11.0,
        Lane.GUIDE: 14.0,
        Lane.ENGINE: 7.0,
        Lane.ENGINE_FROM_DISK: 4.0,
    }
    """Before the first comparison: what gpt2-stories took for 32 new tokens on two idle cores."""

    def __init__(self) -> None:
        self._once_s: dict[tuple[str, Lane], float] = {}
        self._call_s: dict[tuple[str, Lane], float] = {}

    def keep(self, comparison: LaneComparison) -> None:
        """Remembers what the lanes of a comparison took."""
        for lane, result in comparison.results.items():
            name = (comparison.model, lane)
            self._call_s[name] = result.median_s
            self._once_s[name] = result.wall_s - sum(result.cached_s)

    def expected(self, model: str, cached_calls: int) -> tuple[float, bool]:
        """Seconds that all lanes will take, and whether they were measured with this model."""
        total, is_measured = 0.0, True
        for lane in Lane:
            name = (model, lane)
            if name in self._once_s:
                total += self._once_s[name] + cached_calls * self._call_s[name]
            else:
                total += self.STATED_S[lane]
                is_measured = False
        return total, is_measured


@dataclass(frozen=True)
class Variant:
    """One side of a comparison of this engine with itself."""

    label: str
    model: str
    options: GenerationOptions


@dataclass
class VariantRow:
    """What is known of a variant so far.

    Attributes:
        text: what was written, as far as it is.
        first: the call that found the function, or made it; None before its end.
        later: the calls after it.
        problem: why it cannot be answered.
    """

    variant: Variant
    text: str = ""
    first: GenerationResult | None = None
    later: list[GenerationResult] = field(default_factory=list)
    problem: str = ""

    @property
    def is_done(self) -> bool:
        """Whether all its calls are made."""
        return len(self.later) == REPEATS

    @property
    def total_s(self) -> float:
        """The median of the later calls, from text to text."""
        return statistics.median(result.timing.total_s for result in self.later)

    @property
    def first_token_s(self) -> float:
        """The median time to the first token of the later calls."""
        return statistics.median(result.timing.first_token_s for result in self.later)

    @property
    def tokens_per_second(self) -> float:
        """The median speed of the later calls."""
        return statistics.median(result.tokens_per_second or 0.0 for result in self.later)


class VariantsRun(ComparisonRun):
    """Several ways to ask this engine, one after the other.

    Attributes:
        rows: one a variant.
        current: which row is being measured; None before and after.
    """

    def __init__(self, prompt: str, variants: Sequence[Variant]) -> None:
        super().__init__()
        self.prompt = prompt
        self.rows = [VariantRow(variant) for variant in variants]
        self.current: int | None = None
        self._stream: TextStream | None = None

    def stop(self) -> None:
        """Ends the text under way."""
        super().stop()
        if self._stream is not None:
            self._stream.stop()

    def steps(self, backend: Backend | BackendProcess) -> Iterator[None]:
        """Asks for each variant until its function is there, then as often as it is measured."""
        for number, row in enumerate(self.rows):
            self.current = number
            try:
                yield from self._call(backend, row)
                for _ in range(REPEATS):
                    yield from self._call(backend, row)
            except InvalidRequest as error:
                # Another variant may fit: a longer text, or a model with a larger context.
                row.problem = str(error)
            if self.stopped:
                break
        self.current = None

    def _call(self, backend: Backend | BackendProcess, row: VariantRow) -> Iterator[None]:
        if self.stopped:
            return
        # By the exact key: a larger function would serve one variant and not the other.
        variant = row.variant
        stream = backend.stream(variant.model, self.prompt, variant.options, exact_key=True)
        self._stream = stream
        if self.stopped:
            stream.stop()
        text = ""
        last = 0.0
        for delta in stream:
            text += delta
            if row.first is None and time.perf_counter() - last > 0.1:
                last = time.perf_counter()
                row.text = text
                yield
        result = stream.result
        if result is None or result.finish == "stopped":
            row.text = row.text or text
            return
        row.text = result.text
        if row.first is None:
            row.first = result
        else:
            row.later.append(result)
        yield
