"""Who may run, who stops what, and which waiting counts as waiting."""

import asyncio
import threading
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from playground.context.measuring import MeasuringRun
from playground.context.runs import Ending, TextRun, VisitorRuns, reporting_errors
from playground.tabs.generate.report import report
from tests.playground.carrying_out import steps
from tests.playground.clock import Clock
from tests.playground.fake_backend import FakeBackend
from xla_backend import EngineStatus, GenerationOptions, InvalidRequest, SharedBackend


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, "playground.context.runs", "playground.context.measuring")


def a_run() -> TextRun:
    return TextRun("gpt2-stories", "Once", GenerationOptions())


def test_a_run_yields_the_text_so_far_and_ends_with_a_result() -> None:
    run = a_run()
    texts = steps(run, FakeBackend([" upon", " a", " time"]))
    assert "" in texts, "a new state"
    assert " upon" in texts, "the first text comes without a wait"
    shown = run.shown()
    assert (shown.prompt, shown.other_s) == ("Once", 0.0)
    assert shown.result.timing.queue_s == 0.0


@pytest.mark.parametrize(
    ("state", "is_start"),
    [("starting", True), ("loading", True), ("ready", False), ("compiling", False)],
)
def test_waiting_for_the_engine_s_start_is_told_beside_the_total(
    state: Any, is_start: bool, clock: Clock
) -> None:
    engine, run = FakeBackend(), a_run()
    engine.status = EngineStatus(state)
    clock.now += 7
    steps(run, engine)
    shown = run.shown()
    expected = 7 - shown.result.timing.total_s if is_start else 0.0
    assert shown.other_s == pytest.approx(expected)


def test_a_stop_keeps_what_was_written_and_what_waited_never_runs() -> None:
    engine, run = FakeBackend([" a"] * 1000), a_run()
    engine.hold("text")
    engine.write(" a")

    async def stop() -> list[str]:
        texts = []
        async for text in run.steps(engine):
            texts.append(text)
            if text:
                run.stop()
        return texts

    assert asyncio.run(stop())[-1] == " a"
    shown = run.shown()
    assert (shown.result.text, shown.result.finish) == (" a", "stopped")

    engine, run = FakeBackend(), a_run()
    run.stop()
    assert steps(run, engine) == []
    assert run.shown() is None
    assert engine.asked == []


def test_a_run_that_waits_for_another_knows_how_many_are_ahead_and_can_be_withdrawn() -> None:
    engine, run = FakeBackend(), a_run()
    measuring = engine.reserve("Measuring", lambda: 30.0)

    async def wait() -> None:
        carried_out = asyncio.ensure_future(anext(run.steps(engine), None))
        while run.request_progress is None:
            await asyncio.sleep(0)
        progress = run.request_progress
        assert (progress.ahead, progress.waits_for, progress.wait_s) == (1, "Measuring", 30.0)
        run.stop()
        assert await carried_out is None

    asyncio.run(wait())
    assert (run.ahead, run.taken_at, run.shown()) == (1, None, None)
    assert (engine.queue.running, engine.queue.waiting) == (1, 0)
    measuring.stop()


@pytest.mark.parametrize("ahead", [0, 1])
def test_waiting_for_the_background_is_not_waiting_for_others(ahead: int) -> None:
    engine, run = FakeBackend(), a_run()
    run.prediction = engine.predict(run.model, run.prompt, run.options)
    engine.make_ready(run.model, run.prediction.key)
    engine.hold("turn")

    def go_on() -> None:
        engine.reached("turn")
        engine.clock.advance(2.0)
        engine.release()

    threading.Thread(target=go_on).start()
    steps(run, engine)
    run.ahead = ahead
    shown = run.shown()
    assert shown is not None
    said = "this shape was being compiled in the background" in report(shown)
    assert said is not bool(ahead)


def test_a_start_of_the_engine_is_named_apart(clock: Clock) -> None:
    engine, run = FakeBackend(), a_run()
    engine.status = EngineStatus("starting")
    clock.now += 60.0
    steps(run, engine)
    shown = run.shown()
    assert shown.other_s == 60.0 - shown.result.timing.total_s


def test_loading_the_model_is_part_of_the_time_from_end_to_end() -> None:
    engine, run = FakeBackend(), a_run()
    engine.hold("load")
    ended = threading.Thread(target=steps, args=(run, engine))
    ended.start()
    engine.reached("load")
    engine.clock.advance(12.3)
    engine.release()
    ended.join()
    answer, told = run.result, engine.streams[0].result
    assert answer.timing.total_s == pytest.approx(told.timing.total_s + 12.3)


def test_a_visitor_has_one_run_at_a_time_and_one_event_carries_it_out() -> None:
    runs = VisitorRuns()
    runs.begin("one", a_run())
    with pytest.raises(InvalidRequest, match="has not ended yet"):
        runs.begin("one", a_run())
    runs.begin("two", a_run())
    runs.leave("one")
    runs.begin("one", a_run())

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
    steps(run, engine)
    clock.now += 1.0
    occupation = runs.occupation(making)
    assert occupation.activity == "", "the engine itself says what it does"
    assert occupation.left_s == 4.0
    assert runs.occupation(EngineStatus("compiling", "another key")) is None
    assert runs.occupation(EngineStatus("generating", making.detail)) is None


def test_a_measurement_waits_for_others_and_keeps_them_from_running(clock: Clock) -> None:
    engine, run, runs = FakeBackend(), Measurement(), VisitorRuns()
    runs.begin("me", run)
    assert runs.occupation(EngineStatus("ready")) is None
    engine.hold("text")
    before = engine.stream("gpt2-stories", "Once")

    async def carry_out() -> None:
        progress = run.steps(engine)
        first = asyncio.ensure_future(anext(progress))
        while run.request_progress is None:
            await asyncio.sleep(0)
        assert (run.ahead, run.taken_at) == (1, None)
        after = engine.stream("gpt2-stories", "Twice")
        assert after.progress.waits_for == "Measuring"
        before.stop()
        assert await first == "began"
        occupation = runs.occupation(EngineStatus("ready"))
        assert (occupation.activity, occupation.left_s) == ("Measuring", None)
        run.ends_at = clock.now + 30.0
        assert runs.occupation(EngineStatus("generating")).left_s == 30.0
        assert after.progress.wait_s == 30.0
        assert [step async for step in progress] == ["ended"]
        engine.release()
        assert (await after.whole()).text == " there was a"

    asyncio.run(carry_out())
    runs.leave("me")
    assert runs.occupation(EngineStatus("ready")) is None


def test_a_measurement_that_is_stopped_before_its_turn_measures_nothing() -> None:
    engine, run = FakeBackend(), Measurement()
    engine.hold("text")
    before = engine.stream("gpt2-stories", "Once")
    threading.Thread(target=run.stop).start()
    assert steps(run, engine) == []
    assert engine.queue.waiting == 0
    before.stop()


class Measurement(MeasuringRun):
    activity = "Measuring"

    def measure(self, backend: SharedBackend) -> Generator[object, None, None]:
        yield "began"
        yield "ended"
