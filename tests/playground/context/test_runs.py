"""Who may run, who stops what, and which waiting counts as waiting."""

import threading
from dataclasses import replace

import pytest

from playground.context.measuring import MeasuringRun
from playground.context.runs import Ending, TextRun, VisitorRuns, reporting_errors
from playground.tabs.generate.report import report
from tests.playground.clock import Clock
from tests.playground.fake_backend import FakeBackend
from xla_backend import EngineStatus, GenerationOptions, InvalidRequest


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, "playground.context.runs", "playground.context.measuring")


def a_run() -> TextRun:
    return TextRun("gpt2-stories", "Once", GenerationOptions())


def test_a_run_yields_the_text_so_far_and_ends_with_a_result() -> None:
    run = a_run()
    texts = list(run.steps(FakeBackend([" upon", " a", " time"]), waited_s=0.0))
    assert texts[:2] == ["", " upon"], "it begins, then the first text comes without a wait"
    shown = run.shown()
    assert (shown.prompt, shown.other_s) == ("Once", 0.0)
    assert shown.result.timing.queue_s == 0.0


def test_a_stop_keeps_what_was_written_and_what_waited_never_runs() -> None:
    run = a_run()
    texts = run.steps(FakeBackend([" a"] * 1000), waited_s=0.0)
    next(texts)
    next(texts)
    run.stop()
    assert list(texts) == []
    shown = run.shown()
    assert (shown.result.text, shown.result.finish) == (" a", "stopped")

    engine, run = FakeBackend(), a_run()
    run.stop()
    assert list(run.steps(engine, waited_s=0.0)) == []
    assert run.shown() is None
    assert engine.asked == []


def test_waiting_for_another_run_counts_as_queue() -> None:
    engine, run = FakeBackend(), a_run()
    engine.generate(run.model, run.prompt, run.options)
    list(run.steps(engine, waited_s=2.0))
    shown = run.shown()
    itself = engine.generate(run.model, run.prompt, run.options).timing
    assert shown.result.timing.queue_s == 2.0
    assert shown.result.timing.total_s == pytest.approx(2.0 + itself.total_s)


@pytest.mark.parametrize("ahead", [0, 1])
def test_waiting_for_the_background_is_not_waiting_for_others(ahead: int) -> None:
    engine, run = FakeBackend(), a_run()
    run.ahead = ahead
    run.prediction = engine.predict(run.model, run.prompt, run.options)
    engine.make_ready(run.model, run.prediction.key)
    list(run.steps(engine, waited_s=2.0))
    shown = run.shown()
    assert shown is not None
    said = "this shape was being compiled in the background" in report(shown)
    assert said is not bool(ahead)


def test_a_start_of_the_engine_is_named_apart(clock: Clock) -> None:
    engine, run = FakeBackend(), a_run()
    engine.status = EngineStatus("starting")
    clock.now += 60.0
    list(run.steps(engine, waited_s=0.0))
    shown = run.shown()
    assert shown.other_s == 60.0 - shown.result.timing.total_s


def test_loading_the_model_is_part_of_the_time_from_end_to_end() -> None:
    engine, run = FakeBackend(), a_run()
    engine.hold("load")
    texts = run.steps(engine, waited_s=0.0)
    ended = threading.Thread(target=list, args=(texts,))
    ended.start()
    engine.reached("load")
    engine.clock.advance(12.3)
    engine.release()
    ended.join()
    answer, told = run.result, engine.streams[0].result
    assert answer.timing.total_s == pytest.approx(told.timing.total_s + 12.3)


def test_whoever_waits_is_told_for_how_long_where_that_is_known() -> None:
    runs, engine = VisitorRuns(), FakeBackend()
    for place, expected_s in enumerate((2.0, 3.0, None)):
        run = a_run()
        said = engine.predict(run.model, run.prompt, run.options)
        run.prediction = replace(said, expected_s=expected_s)
        runs.begin(str(place), run)
    runs.begin("last", a_run())
    assert runs.seconds_ahead("2", 2) == 5.0
    assert runs.seconds_ahead("2", 3) is None, "a program is before it, too"
    assert runs.seconds_ahead("last", 3) is None, "nobody knows how long the third takes"


def test_a_visitor_has_one_run_at_a_time_and_one_event_carries_it_out() -> None:
    runs = VisitorRuns()
    assert runs.begin("one", a_run()) == 0
    with pytest.raises(InvalidRequest, match="has not ended yet"):
        runs.begin("one", a_run())
    assert runs.begin("two", a_run()) == 1
    runs.leave("one")
    assert runs.begin("three", a_run()) == 1

    runs = VisitorRuns()
    run = a_run()
    runs.begin("one", run)
    assert runs.take("one") is run
    assert runs.take("one") is None
    assert runs.take("nobody") is None


