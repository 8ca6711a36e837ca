"""Timing of a request by phases, and statistics over many requests.

Knows phases, clocks and percentiles; all times are seconds of `time.perf_counter`.
"""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

MIN_FOR_QUARTILES = 9
PHASES = ("queue", "tokenize", "trace", "compile", "prefill", "decode", "detokenize")
RESTORING = {"trace": "Restore graph", "compile": "Restore code"}
"""Names of the two phases on DISK, where nothing is traced or compiled."""


@dataclass(frozen=True)
class Timing:
    """The phases of one request, in seconds; they add up to `total_s`.

    Attributes:
        queue_s: waiting for other requests, or for a function that is compiled in the background.
        tokenize_s: text to token ids, and their checks.
        trace_s: tracing the TensorFlow graphs; on DISK, restoring them from the store.
        compile_s: compiling them with XLA; on DISK, loading the machine code from the store.
        prefill_s: running prefill, which includes the first generated token.
        decode_s: running decode for the other tokens.
        detokenize_s: token ids to text.
        total_s: from the request's arrival to its result. Excludes the time between chunks that a
            streaming caller spends, and loading the model.
    """

    queue_s: float = 0.0
    tokenize_s: float = 0.0
    trace_s: float = 0.0
    compile_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    detokenize_s: float = 0.0
    total_s: float = 0.0

    @property
    def run_s(self) -> float:
        """Seconds of running compiled code: a cached call without its text handling."""
        return self.prefill_s + self.decode_s

    @property
    def work_s(self) -> float:
        """Seconds without the queue."""
        return self.total_s - self.queue_s

    def since(self, earlier: Timing) -> Timing:
        """The difference from an earlier reading of the same stopwatch."""
        return Timing(
            **{name: value - getattr(earlier, name) for name, value in self.to_dict().items()}
        )

    def to_dict(self) -> dict[str, float]:
        """The phases as JSON values."""
        return dataclasses.asdict(self)


class Span(NamedTuple):
    """An interval of a request.

    Attributes:
        name: a phase, or another name.
        started: `time.perf_counter()`, one clock for all processes of a machine.
        duration_s: how long.
        tokens: number of new tokens.
    """

    name: str
    started: float
    duration_s: float
    tokens: int = 0


def merged(spans: Iterable[Span], finest_s: float) -> list[Span]:
    """As few spans as look the same where nothing shorter than `finest_s` can be seen."""
    found: list[Span] = []
    for span in spans:
        if found and (span.name == found[-1].name or span.duration_s < finest_s):
            last = found[-1]
            found[-1] = last._replace(
                duration_s=span.started + span.duration_s - last.started,
                tokens=last.tokens + span.tokens,
            )
        else:
            found.append(span)
    return found


