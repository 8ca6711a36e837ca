"""Comparisons with Transformers: what is installed first, and what a stop ends."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from playground.tabs.compare.runs import BaselinesRun
from tests import small_package
from tests.playground.fake_backend import FakeBackend
from xla_backend.baselines import overlay
from xla_backend.baselines.comparison import Baseline, BaselineProgress


class Ways:
    """A comparison that tells how often it is asked to stop."""

    def __init__(self, engine: FakeBackend) -> None:
        self.engine = engine
        self.stops = 0
        self.results: dict[Baseline, object] = {}

    def __iter__(self) -> Iterator[BaselineProgress]:
        assert self.engine.prefetching() == [], "nothing may be made beside the ways"
        yield BaselineProgress(Baseline.EAGER, "importing", 0.0, 0)
        self.results = dict.fromkeys(Baseline)

    def stop(self) -> None:
        self.stops += 1


def test_a_stop_ends_the_process_of_the_present_lane() -> None:
    run = BaselinesRun(Ways(FakeBackend()))
    list(run.measure(FakeBackend()))
    assert run.progress is None
    assert run.took_s is not None, "all ways have ended: the next one is judged by it"

    ways = Ways(FakeBackend())
    run = BaselinesRun(ways)
    steps = run.measure(FakeBackend())
    next(steps)
    run.stop()
    steps.close()
    assert ways.stops == 1
    assert run.took_s is None


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
