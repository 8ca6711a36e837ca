"""How long comparisons are said to take: measured here once, and right within a third."""

from dataclasses import replace

import pytest

from playground.tabs.compare.durations import Durations, ModelSize, at_most
from xla_backend import GenerationOptions
from xla_backend.baselines.comparison import CACHED_CALLS, CALLS_BUDGET_S, SETTLE_S
from xla_backend.checkpoints.models import Registry

OPTIONS = GenerationOptions(max_new_tokens=32)
STORIES = ModelSize("gpt2-stories", 6, 2.2e6, is_rotary=False)
SMOLLM2 = ModelSize("SmolLM2-135M-Instruct", 30, 147e6, is_rotary=True)


@pytest.mark.parametrize(
    ("size", "took_s"),
    [(STORIES, 64.0), (SMOLLM2, 165.0)],  # two idle cores, 2026-11-25
    ids=lambda value: getattr(value, "model", ""),
)
def test_at_first_the_size_of_the_model_tells(size: ModelSize, took_s: float) -> None:
    expected_s = Durations().expected_s(size, OPTIONS, CACHED_CALLS)
    assert 2 / 3 < expected_s / took_s < 4 / 3


def test_what_was_measured_here_counts_also_for_other_requests_and_models() -> None:
    fresh, durations = Durations(), Durations()
    took_s = 2 * fresh.expected_s(STORIES, OPTIONS, 3)
    durations.record(STORIES, OPTIONS, 3, took_s)
    assert durations.is_measured(STORIES.model)
    assert not durations.is_measured(SMOLLM2.model)
    assert durations.expected_s(STORIES, OPTIONS, 3) == pytest.approx(took_s)
    longer = replace(OPTIONS, max_new_tokens=64)
    for size, options in ((STORIES, longer), (SMOLLM2, OPTIONS)):
        expected_s = durations.expected_s(size, options, 1)
        assert expected_s == pytest.approx(2 * fresh.expected_s(size, options, 1))


def test_sizes_are_read_and_no_way_takes_longer_for_its_later_calls_than_its_time() -> None:
    few, many = (Durations().expected_s(SMOLLM2, OPTIONS, n) for n in (1, 50))
    assert many - few < 4 * CALLS_BUDGET_S + 50 * SETTLE_S
    size = ModelSize.of("gpt2-stories", Registry().locate("gpt2-stories"))
    assert (size.layers, size.is_rotary) == (6, False)
    assert 2.0e6 < size.parameters < 2.5e6


@pytest.mark.parametrize(("load", "most"), [(0.0, 1.5), (4.0, 3.0)])
def test_a_busy_machine(load: float, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert at_most(60.0) == most * 60.0
