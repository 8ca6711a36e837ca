"""Who may run, who stops what, and which waiting counts as waiting."""

import threading
from dataclasses import replace

import pytest

from playground.context.measuring import MeasuringRun
from playground.context.runs import Run, Runs
from playground.tabs.chat.conversation import Conversation
from playground.tabs.chat.runs import ChatRun
from playground.tabs.compare.runs import ComparisonRun, VariantsRun
from playground.tabs.generate.report import report
from tests.playground.clock import Clock
from tests.playground.fake_backend import FakeBackend
from xla_backend import EngineStatus, GenerationOptions, InvalidRequest


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, "playground.context.runs", "playground.context.measuring")


def a_run() -> Run:
    return Run("gpt2-stories", "Once", GenerationOptions())


def test_a_run_yields_the_text_so_far_and_ends_with_a_result() -> None:
    run = a_run()
    texts = list(run.texts(FakeBackend([" upon", " a", " time"]), waited_s=0.0))
    assert texts[:2] == ["", " upon"], "it begins, then the first text comes without a wait"
    shown = run.shown()
    assert (shown.prompt, shown.other_s) == ("Once", 0.0)
    assert shown.result.timing.queue_s == 0.0


def test_a_stop_keeps_what_was_written_and_what_waited_never_runs() -> None:
    run = a_run()
    texts = run.texts(FakeBackend([" a"] * 1000), waited_s=0.0)
    next(texts)
    next(texts)
    run.stop()
    assert list(texts) == []
    shown = run.shown()
    assert (shown.result.text, shown.result.finish) == (" a", "stopped")

    engine, run = FakeBackend(), a_run()
    run.stop()
    assert list(run.texts(engine, waited_s=0.0)) == []
    assert run.shown() is None
    assert engine.asked == []


def test_waiting_for_another_run_counts_as_queue() -> None:
    engine, run = FakeBackend(), a_run()
    engine.generate(run.model, run.prompt, run.options)
    list(run.texts(engine, waited_s=2.0))
    shown = run.shown()
    itself = engine.generate(run.model, run.prompt, run.options).timing
    assert shown.result.timing.queue_s == 2.0
    assert shown.result.timing.total_s == pytest.approx(2.0 + itself.total_s)


@pytest.mark.parametrize("waited_for", [False, True])
def test_waiting_for_the_background_is_not_waiting_for_others(waited_for: bool) -> None:
    engine, run = FakeBackend(), a_run()
    run.waited_for = waited_for
    run.prediction = engine.predict(run.model, run.prompt, run.options)
    engine.make_ready(run.model, run.prediction.key)
    list(run.texts(engine, waited_s=2.0))
    shown = run.shown()
    assert shown is not None
    said = "this shape was being compiled in the background" in report(shown)
    assert said is not waited_for


def test_a_start_of_the_engine_is_named_apart(clock: Clock) -> None:
    engine, run = FakeBackend(), a_run()
    engine.status = EngineStatus("starting")
    clock.now += 60.0
    list(run.texts(engine, waited_s=0.0))
    shown = run.shown()
    assert shown.other_s == 60.0 - shown.result.timing.total_s


def test_loading_the_model_is_part_of_the_time_from_end_to_end() -> None:
    engine, run = FakeBackend(), a_run()
    engine.hold("load")
    texts = run.texts(engine, waited_s=0.0)
    ended = threading.Thread(target=list, args=(texts,))
    ended.start()
    engine.reached("load")
    engine.clock.advance(12.3)
    engine.release()
    ended.join()
    answer, told = run.result, engine.streams[0].result
    assert answer.timing.total_s == pytest.approx(told.timing.total_s + 12.3)


def test_whoever_waits_is_told_for_how_long_where_that_is_known() -> None:
    runs, engine = Runs(), FakeBackend()
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
    runs = Runs()
    assert runs.begin("one", a_run()) == 0
    with pytest.raises(InvalidRequest, match="has not ended yet"):
        runs.begin("one", a_run())
    assert runs.begin("two", a_run()) == 1
    runs.end("one")
    assert runs.begin("three", a_run()) == 1

    runs = Runs()
    run = a_run()
    runs.begin("one", run)
    assert runs.take("one", Run) is run
    assert runs.take("one", Run) is None
    assert runs.take("nobody", Run) is None


def test_runs_that_no_page_carries_out_or_shows_are_not_kept_for_ever() -> None:
    runs = Runs()
    runs.begin("a page", a_run())
    running = runs.take("a page", Run)
    for number in range(5000):
        runs.begin(f"by hand {number}", a_run())
    kept = [name for name in range(5000) if runs.of(f"by hand {name}")]
    assert 0 < len(kept) <= 1000
    assert kept[-1] == 4999, "the oldest have gone"
    assert runs.of("a page") is running

    for number in range(5000):
        runs.end(f"by hand {number}")
        runs.begin(f"by hand {number}", a_run())
        with runs.handing_over(f"by hand {number}"):
            pass
    handed = [number for number in range(5000) if runs.ended(f"by hand {number}", Run)]
    assert 0 < len(handed) <= 1000
    assert handed[-1] == 4999


