"""What the page says about the engine."""

from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest

from playground.context.runs import Occupation, TextRun
from playground.context.status_line import phase_of, queued, status_line, stopping_note
from tests.playground.clock import Clock
from tests.playground.fake_backend import FakeBackend
from tests.playground.reader import words
from xla_backend import EngineStatus, GenerationOptions
from xla_backend.interface.results import Progress, RequestState

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
    line = status_line(EngineStatus("ready"), prefetching=1, occupation=held)
    assert words(line) == "Comparing 20 s about 42 s left"
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
    run = TextRun("model", "Once", GenerationOptions())
    waiting = Progress("queued", 0.0, 1, "", 65.2)
    waits = queued(run, waiting, EngineStatus("ready"), comparing)
    assert waits[:3] == ("Queued: 1 request ahead", clock.now, "about 65 s · Runs now: Comparing")
    compiling = EngineStatus("compiling", "padded 16", since=clock.now)
    behind_two = Progress("queued", 0.0, 2)
    assert queued(run, behind_two, compiling, None).more == "Runs now: Compiling padded 16"
    measuring = Progress("queued", 0.0, 2, "Measuring")
    assert queued(run, measuring, compiling, None).more == "Runs now: Measuring"
    clock.now += 7.0
    line = status_line(compiling, phase=waits)
    assert words(line) == f"{waits.name} {waits.more} 7 s", "the header says what the panel says"
    assert 'data-name="Queued: 1 request ahead"' in line
    assert 'data-badge="QUEUED"' in line
    assert 'id="phase"' not in status_line(compiling)


def test_a_run_says_what_becomes_of_it(clock: Clock) -> None:
    """Text came under "making the function", and 12 s of loading stood in a footnote."""
    run = TextRun("model", "Once", GenerationOptions())
    run.prediction = FakeBackend().predict("gpt2-stories", "Once", run.options)
    own = str(run.prediction.key)

    def phase(
        own_state: RequestState, state: str, detail: str = "", share: float | None = None
    ) -> object:
        stream = SimpleNamespace(progress=Progress(own_state, clock.now))
        run._stream = stream  # type: ignore[assignment]  # noqa: SLF001
        status = EngineStatus(state, detail, clock.now - 4.0, share)  # type: ignore[arg-type]
        found = phase_of(run, status, 98_000_000)
        return found.name, found.more, found.share, found.badge

    downloading = ("Downloading the model", "12 of 48 MB", 0.25, "RUNNING")
    assert phase("loading", "downloading", "12 of 48 MB", 0.25) == downloading
    loading = ("Loading the model", "98 MB", 0.0, "RUNNING")
    assert phase("loading", "loading", "model") == loading
    assert phase("queued", "loading", run.model) == loading, "the engine begins with it"
    others = ("Waiting: another model is being loaded", "", 0.0, "QUEUED")
    assert phase("queued", "loading", "other") == others
    others = ("Waiting: the engine is compiling another shape, other", "", 0.0, "QUEUED")
    assert phase("queued", "tracing", "other") == others
    for state in ("tracing", "compiling"):
        assert phase(state, state, own) == ("Compiling this shape", "", 0.0, "RUNNING")
    restoring = ("Restoring this shape from disk", "", 0.0, "RUNNING")
    assert phase("restoring", "compiling", own) == restoring
    assert phase("reading", "generating", own) == ("Reading the prompt", "", 0.0, "RUNNING")
    part = ("Reading the prompt", "40%", 0.4, "RUNNING")
    assert phase("reading", "generating", own, 0.4) == part
    run.text = " upon"
    # A text that grows was told to wait while something was made beside it.
    for state in ("generating", "loading", "compiling"):
        assert phase("writing", state, "other") == ("Generating", "", 0.0, "RUNNING")
    run.text = ""
    assert phase("queued", "ready") == ("Starting", "", 0.0, "RUNNING")


@pytest.mark.parametrize(
    ("is_own", "name", "badge"),
    [
        (True, "Compiling this shape", "RUNNING"),
        (False, "Waiting: 1 shape being compiled", "QUEUED"),
    ],
)
def test_what_is_compiled_in_the_background_is_named_where_a_run_waits_for_it(
    is_own: bool, name: str, badge: str
) -> None:
    run = TextRun("gpt2-stories", "Once", GenerationOptions())
    run.prediction = FakeBackend().predict(run.model, "Once", run.options)
    in_background = [(run.model if is_own else "other", run.prediction.key)]
    found = phase_of(run, EngineStatus("ready"), None, in_background)
    assert (found.name, found.badge) == (name, badge)


def test_one_clock_runs_through_all_phases_of_a_run(clock: Clock) -> None:
    """ "Compiling 75 s" became "1 s" when tracing had ended."""
    run = TextRun("model", "Once", GenerationOptions())
    for state, seconds in (("loading", 3), ("tracing", 75), ("compiling", 76), ("generating", 99)):
        clock.now = run.pressed_at + seconds
        status = EngineStatus(state, "model", since=clock.now)  # type: ignore[arg-type]
        line = status_line(status, phase=phase_of(run, status, None))
        assert words(line).endswith(f" {seconds} s")