def test_runs_that_no_page_carries_out_or_shows_are_not_kept_for_ever() -> None:
    runs = VisitorRuns()
    runs.begin("a page", a_run())
    running = runs.take("a page")
    for number in range(5000):
        runs.begin(f"by hand {number}", a_run())
    kept = [name for name in range(5000) if runs.of(f"by hand {name}")]
    assert 0 < len(kept) <= 1000
    assert kept[-1] == 4999, "the oldest have gone"
    assert runs.of("a page") is running

    for number in range(5000):
        runs.leave(f"by hand {number}")
        runs.begin(f"by hand {number}", a_run())
        with runs.carrying_out(f"by hand {number}"):
            pass
    shown = [number for number in range(5000) if runs.ended(f"by hand {number}")]
    assert 0 < len(shown) <= 1000
    assert shown[-1] == 4999


def test_events_take_their_own_run_and_leave_those_of_other_tabs_alone() -> None:
    runs, run, own, others = VisitorRuns(), a_run(), object(), object()
    runs.begin("one", run, own)
    assert runs.take("one", others) is None
    assert runs.take("one", own) is run
    with runs.carrying_out("one"):
        assert runs.ended("one", own) is None, "it has not ended"
    assert runs.ended("one", others) is None
    assert runs.ended("one", own) == (run, Ending())


def test_who_leaves_or_stops_ends_the_run() -> None:
    runs = VisitorRuns()
    run = a_run()
    runs.begin("one", run)
    runs.leave("one")
    runs.leave("one")
    assert run.stopped
    assert runs.of("one") is None

    runs, run = VisitorRuns(), a_run()
    assert not runs.stop("visitor")
    runs.begin("visitor", run)
    assert runs.stop("visitor")
    with runs.carrying_out("visitor"):
        assert runs.of("visitor") is run
    assert runs.ended("visitor") == (run, Ending(stopped=True))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (None, ""),
        (InvalidRequest("The prompt is empty."), "The prompt is empty."),
        (ValueError("x"), "the server's log has the details"),
    ],
)
def test_an_error_ends_the_run_and_becomes_a_sentence_that_is_shown_once(
    error: Exception | None, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs, run = VisitorRuns(), a_run()
    runs.begin("one", run)
    with runs.carrying_out("one"):
        assert runs.of("one") is run
        if error:
            raise error
    assert (runs.of("one"), run.is_over) == (None, True)
    ended, ending = runs.ended("one")
    assert ended is run
    assert sentence in ending.problem
    assert bool(ending.problem) == bool(sentence)
    assert runs.ended("one") is None
    assert ("ValueError: x" in caplog.text) == (type(error) is ValueError)
    with reporting_errors() as ending:
        if error:
            raise error
    assert sentence in ending.problem


def test_a_visitor_who_has_left_is_shown_nothing() -> None:
    runs = VisitorRuns()
    runs.begin("in the middle", a_run())
    with runs.carrying_out("in the middle"):
        runs.leave("in the middle")
    runs.begin("at the end", a_run())
    with runs.carrying_out("at the end"):
        pass
    runs.leave("at the end")
    for session in ("in the middle", "at the end"):
        assert (runs.of(session), runs.ended(session)) == (None, None)


def test_a_run_or_measurement_keeps_the_engine_and_says_how_long(clock: Clock) -> None:
    engine, run, runs = FakeBackend(), a_run(), VisitorRuns()
    runs.begin("me", run)
    run.prediction = engine.predict(run.model, run.prompt, run.options)
    run.prediction = replace(run.prediction, expected_s=5.0)
    making = EngineStatus("compiling", str(run.prediction.key))
    assert runs.occupation(making) is None, "it has not begun"
    assert runs.take("me") is run
    texts = run.steps(engine, waited_s=0.0)
    next(texts)
    clock.now += 1.0
    occupation = runs.occupation(making)
    assert occupation.activity == "", "the engine itself says what it does"
    assert occupation.left_s == 4.0
    assert runs.occupation(EngineStatus("compiling", "another key")) is None
    assert runs.occupation(EngineStatus("generating", making.detail)) is None

    runs, run = VisitorRuns(), Measurement()
    runs.begin("me", run)
    assert runs.occupation(EngineStatus("ready")) is None
    runs.take("me")
    occupation = runs.occupation(EngineStatus("ready"))
    assert (occupation.activity, occupation.left_s) == ("Measuring", None)
    run.ends_at = clock.now + 30.0
    occupation = runs.occupation(EngineStatus("generating"))
    assert occupation.left_s == 30.0
    runs.leave("me")
    assert runs.occupation(EngineStatus("ready")) is None


class Measurement(MeasuringRun):
    activity = "Measuring"
