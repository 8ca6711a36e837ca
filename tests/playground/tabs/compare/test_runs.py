"""What is compared, in which order, and what comparisons leave as they found it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from playground.tabs.compare.choice import (
    LENGTHS,
    SHAPE_CALLS,
    of_shapes,
)
from playground.tabs.compare.runs import BaselinesRun, Variant, VariantRow, VariantsRun
from playground.tabs.compare.shapes_report import shapes_report
from tests import small_package
from tests.playground.fake_backend import CONTEXT_LENGTH, FakeBackend
from tests.playground.samples import result
from xla_backend import GenerationOptions, InvalidRequest
from xla_backend.baselines import overlay
from xla_backend.baselines.comparison import CACHED_CALLS, Baseline, BaselineProgress
from xla_backend.interface.timing import spread

GREEDY = GenerationOptions()


class Ways:
    """A comparison that tells how often it is asked to stop."""

    def __init__(self, engine: FakeBackend) -> None:
        self.engine = engine
        self.stops = 0

    def __iter__(self) -> Iterator[BaselineProgress]:
        assert self.engine.prefetching() == [], "nothing may be made beside the ways"
        yield BaselineProgress(Baseline.EAGER, "importing", 0.0, 0)

    def stop(self) -> None:
        self.stops += 1


def variants(*options: GenerationOptions) -> list[Variant]:
    return [Variant("gpt2-stories", each, "Once") for each in options]


def test_a_first_call_is_the_same_number_here_as_elsewhere() -> None:
    """It waited 1.1 s: 19.1 s in one place and 20.2 s in another were told of one shape."""
    timing = replace(result().timing, compile_s=19.0, queue_s=1.1, total_s=20.2)
    row = VariantRow(variants(GREEDY)[0], first=result(timing=timing))
    assert "19.1 s" in shapes_report([row, row], None, "")


def test_each_variant_is_made_ready_and_then_measured_until_a_stop() -> None:
    engine = FakeBackend()
    run = VariantsRun(variants(GREEDY, GREEDY.replace(num_beams=4)))
    list(run.measure(engine))
    beams = [options.num_beams for _, _, options, _ in engine.asked]
    assert beams == [1, 4] * (1 + CACHED_CALLS), "later calls go in turn"
    assert all(exact_key for *_, exact_key in engine.asked), "a larger function would serve one"
    assert [row.first.cache.value for row in run.rows if row.first] == ["miss", "miss"]
    assert all(row.is_done for row in run.rows)
    assert run.rows[0].spread == spread([result().timing.total_s] * CACHED_CALLS)
    assert run.current is None

    engine = FakeBackend()
    run = VariantsRun(variants(GREEDY, GREEDY.replace(num_beams=4)))
    for _ in run.measure(engine):
        if run.rows[0].first is not None:
            run.stop()
    assert run.rows[0].first is not None
    assert run.rows[1].first is None
    assert len(engine.asked) <= 2


def test_a_variant_that_cannot_be_answered_or_takes_long_keeps_no_other_from_it() -> None:
    run = VariantsRun(variants(GREEDY.replace(max_new_tokens=200), GREEDY))
    list(run.measure(FakeBackend()))
    assert run.rows[0].problem == "The model has room for 150 tokens."
    assert run.rows[1].is_done
    assert run.rows[0].problem in shapes_report(run.rows)

    row = VariantRow(variants(GREEDY)[0], first=result())
    timing = row.first.timing.__class__(decode_s=15.0, total_s=15.0)
    for _ in range(2):
        assert not row.is_done
        row.later.append(result(timing=timing))
    assert row.is_done, "a third one would end after more than 40 s"
    assert "15.0 s to 15.0 s" in shapes_report([row, row])


def test_ten_lengths_go_through_buckets_and_one_shape() -> None:
    engine = FakeBackend()
    engine.has_pool = True
    sides = of_shapes("gpt2-stories", range(9), 20, CONTEXT_LENGTH)
    run = VariantsRun(sides, SHAPE_CALLS)
    waiting = shapes_report(run.rows, 0, "First call 1 of 20.")
    assert (waiting.count("NOW"), waiting.count("WAITS")) == (1, 19)
    list(run.measure(engine))
    assert len(engine.asked) == 2 * LENGTHS * (1 + SHAPE_CALLS)
    salts = [stream.request.cache_salt for stream in engine.streams]
    assert not any(salts[::2]), "buckets reuse nothing"
    assert len(set(salts[1::2])) == len(salts) / 2, "nor do rows of the pool"
    tokens = [row.first.prompt_tokens for row in run.rows if row.first]
    assert tokens[::2] == tokens[1::2] == sorted(set(tokens)), "ten lengths, each way"
    html = shapes_report(run.rows, is_over=True)
    buckets = {row.first.key for row in run.rows[::2] if row.first}
    assert f"Buckets: compiled for {len(buckets)} of 10 lengths" in html
    assert "One shape: compiled for 1 of 10 lengths" in html
    assert "no difference within noise" in html
    assert html.count(">MISS<") == len(buckets) + 1
    list((again := VariantsRun(sides, SHAPE_CALLS)).measure(engine))
    assert shapes_report(again.rows, is_over=True).count("nothing was compiled.") == 2
    with pytest.raises(InvalidRequest, match="no room for 10 prompts of different lengths"):
        of_shapes("gpt2-stories", range(9), CONTEXT_LENGTH - LENGTHS + 1, CONTEXT_LENGTH)


def test_a_stop_ends_the_process_of_the_present_lane() -> None:
    run = BaselinesRun(Ways(FakeBackend()))
    list(run.measure(FakeBackend()))
    assert run.progress is None

    ways = Ways(FakeBackend())
    run = BaselinesRun(ways)
    steps = run.measure(FakeBackend())
    next(steps)
    run.stop()
    steps.close()
    assert ways.stops == 1


@pytest.mark.parametrize("may_install", [True, False])
def test_the_overlay_of_transformers_lanes_is_installed_first(
    may_install: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(overlay.FOLDER_VARIABLE, str(tmp_path / "overlay"))
    monkeypatch.setattr(overlay, "REQUIREMENTS", small_package.requirements(tmp_path))
    engine = FakeBackend()
    run = BaselinesRun(Ways(engine), may_install)
    reported = [(run.installing is not None, run.progress is not None) for _ in run.measure(engine)]
    assert ((True, False) in reported) == may_install == overlay.is_installed()
    assert reported[-1] == (False, True), "the ways come last"
    assert run.problem == ""
    assert run.installing is None


def test_other_lanes_run_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(overlay.FOLDER_VARIABLE, str(tmp_path / "overlay"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    engine = FakeBackend()
    run = BaselinesRun(Ways(engine), may_install=True)
    steps = [run.progress for _ in run.measure(engine)]
    assert steps[-1] is not None
    assert re.search(r"could not be installed \(ERROR: No matching .* run: python -m", run.problem)