class Stopwatch:
    """Splits a request's time into phases; every moment belongs to exactly one.

    The total is measured from start to end without the pauses, not summed, so tests can compare it
    with the sum of the phases.

    Example:
        >>> watch = Stopwatch("queue")
        >>> watch.enter("tokenize")
        >>> watch.read().tokenize_s > 0
        True
    """

    def __init__(self, phase: str, started: float | None = None) -> None:
        now = time.perf_counter()
        self.started = self._entered = now if started is None else min(started, now)
        self._spans: list[Span] = []
        self._span_started = self._entered
        self._tokens = 0
        self._phase = phase
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._paused = 0.0
        self._first_token_s: float | None = None

    def enter(self, phase: str, at: float | None = None) -> None:
        """Ends the current phase and begins another, now or at an earlier reading in this phase."""
        now = time.perf_counter() if at is None else at
        self._seconds[self._phase] += now - self._entered
        self._entered = now
        if phase != self._phase:
            self._end_span()
        self._phase = phase

    def lap(self, tokens: int = 0) -> None:
        """Ends a call of a compiled function, which gave new tokens.

        The prefill ends with the first one, so that the phases before it add up to its time.
        """
        self._tokens += tokens
        self.enter(self._phase)
        is_first = tokens > 0 and self._first_token_s is None
        if is_first:
            self._first_token_s = self._entered - self.started - self._paused
        self._end_span()
        if is_first and self._phase == "prefill":
            self._phase = "decode"

    def pause_for(self, name: str, seconds: float, ended: float | None = None) -> None:
        """Takes seconds out of the current phase and names them.

        They are not part of any phase, nor of the total. `ended` is when they did; None for now.
        """
        self.enter(self._phase, ended)
        self._seconds[self._phase] -= seconds
        self._paused += seconds
        now = self._entered
        self._entered -= seconds
        self._end_span()  # the phase before the pause
        self._entered = self._span_started = now
        self._spans.append(Span(name, now - seconds, seconds))

    def spans(self) -> tuple[Span, ...]:
        """The intervals up to the last reading, whose phases they add up to."""
        self._end_span()
        return tuple(self._spans)

    def _end_span(self) -> None:
        """Records the interval up to the last change or reading."""
        seconds = self._entered - self._span_started
        if seconds > 0:
            self._spans.append(Span(self._phase, self._span_started, seconds, self._tokens))
        self._span_started, self._tokens = self._entered, 0

    def since_first_token_s(self) -> float:
        """Seconds from the first token to the last reading, without the pauses; 0 before there is
        one."""
        if self._first_token_s is None:
            return 0.0
        return self._entered - self.started - self._paused - self._first_token_s

    def read(self) -> Timing:
        """The timing up to now; the current phase continues."""
        self.enter(self._phase)
        # The clock is read once for both: another program could run before a second reading.
        total = self._entered - self.started - self._paused
        return Timing(
            **{f"{name}_s": value for name, value in self._seconds.items()}, total_s=total
        )


class BusyClock:
    """Runs while at least one thread is inside its block.

    Example:
        >>> clock = BusyClock()
        >>> with clock:
        ...     pass
        >>> clock.read() >= 0
        True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._since = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._seconds += time.perf_counter() - self._since

    def read(self) -> float:
        """The seconds so far."""
        with self._lock:
            going = time.perf_counter() - self._since if self._inside else 0.0
            return self._seconds + going


@dataclass(frozen=True)
class Spread:
    """The spread of repeated measurements, in seconds.

    Attributes:
        n: how many there are.
        median_s: their median.
        low_s, high_s: their quartiles; for less than nine values, the shortest and the longest.
    """

    n: int
    median_s: float
    low_s: float
    high_s: float

    def overlaps(self, other: Spread) -> bool:
        """Whether the two ranges overlap.

        Of pairs of nine alternating measurements of the same thing, one in 18 does not overlap,
        like a test at the 5% level.
        """
        return self.low_s <= other.high_s and other.low_s <= self.high_s


def spread(seconds: Sequence[float]) -> Spread | None:
    if not seconds:
        return None
    low_s, high_s = min(seconds), max(seconds)
    if len(seconds) >= MIN_FOR_QUARTILES:
        low_s, _, high_s = statistics.quantiles(seconds, n=4, method="inclusive")
    return Spread(len(seconds), statistics.median(seconds), low_s, high_s)


@dataclass(frozen=True)
class Statistics:
    """Statistics of measured seconds.

    p95 is None below 20 values, p99 below 100. `low_s` and `high_s` are those of `Spread`.
    """

    n: int
    min_s: float
    p50_s: float
    mean_s: float
    p95_s: float | None
    p99_s: float | None
    low_s: float
    high_s: float


def summarize(seconds: Sequence[float]) -> Statistics | None:
    scatter = spread(seconds)
    if scatter is None:
        return None
    ordered = sorted(seconds)

    def percentile(parts: int) -> float | None:
        if len(ordered) < parts:
            return None
        return statistics.quantiles(ordered, n=parts, method="inclusive")[-1]

    return Statistics(
        n=len(ordered),
        min_s=ordered[0],
        p50_s=scatter.median_s,
        mean_s=statistics.fmean(ordered),
        p95_s=percentile(20),
        p99_s=percentile(100),
        low_s=scatter.low_s,
        high_s=scatter.high_s,
    )
