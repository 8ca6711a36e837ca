"""Tests of `xla_backend.process.watchdog`; `test_faults` stops a real engine."""

from __future__ import annotations

import threading
import time
from typing import get_args, get_type_hints

import pytest

from xla_backend import EngineStatus, GenerationOptions
from xla_backend.process import watchdog
from xla_backend.process.watchdog import Patience, Watchdog, describe_hang

STATES = [s for s in get_args(get_type_hints(EngineStatus)["state"]) if s != "stopped"]


@pytest.mark.parametrize("state", STATES)
def test_every_phase_has_a_limit_and_words(state: str) -> None:
    assert Patience().allowed_s(EngineStatus(state), None, is_warming=False) >= 60
    sentence = describe_hang(state, 123.4)
    assert "123 s" in sentence


def test_longer_texts_and_more_beams_may_take_longer() -> None:
    status = EngineStatus("generating")
    short, long, beams = (
        Patience().allowed_s(status, options, is_warming=False)
        for options in (
            GenerationOptions(max_new_tokens=1),
            GenerationOptions(max_new_tokens=100),
            GenerationOptions(max_new_tokens=100, num_beams=4),
        )
    )
    assert short < long < beams


def test_a_request_may_wait_for_what_is_made_in_the_background() -> None:
    patience = Patience()
    waiting = patience.allowed_s(EngineStatus("ready"), None, is_warming=True)
    assert waiting > patience.tracing_s + patience.compiling_s


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "TICK_S", 0.01)


def watch(dog: Watchdog) -> threading.Thread:
    thread = threading.Thread(target=dog.watch, daemon=True)
    thread.start()
    return thread


def test_silence_that_lasts_too_long_is_told_once(ticks: None) -> None:
    reported: list[float] = []
    thread = watch(Watchdog(lambda: 0.1, reported.append))
    thread.join(10)
    assert not thread.is_alive()
    (silent_s,) = reported
    assert silent_s > 0.1


def test_signs_of_life_keep_it_quiet(ticks: None) -> None:
    reported: list[float] = []
    dog = Watchdog(lambda: 0.3, reported.append)
    thread = watch(dog)
    for _ in range(50):
        dog.sign_of_life()
        time.sleep(0.01)
    dog.end()
    thread.join(10)
    assert reported == []


def test_nothing_is_counted_while_nothing_is_waited_for(ticks: None) -> None:
    allowed: list[float | None] = [None]
    reported: list[float] = []
    dog = Watchdog(lambda: allowed[0], reported.append)
    thread = watch(dog)
    time.sleep(0.3)
    assert reported == []
    allowed[0] = 0.1
    thread.join(10)
    assert reported[0] < 0.3, "the time before did not count"


def test_a_process_that_slept_itself_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock leaps an hour at each tick, as after a suspended machine; only ticks count.
    leaps = iter(range(0, 36_000_000, 3600))
    monkeypatch.setattr(watchdog, "TICK_S", 0.01)
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: float(next(leaps)))
    reported: list[float] = []
    dog = Watchdog(lambda: 0.1, reported.append)
    watch(dog).join(10)
    assert reported[0] == pytest.approx(0.12, abs=0.03)
