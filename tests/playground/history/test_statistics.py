"""Which runs are counted, and how they are grouped."""

import pytest

from playground.context.runs import Shown
from playground.history import records
from playground.history.statistics import by_shape, cached
from tests.playground.samples import miss, result
from xla_backend import CacheKey, CacheOutcome, Timing


def record(run_s: float, **changes: object) -> records.Record:
    timing = Timing(prefill_s=run_s / 4, decode_s=run_s * 3 / 4, total_s=run_s)
    return records.add([], Shown("Once", result(timing=timing, **changes)))[0]


def test_only_runs_of_functions_that_were_there_are_cached() -> None:
    runs = [
        record(0.1),
        record(0.2, cache=CacheOutcome.REUSED),
        record(0.3, cache=CacheOutcome.DISK),
        record(0.4, batch_size=2),
        record(0.01, finish="stopped"),
        records.add([], Shown("Once", miss()))[0],
    ]
    assert [run["cache"] for run in cached(runs)] == ["hit", "reused"]


def test_runs_of_one_function_are_summed_up_with_percentiles_where_there_are_enough() -> None:
    other = CacheKey(16, 4, 32)
    runs = [record(s) for s in (0.1, 0.2, 0.6)] + [record(1.0, key=other)]
    small, large = by_shape(runs)
    assert (small.key.num_beams, large.key) == (1, other)
    assert small.run_s.n == 3
    assert small.run_s.p50_s == pytest.approx(0.2)
    assert small.run_s.p95_s is None
    assert small.tokens_per_second == pytest.approx(25)
    assert small.first_call_s == pytest.approx(3.2)

    assert len(by_shape([record(0.1), record(0.1, model="other")])) == 2
    [shape] = by_shape([record(0.01 * place) for place in range(1, 21)])
    assert shape.run_s.p95_s == pytest.approx(0.1905)
    assert shape.run_s.p99_s is None
    [shape] = by_shape([record(0.01 * place) for place in range(1, 101)])
    assert shape.run_s.p99_s == pytest.approx(0.9901)
