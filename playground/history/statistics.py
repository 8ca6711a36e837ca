"""Statistics of this visitor's cached runs.

Knows which runs are cached and how they are grouped. Must not know HTML.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from playground.history.records import Record
from xla_backend import CacheKey, CacheOutcome, Statistics
from xla_backend.interface.timing import summarize

_CACHED = (CacheOutcome.HIT.value, CacheOutcome.REUSED.value)


@dataclass(frozen=True)
class ShapeStatistics:
    """The cached runs of one compiled function."""

    model: str
    key: CacheKey
    first_call_s: float  # what its first call cost, trace, compile and run; that of its latest run
    run_s: Statistics  # prefill and decode of each cached run, summed up
    tokens_per_second: float | None  # the median over them; None where none wrote two tokens


def run_s(run: Record) -> float:
    """Seconds that a run spent in compiled code, as `Timing.run_s`."""
    return run["timing"]["prefill_s"] + run["timing"]["decode_s"]


def cached(runs: Sequence[Record]) -> list[Record]:
    """The runs whose function was in memory, that had the processor for themselves, and that
    nobody stopped."""
    alone = [run for run in runs if run["batch_size"] == 1 and run["finish"] != "stopped"]
    return [run for run in alone if run["cache"] in _CACHED and run_s(run) > 0]


def by_shape(runs: Sequence[Record]) -> list[ShapeStatistics]:
    """Cached runs by the function that served them, in the order of model and shape."""
    groups: dict[tuple[str, CacheKey], list[Record]] = {}
    for run in cached(runs):
        groups.setdefault((run["model"], CacheKey(**run["key"])), []).append(run)
    return [_of_shape(model, key, groups[model, key]) for model, key in sorted(groups)]


def _of_shape(model: str, key: CacheKey, runs: Sequence[Record]) -> ShapeStatistics:
    summary = summarize([run_s(run) for run in runs])
    assert summary is not None
    speeds = [run["tokens_per_second"] for run in runs if run["tokens_per_second"]]
    latest = max(runs, key=lambda run: run["time"])
    return ShapeStatistics(
        model=model,
        key=key,
        first_call_s=sum(latest["first_call"].values()),
        run_s=summary,
        tokens_per_second=statistics.median(speeds) if speeds else None,
    )
