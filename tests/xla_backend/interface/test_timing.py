"""Tests of `timing`: phases add up, pauses count nowhere, statistics are honest."""

import dataclasses
import time

import pytest

from xla_backend import Timing
from xla_backend.interface.timing import PHASES, Span, Spread, Stopwatch, spread, summarize


class Clock:
    """Stands in for `time.perf_counter`; moves only when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_each_moment_counts_in_one_phase(clock: Clock) -> None:
    watch = Stopwatch("queue")
    clock.now += 1
    watch.enter("tokenize")
    clock.now += 2
    watch.enter("decode")
    clock.now += 4
    watch.enter("queue")
    clock.now += 8
    watch.enter("decode")
    clock.now += 16
    assert watch.read() == Timing(queue_s=9, tokenize_s=2, decode_s=20, total_s=31)


def test_time_counts_from_before_the_watch_and_reading_changes_nothing(clock: Clock) -> None:
    earlier = Stopwatch("queue", started=97.0)
    later = Stopwatch("queue", started=103.0)
    clock.now += 1
    assert earlier.read() == Timing(queue_s=4, total_s=4)
    assert later.read() == Timing(queue_s=1, total_s=1)

    watch = Stopwatch("decode")
    clock.now += 1
    assert watch.read() == watch.read()
    clock.now += 1
    assert watch.read() == Timing(decode_s=2, total_s=2)

    watch = Stopwatch("decode")
    watch.enter("thinking")
    with pytest.raises(KeyError):
        watch.enter("decode")


def test_the_first_token_is_there_when_a_call_brings_one(clock: Clock) -> None:
    watch = Stopwatch("queue")
    clock.now += 1
    watch.enter("compile")
    clock.now += 2
    watch.enter("prefill")
    clock.now += 4
    watch.lap()
    assert watch.since_first_token_s() == 0
    clock.now += 4
    watch.lap(1)
    watch.enter("queue")
    clock.now += 8
    watch.enter("decode")
    clock.now += 16
    watch.lap(3)
    assert watch.since_first_token_s() == 24


def test_run_time_is_that_of_compiled_code() -> None:
    timing = Timing(**{f"{phase}_s": 2.0**i for i, phase in enumerate(PHASES)}, total_s=127.0)
    assert timing.run_s == timing.prefill_s + timing.decode_s == 16 + 32
    assert Timing(**timing.to_dict()) == timing
    assert list(timing.to_dict()) == [*(f"{phase}_s" for phase in PHASES), "total_s"]


def test_statistics_of_few_values_leave_high_percentiles_open() -> None:
    few = summarize([0.4, 0.1, 0.2, 0.9])
    assert (few.n, few.min_s, few.p95_s, few.p99_s) == (4, 0.1, None, None)
    assert few.p50_s == pytest.approx(0.3)
    assert few.mean_s == pytest.approx(0.4)
    assert summarize([float(i) for i in range(19)]).p95_s is None
    assert summarize([float(i) for i in range(99)]).p99_s is None

    assert summarize([]) is None

    values = [float(i) for i in range(101)]
    assert dataclasses.astuple(summarize(values[::-1])) == pytest.approx(
        (101, 0, 50, 50, 95, 99, 25, 75)
    )
    assert summarize([1.0] * 19 + [100.0]).p95_s == pytest.approx(1.0 + 0.05 * 99)


def test_a_spread_is_the_middle_half_of_many_values_and_all_of_few() -> None:
    assert spread([]) is None
    assert spread([0.3]) == Spread(1, 0.3, 0.3, 0.3)
    assert spread([0.3, 0.1, 0.9]) == Spread(3, 0.3, 0.1, 0.9)
    assert spread([9.0, *(float(i) for i in range(1, 9))]) == Spread(9, 5.0, 3.0, 7.0)

    one = Spread(9, 0.2, 0.1, 0.3)
    assert one.overlaps(one)
    assert one.overlaps(Spread(9, 0.4, 0.3, 0.5))
    assert not one.overlaps(Spread(9, 0.4, 0.31, 0.5))
    assert not Spread(9, 0.4, 0.31, 0.5).overlaps(one)


def test_spans_say_what_happened_when_and_what_it_brought(clock: Clock) -> None:
    watch = Stopwatch("queue", started=99.0)
    clock.now += 5
    watch.pause_for("load", 3)
    clock.now += 1
    watch.enter("prefill")
    clock.now += 1
    watch.read()
    clock.now += 1
    watch.lap(1)
    watch.enter("decode")
    watch.enter("decode")
    clock.now += 4
    watch.lap(3)
    clock.now += 4
    watch.lap(2)
    watch.enter("detokenize")
    watch.enter("queue")
    clock.now += 16
    timing, spans = watch.read(), watch.spans()
    clock.now += 32
    assert spans == (
        Span("queue", 99, 3),
        Span("load", 102, 3),
        Span("queue", 105, 1),
        Span("prefill", 106, 2, 1),
        Span("decode", 108, 4, 3),
        Span("decode", 112, 4, 2),
        Span("queue", 116, 16),
    )
    assert timing == Timing(queue_s=20, prefill_s=2, decode_s=8, total_s=30)
