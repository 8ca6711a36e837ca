"""Where the time of a request went, and statistics over many requests.

Knows phases, a stopwatch and percentiles; all times are seconds of `time.perf_counter`. Must not
know what the phases do, nor TensorFlow.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

PHASES = ("queue", "tokenize", "trace", "compile", "first_token", "decode", "detokenize")


@dataclass(frozen=True)
class Timing:
    """The phases of one request, in seconds; they add up to `total_s`.

    Attributes:
        queue_s: waiting for other requests on the same engine.
        tokenize_s: text to token ids, and the checks on them.
        trace_s: making the TensorFlow graphs; on a disk hit, restoring them from the store.
        compile_s: XLA compiling them; on a disk hit, loading the machine code from the store.
        first_token_s: running prefill, up to and including the first generated token.
        decode_s: running decode for the remaining tokens.
        detokenize_s: token ids to text.
        total_s: from the request's arrival to its result. Time that a streaming caller spends
            between chunks is not counted, and loading the model, which happens once, neither.
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

    def since(self, earlier: Timing) -> Timing:
        """What was added after an earlier reading of the same stopwatch."""
        return Timing(
            **{name: value - getattr(earlier, name) for name, value in self.to_dict().items()}
        )

    def to_dict(self) -> dict[str, float]:
        """The phases as JSON values."""
        return dataclasses.asdict(self)


class Stopwatch:
    """Splits a request's time into phases, each moment in one of them.

    The total is not their sum but what the clock says from end to end without the pauses: a moment
    that were counted twice, or not at all, would set the two apart.

    Example:
        >>> watch = Stopwatch("queue")
        >>> watch.enter("tokenize")
        >>> watch.read().tokenize_s > 0
        True
    """

    def __init__(self, phase: str, started: float | None = None) -> None:
        """Starts in a phase, now or at an earlier `time.perf_counter()` reading."""
        now = time.perf_counter()
        self._started = self._entered = now if started is None else min(started, now)
        self._phase: str | None = phase
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._paused = 0.0

    def enter(self, phase: str | None) -> None:
        """Ends the current phase and begins another; None is a pause, which counts nowhere."""
        now = time.perf_counter()
        if self._phase is None:
            self._paused += now - self._entered
        else:
            self._seconds[self._phase] += now - self._entered
        self._phase, self._entered = phase, now

    def read(self) -> Timing:
        """The timing up to now; the current phase goes on."""
        self.enter(self._phase)
        # The same moment for both: a second look at the clock could come after another program.
        total = self._entered - self._started - self._paused
        return Timing(
            **{f"{name}_s": value for name, value in self._seconds.items()}, total_s=total
        )


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
