"""How long comparisons are said to take: measured here once, and right within a third."""

from dataclasses import replace

import pytest

from playground.tabs.compare.durations import Durations, ModelSize, at_most, stated
from xla_backend import CacheOutcome, FirstCall, GenerationOptions
from xla_backend.baselines.comparison import (
    CACHED_CALLS,
    CALLS_BUDGET_S,
    Baseline,
    BaselineComparison,
    BaselineProgress,
    BaselineResult,
)
from xla_backend.checkpoints.models import Registry
from xla_backend.interface.results import KeyHistory

OPTIONS = GenerationOptions(max_new_tokens=32)
STORIES = ModelSize("gpt2-stories", 6, 2.2e6, is_rotary=False)
SMOLLM2 = ModelSize("SmolLM2-135M-Instruct", 30, 147e6, is_rotary=True)


def result(way: Baseline, wall_s: float, call_s: float) -> BaselineResult:
    return BaselineResult(
        way, 4.0, 0.6, 2.0, 0.0, 0.0, wall_s, 4, 16, (1, 2), "a b", None, (call_s,) * CACHED_CALLS
    )


def compared(model: str, *times: tuple[float, float]) -> BaselineComparison:
    comparison = BaselineComparison(model, "Once", OPTIONS)
    for way, (wall_s, call_s) in zip(Baseline, times, strict=False):
        comparison.results[way] = result(way, wall_s, call_s)
    return comparison


@pytest.mark.parametrize(
    ("size", "took_s"),
    [(STORIES, 64.0), (SMOLLM2, 165.0)],  # two idle cores, 2026-11-25
    ids=lambda value: getattr(value, "model", ""),
)
def test_at_first_the_size_of_the_model_tells(size: ModelSize, took_s: float) -> None:
    expected_s = Durations().expected_s(size, OPTIONS, CACHED_CALLS, [])
    assert 2 / 3 < expected_s / took_s < 4 / 3


def test_a_machine_that_compiles_slowly_is_slow() -> None:
    usual_s = 2.1 + 0.06 * STORIES.layers
    past = [KeyHistory(compiled=FirstCall(CacheOutcome.MISS, 1.0, 2 * usual_s, 0.1))]
    fast, slow = (Durations().expected_s(STORIES, OPTIONS, 9, each) for each in ([], past))
    assert 1.5 < slow / fast <= 2.01


def test_what_was_measured_here_counts_also_for_other_requests_and_models() -> None:
    durations = Durations()
    twice = [
        (2 * way.once_s, 2 * way.call_s) for way in (stated(e, STORIES, OPTIONS) for e in Baseline)
    ]
    durations.record(compared(STORIES.model, *twice), STORIES)
    assert durations.is_measured(STORIES.model)
    assert not durations.is_measured(SMOLLM2.model)
    expected_s = durations.expected_s(STORIES, OPTIONS, 3, [])
    assert expected_s == pytest.approx(
        sum(once_s + 3 * call_s for once_s, call_s in twice) + 3 * 0.2, rel=0.01
    )
    longer = replace(OPTIONS, max_new_tokens=64)
    assert durations.expected_s(STORIES, longer, 3, []) > expected_s + 4 * twice[0][1] * 0.9
    fresh_s = Durations().expected_s(SMOLLM2, OPTIONS, 1, [])
    assert 1.8 < durations.expected_s(SMOLLM2, OPTIONS, 1, []) / fresh_s < 2.01


def test_sizes_are_read_and_no_way_takes_longer_for_its_later_calls_than_its_time() -> None:
    few, many = (Durations().expected_s(SMOLLM2, OPTIONS, n, []) for n in (1, 50))
    assert many - few < 4 * CALLS_BUDGET_S
    size = ModelSize.of("gpt2-stories", Registry().locate("gpt2-stories"))
    assert (size.layers, size.is_rotary) == (6, False)
    assert 2.0e6 < size.parameters < 2.5e6


def test_what_is_left_shrinks_to_nothing_and_a_slow_beginning_slows_the_rest() -> None:
    durations = Durations()
    comparison = compared(STORIES.model)
    whole_s = durations.expected_s(STORIES, OPTIONS, CACHED_CALLS, [])
    left: list[float] = []

    def look(way: Baseline, stage: str, way_s: float, calls: int = 0) -> None:
        progress = BaselineProgress(way, stage, way_s, calls)
        left.append(durations.left_s(comparison, progress, STORIES, []))

    look(Baseline.EAGER, "importing", 0.0)
    assert left[0] == pytest.approx(whole_s)
    look(Baseline.EAGER, "running", 5.0)
    for way in Baseline:
        comparison.results[way] = result(way, *vars(stated(way, STORIES, OPTIONS)).values())
    for calls in range(CACHED_CALLS + 1):
        look(Baseline.EAGER, "cached", 60.0, calls)
    assert left == sorted(left, reverse=True)
    assert left[-1] == pytest.approx(0.0)

    # 12 s were said to be left that took 33.
    durations, comparison = Durations(), compared(STORIES.model)

    def left_s(way: Baseline, way_s: float) -> float:
        progress = BaselineProgress(way, "running", way_s, 0)
        return durations.left_s(comparison, progress, STORIES, [])

    eager_s = stated(Baseline.EAGER, STORIES, OPTIONS).once_s
    rest_s = left_s(Baseline.EAGER, 0.0) - eager_s
    assert left_s(Baseline.EAGER, 3 * eager_s) > 2 * rest_s, "still under way"
    comparison.results[Baseline.EAGER] = result(Baseline.EAGER, 3 * eager_s, 0.1)
    assert left_s(Baseline.GUIDE, 0.0) > 1.5 * rest_s, "over"


@pytest.mark.parametrize(("load", "most"), [(0.0, 1.5), (4.0, 3.0)])
def test_a_busy_machine(load: float, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert at_most(60.0) == most * 60.0
