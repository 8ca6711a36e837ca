"""Where the time of a request went, and statistics over many requests.

Knows phases, a stopwatch and percentiles; all times are seconds of `time.perf_counter`. Must not know
what the phases do, nor TensorFlow.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

PHASES = ("queue", "tokenize", "trace", "compile", "first_token", "decode", "detokenize")


@dataclass(frozen=True)
class Timing:
    """The phases of one request, in seconds; they add up to `total_s` within 2%.

    Attributes:
        queue_s: waiting for other requests on the same engine.
        tokenize_s: text to token ids, and the checks on them.
        trace_s: making the TensorFlow graphs; on a disk hit, restoring them from the store.
        compile_s: XLA compiling them; on a disk hit, loading the machine code from the store.
        first_token_s: running prefill, up to and including the first generated token.
        decode_s: running decode for the remaining tokens.
        detokenize_s: token ids to text.
        total_s: from the request's arrival to its result, measured apart from the phases. Time
            that a streaming caller spends between chunks is not counted, and loading the model,
            which happens once, neither.
    """

    queue_s: float = 0.0
    tokenize_s: float = 0.0
    trace_s: float = 0.0
    compile_s: float = 0.0
    first_token_s: float = 0.0
    decode_s: float = 0.0
    detokenize_s: float = 0.0
    total_s: float = 0.0

    @property
    def run_s(self) -> float:
        """Seconds of running compiled code: what a cached call costs besides text handling."""
        return self.first_token_s + self.decode_s

    def to_dict(self) -> dict[str, float]:
        """The phases as JSON values."""
        return dataclasses.asdict(self)


class Stopwatch:
    """Adds up phases, and the total on its own clock, which can be stopped while a caller thinks."""

    def __init__(self, started: float | None = None) -> None:
        """Starts now, or at an earlier `time.perf_counter()` reading."""
        self._started = time.perf_counter() if started is None else started
        self._paused = 0.0
        self._phases = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time inside the block towards phase `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._phases[name] += time.perf_counter() - start

    def add(self, name: str, seconds: float) -> None:
        """Counts seconds that something else measured towards phase `name`."""
        self._phases[name] += seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The time inside the block counts towards no phase and not towards the total."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - start

    def read(self) -> Timing:
        """The timing up to now."""
        total = time.perf_counter() - self._started - self._paused
        return Timing(**{f"{name}_s": value for name, value in self._phases.items()}, total_s=total)


@dataclass(frozen=True)
class Statistics:
    """A summary of measured seconds. p95 is None below 20 values, where it would be a guess."""

    n: int
    min_s: float
    p50_s: float
    mean_s: float
    p95_s: float | None


def summarize(seconds: Sequence[float]) -> Statistics | None:
    """Statistics of the values, or None when there are none."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    p95 = (
        statistics.quantiles(ordered, n=20, method="inclusive")[-1] if len(ordered) >= 20 else None
    )
    return Statistics(
        n=len(ordered),
        min_s=ordered[0],
        p50_s=statistics.median(ordered),
        mean_s=statistics.fmean(ordered),
        p95_s=p95,
    )
