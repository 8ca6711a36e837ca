"""Tests of `xla_backend.turns`: who has the engine, who comes next, and who need not wait on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.xla_backend.test_process import wait_until
from xla_backend import turns as turns_module
from xla_backend.turns import Place, Turns


class PretendedRun:
    """Goes on until told otherwise."""

    goes_on = True


def test_who_waits_comes_in_the_order_of_arrival() -> None:
    turns, order = Turns(), []
    places = [Place(turns) for _ in range(8)]

    def take(place: Place) -> None:
        with turns.hold(place) as is_held:
            assert is_held
            order.append(place.number)

    with ThreadPoolExecutor(8) as threads, turns.hold():
        for place in reversed(places):
            threads.submit(take, place)
        wait_until(lambda: len(turns.waiting()) == 8)
        assert turns.waiting() == places
    assert order == [place.number for place in places]


def test_one_at_a_time() -> None:
    turns, inside = Turns(), []

    def take(_: int) -> int:
        with turns.hold():
            inside.append(1)
            time.sleep(0.001)
            count = len(inside)
            inside.pop()
        return count

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(take, range(40))) == {1}


def test_who_need_not_wait_goes_without_the_engine() -> None:
    turns, enough = Turns(), threading.Event()

    def wait() -> bool:
        with turns.hold(Place(turns), unless=enough.is_set) as is_held:
            return is_held

    with ThreadPoolExecutor(1) as threads, turns.hold():
        waiting = threads.submit(wait)
        wait_until(turns.waiting)
        enough.set()
        turns.wake()
        assert waiting.result(10) is False
    with turns.hold(unless=enough.is_set) as is_held:
        assert is_held, "nobody has it: there is nothing to wait for"


def test_a_run_keeps_the_engine_for_a_moment_between_its_turns(monkeypatch) -> None:
    monkeypatch.setattr(turns_module, "PATIENCE_S", 30.0)
    turns, order = Turns(), []
    first, second = Place(turns), Place(turns)
    first.run = PretendedRun()

    def other() -> None:
        with turns.hold(second):
            order.append("other")

    with ThreadPoolExecutor(1) as threads:
        for turn in range(3):
            with turns.hold(first):
                order.append(f"run {turn}")
                if turn == 0:
                    threads.submit(other)
                    wait_until(turns.waiting)
        first.run.goes_on = False
        turns.wake()
    assert order == ["run 0", "run 1", "run 2", "other"]


def test_a_run_that_nobody_reads_on_keeps_nobody_waiting() -> None:
    turns, run = Turns(), Place(Turns())
    run.run = PretendedRun()
    with turns.hold(run):
        pass
    start = time.perf_counter()
    with turns.hold():
        assert time.perf_counter() - start < 5
