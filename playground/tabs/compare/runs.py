"""Comparisons that visitors have started: what each one does, step by step, and its results.

Knows the engine, ways and variants. Must not know components or HTML. A comparison waits its turn
like any run, and while it has the engine nothing else is measured or compiled.
"""

import secrets
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from playground.context.measuring import MeasuringRun, check_answerable, registry_of
from playground.context.page_context import PageContext
from xla_backend import (
    AnyTextStream,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    Prompt,
    SharedBackend,
)
from xla_backend.baselines import overlay
from xla_backend.baselines.comparison import (
    CACHED_CALLS,
    SETTLE_S,
    BaselineComparison,
    BaselineProgress,
    calls_left,
)
from xla_backend.baselines.overlay import BaselineMissing, InstallProgress
from xla_backend.interface.request_queue import RESERVATION
from xla_backend.interface.timing import Spread, spread


class ComparisonRun(MeasuringRun):
    """One comparison of one visitor; for the visitor's other measurements it is another kind."""

    activity = "Comparing"


class BaselinesRun(ComparisonRun):
    """This engine beside Transformers, in fresh processes.

    Attributes:
        comparison: the ways and what they measured.
        progress: progress of the current way; None before the first and after the last.
        installing: progress of installing the overlay that Transformers' ways need.
        problem: why it could not be installed; empty otherwise.
    """

    def __init__(self, comparison: BaselineComparison, may_install: bool = False) -> None:
        """Starts nothing yet.

        Args:
            comparison: the ways.
            may_install: whether the overlay is installed first, where it is missing.
        """
        super().__init__()
        self.comparison = comparison
        self.progress: BaselineProgress | None = None
        self.installing: InstallProgress | None = None
        self.problem = ""
        self._may_install = may_install

    def stop(self) -> None:
        """Ends the current way's process."""
        super().stop()
        self.comparison.stop()

    def measure(self, backend: SharedBackend) -> Generator[None, None, None]:
        """Runs the ways.

        Raises:
            InvalidRequest, ModelUnavailable: the request cannot be served in any way.
        """
        try:
            if self._may_install and not overlay.is_installed():
                yield from self._install()
            for progress in self.comparison:
                self.progress = progress
                yield
        finally:
            self.progress = None

    def _install(self) -> Iterator[None]:
        # Ways that need no overlay are measured even if it cannot be installed.
        try:
            for self.installing in overlay.install():
                yield
                if self.stopped:
                    return
        except BaselineMissing as error:
            self.problem = str(error)
        finally:
            self.installing = None


def baselines_run(
    page: PageContext,
    model: str,
    prompt: str,
    options: GenerationOptions,
    cached_calls: int,
    may_install: bool,
) -> BaselinesRun:
    """The ways of a request, not started.

    Raises:
        InvalidRequest, ModelUnavailable: the request is at fault.
    """
    check_answerable(page, model, prompt, options)
    return BaselinesRun(
        BaselineComparison(
            model, prompt, options, cached_calls=cached_calls, registry=registry_of(page)
        ),
        may_install,
    )


@dataclass(frozen=True)
class Variant:
    """One side of a comparison of this engine with itself."""

    model: str
    options: GenerationOptions
    prompt: Prompt
    is_pooled: bool = False  # whether a row of the pool serves it, and not its exact key


@dataclass
class VariantRow:
    """A variant and its results so far."""

    variant: Variant
    most_calls: int = CACHED_CALLS  # how many later calls there shall be
    # the call that found or compiled the function; None until it ends
    first: GenerationResult | None = None
    later: list[GenerationResult] = field(default_factory=list)  # the calls after it
    problem: str = ""  # why it failed

    @property
    def later_s(self) -> list[float]:
        """Of each later call, the time from text to text."""
        return [result.timing.total_s for result in self.later]

    @property
    def is_done(self) -> bool:
        return self.first is not None and not calls_left(self.later_s, self.most_calls)

    @property
    def spread(self) -> Spread | None:
        """Where the later calls lie; None before there is one."""
        return spread(self.later_s)

    @property
    def ttft_s(self) -> float | None:
        """The median time to the first token of the later calls; None if one has no token."""
        known = spread([result.ttft_s for result in self.later if result.ttft_s is not None])
        return known.median_s if known is not None and known.n == len(self.later) else None


class VariantsRun(ComparisonRun):
    """Several ways to ask this engine: first calls one after the other, then later ones in turn.

    Attributes:
        rows: one for each variant.
        current: which row's first call is under way; None before and after.
        turn: which turn of the later calls is under way, from 1 on; 0 before.
    """

    def __init__(self, variants: Sequence[Variant], most_calls: int = CACHED_CALLS) -> None:
        super().__init__()
        self.most_calls = most_calls
        self.rows = [VariantRow(variant, most_calls) for variant in variants]
        self.current: int | None = None
        self.turn = 0
        self._stream: AnyTextStream | None = None

    def stop(self) -> None:
        """Stops the current text."""
        super().stop()
        if self._stream is not None:
            self._stream.stop()

    def measure(self, backend: SharedBackend) -> Generator[None, None, None]:
        """Calls each variant once, so that its function is available, then for the measurement."""
        for number, row in enumerate(self.rows):
            self.current = number
            yield
            try:
                yield from self._call(backend, row)
            except InvalidRequest as error:
                # Another variant may still fit: a model with a larger context, or fewer tokens.
                row.problem = str(error)
        self.current = None
        for _ in range(self.most_calls):
            due = [row for row in self.rows if row.first is not None and not row.is_done]
            if self.stopped or not due:
                return
            self.turn += 1
            yield
            time.sleep(SETTLE_S)
            for row in due:
                yield from self._call(backend, row)

    def _call(self, backend: SharedBackend, row: VariantRow) -> Iterator[None]:
        if self.stopped:
            return
        # Exact key: otherwise a larger function might serve one variant and not the other. A salt
        # of its own for each call: every prompt is read, and none found in the cache.
        variant = row.variant
        RESERVATION.set(getattr(self.held, "entry", None))
        stream = backend.stream(
            variant.model,
            variant.prompt,
            variant.options,
            exact_key=not variant.is_pooled,
            cache_salt=secrets.token_hex(8) if variant.is_pooled else "",
        )
        self._stream = stream
        if self.stopped:
            stream.stop()
        for _ in stream:
            yield
        result = stream.result
        if result is None or result.finish == "stopped":
            return
        if row.first is None:
            row.first = result
            yield
        else:
            row.later.append(result)