def test_an_event_takes_a_run_of_its_kind_and_leaves_those_of_other_tabs_alone() -> None:
    of_generate = a_run()
    of_chat = ChatRun(Conversation("gpt2-stories"), "Once", 0, "")
    of_compare = VariantsRun("Once", [])
    for run, own, others in (
        (of_generate, Run, (ChatRun, ComparisonRun)),
        (of_chat, ChatRun, (Run, ComparisonRun)),
        (of_compare, ComparisonRun, (Run, ChatRun)),
    ):
        runs = Runs()
        runs.begin("one", run)
        assert [runs.take("one", other) for other in others] == [None, None]
        assert runs.take("one", own) is run


def test_who_leaves_or_stops_ends_the_run() -> None:
    runs = Runs()
    run = a_run()
    runs.begin("one", run)
    runs.end("one")
    runs.end("one")
    assert run.stopped
    assert runs.of("one") is None

    runs, run = Runs(), a_run()
    assert not runs.stop("visitor")
    runs.begin("visitor", run)
    assert runs.stop("visitor")
    assert run.stopped


def test_an_error_ends_the_run_and_becomes_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    runs = Runs()
    for error, sentence in (
        (InvalidRequest("The prompt is empty."), "The prompt is empty."),
        (ValueError("x"), "the server's log has the details"),
    ):
        runs.begin("one", a_run())
        with runs.carrying_out("one") as ending:
            raise error
        assert sentence in ending.problem
        assert runs.of("one") is None
    assert "ValueError: x" in caplog.text

    runs = Runs()
    run = a_run()
    runs.begin("one", run)
    with runs.carrying_out("one") as ending:
        assert runs.of("one") is run
    assert (ending.problem, runs.of("one")) == ("", None)

    with runs.reporting_errors() as ending:
        raise InvalidRequest("Ask for less.")
    assert ending.problem == "Ask for less."
    with runs.reporting_errors() as ending:
        raise ZeroDivisionError
    assert "log" in ending.problem


def test_a_run_is_handed_over_once_and_not_to_who_has_left() -> None:
    runs = Runs()
    for error, sentence in ((None, ""), (InvalidRequest("Too long."), "Too long.")):
        run = a_run()
        runs.begin("one", run)
        with runs.handing_over("one"):
            if error:
                raise error
        assert runs.of("one") is None
        assert runs.ended("two", Run) is None
        assert runs.ended("one", Run) == (run, sentence)
        assert runs.ended("one", Run) is None

    runs = Runs()
    runs.begin("in the middle", a_run())
    with runs.handing_over("in the middle"):
        runs.leave("in the middle")
    runs.begin("at the end", a_run())
    with runs.handing_over("at the end"):
        pass
    runs.leave("at the end")
    for session in ("in the middle", "at the end"):
        assert (runs.of(session), runs.ended(session, Run)) == (None, None)


def test_a_run_or_measurement_keeps_the_engine_and_says_how_long(clock: Clock) -> None:
    engine, run, runs = FakeBackend(), a_run(), Runs()
    runs.begin("me", run)
    run.prediction = engine.predict(run.model, run.prompt, run.options)
    run.prediction = replace(run.prediction, expected_s=5.0)
    making = EngineStatus("compiling", str(run.prediction.key))
    assert runs.occupation(making) is None, "it has not begun"
    assert runs.take("me", Run) is run
    texts = run.texts(engine, waited_s=0.0)
    next(texts)
    clock.now += 1.0
    occupation = runs.occupation(making)
    assert occupation.activity == "", "the engine itself says what it does"
    assert occupation.left_s == 4.0
    assert runs.occupation(EngineStatus("compiling", "another key")) is None
    assert runs.occupation(EngineStatus("generating", making.detail)) is None

    runs, run = Runs(), Measurement()
    runs.begin("me", run)
    assert runs.occupation(EngineStatus("ready")) is None
    runs.take("me", Measurement)
    occupation = runs.occupation(EngineStatus("ready"))
    assert (occupation.activity, occupation.left_s) == ("Measuring", None)
    run.ends_at = clock.now + 30.0
    occupation = runs.occupation(EngineStatus("generating"))
    assert occupation.left_s == 30.0
    runs.end("me")
    assert runs.occupation(EngineStatus("ready")) is None


class Measurement(MeasuringRun):
    activity = "Measuring"
