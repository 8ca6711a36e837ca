"""What the page says about the engine."""

from typing import get_args, get_type_hints

import pytest

from playground.context.runs import Occupation, TextRun
from playground.context.status_line import phase_of, queued, status_line, stopping_note
from tests.playground.clock import Clock
from tests.playground.fake_backend import FakeBackend
from tests.playground.reader import words
from xla_backend import EngineStatus, GenerationOptions

STATES = get_args(get_type_hints(EngineStatus)["state"])


def test_the_line_says_what_the_engine_does() -> None:
    status = EngineStatus("compiling", "padded 16 · beams 1 · new 32", since=100.0)
    assert words(status_line(status, now=104.2)) == "Compiling padded 16 · beams 1 · new 32 4 s"
    assert words(status_line(EngineStatus("ready", "x", since=100.0), now=900.0)) == "Engine ready"
    line = words(status_line(EngineStatus("ready"), prefetching=2))
    assert line == "Engine ready compiling 2 shapes in the background"
    line = words(status_line(EngineStatus("starting", "", since=100.0), now=103.0))
    assert "you can already press Generate" in line
    assert line.endswith("3 s")

    status = EngineStatus("downloading", "someone/thing: 12 of 48 MB", since=0.0, progress=0.25)
    line = status_line(status, now=3.0)
    assert words(line) == "Downloading someone/thing: 12 of 48 MB 3 s"
    assert 'aria-valuenow="25"' in line
    assert "progress" not in status_line(EngineStatus("loading", "someone/thing"))

    note = "restarted to free memory"
    assert words(status_line(EngineStatus("ready", note=note))) == f"Engine ready {note}"
    assert note not in status_line(EngineStatus("compiling", "padded 16", note=note))
    waiting = status_line(EngineStatus("starting", "to free memory", since=1.0), now=3.0)
    assert words(waiting).startswith("Restarting the engine to free memory")

    assert "<b>" not in status_line(EngineStatus("loading", "<b>x</b>"))


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_words_and_a_stop_says_what_must_end_first(state: str) -> None:
    assert words(status_line(EngineStatus(state, "detail")))  # type: ignore[arg-type]
    note = stopping_note(EngineStatus(state))  # type: ignore[arg-type]
    assert bool(note) == (state in ("downloading", "tracing", "compiling"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, "playground.context.status_line", "playground.context.runs")


def test_it_says_for_how_long_a_comparison_or_a_compile_goes_on(clock: Clock) -> None:
    began = clock.now - 20.0
    held = Occupation("Comparing", began, left_s=41.7)
    line = status_line(EngineStatus("ready"), prefetching=1, before=2, occupation=held)
    assert words(line) == "Comparing 20 s about 42 s left 2 requests before yours"
    unknown = status_line(EngineStatus("ready"), occupation=Occupation("Comparing", began, None))
    assert words(unknown) == "Comparing 20 s"

    status = EngineStatus("compiling", "padded 16", since=clock.now - 1.0)
    making = Occupation("", clock.now - 2.0, left_s=4.04)
    assert words(status_line(status, occupation=making)) == "Compiling padded 16 1 s about 4 s left"
    late = Occupation("", clock.now - 9.0, left_s=-3.0)
    line = status_line(status, occupation=late)
    assert words(line).endswith("longer than expected")


def test_whoever_waits_reads_the_place_the_time_and_what_runs(clock: Clock) -> None:
    comparing = Occupation("Comparing", clock.now, 65.2)
    waits = queued(1, EngineStatus("ready"), comparing, 65.2)
    assert waits == ("Queued: 1 request ahead", "about 65 s · Runs now: Comparing", 0.0)
    compiling = EngineStatus("compiling", "padded 16")
    assert queued(2, compiling, None, None).more == "Runs now: Compiling padded 16"
    line = status_line(compiling, before=1, phase=waits)
    assert 'data-said="Queued: 1 request ahead"' in line
    assert 'id="phase"' not in status_line(compiling)


def test_a_run_says_what_becomes_of_it(clock: Clock) -> None:
    """Text came under "making the function", and 12 s of loading stood in a footnote."""
    run = TextRun("model", "Once", GenerationOptions())
    run.prediction = FakeBackend().predict("gpt2-stories", "Once", run.options)
    own = str(run.prediction.key)

    def phase(state: str, detail: str = "", progress: float | None = None) -> object:
        since = clock.now - 4.0
        return phase_of(run, EngineStatus(state, detail, since, progress), 98_000_000)  # type: ignore[arg-type]

    assert phase("downloading", "12 of 48 MB", 0.25) == (
        "Downloading the model",
        "12 of 48 MB",
        0.25,
    )
    assert phase("loading", "model") == ("Loading the model", "98 MB · 4 s", 0.0)
    assert phase("loading", "other") == ("Waiting: another model is being loaded", "4 s", 0.0)
    assert phase("compiling", own) == ("Compiling this shape", "4 s", 0.0)
    assert phase("tracing", "other") == ("Waiting: another shape is being compiled", "4 s", 0.0)
    assert phase("generating", own) == ("Reading the prompt", "", 0.0)
    assert phase("generating", own, 0.4) == ("Reading the prompt", "40%", 0.4)
    run.text = " upon"
    # A text that grows was told to wait while something was made beside it.
    for state in ("generating", "loading", "compiling"):
        assert phase(state, "other") == ("Generating", "", 0.0)
    run.text = ""
    assert phase("ready") is None
