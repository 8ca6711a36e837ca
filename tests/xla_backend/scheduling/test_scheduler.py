"""Tests of `scheduler`: who has the engine, who comes next, and who need not wait on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.waiting import wait_until
from xla_backend.engine import scheduler as turns_module
from xla_backend.scheduling.scheduler import Scheduler, Ticket


class PretendedRun:
    """Goes on until told otherwise."""

    goes_on = True


def test_turns_are_given_in_the_order_of_arrival() -> None:
    scheduler, order = Scheduler(), []
    tickets = [Ticket(scheduler) for _ in range(8)]

    def take(ticket: Ticket) -> None:
        with scheduler.acquire(ticket) as is_held:
            assert is_held
            order.append(ticket.number)

    with ThreadPoolExecutor(8) as threads, scheduler.acquire():
        for ticket in reversed(tickets):
            threads.submit(take, ticket)
        wait_until(lambda: len(scheduler.waiting()) == 8)
        assert scheduler.waiting() == tickets
    assert order == [ticket.number for ticket in tickets]


def test_only_one_thread_holds_the_engine() -> None:
    scheduler, inside = Scheduler(), []

    def take(_: int) -> int:
        with scheduler.acquire():
            inside.append(1)
            time.sleep(0.001)
            count = len(inside)
            inside.pop()
        return count

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(take, range(40))) == {1}


def test_a_request_that_need_not_wait_goes_without_the_engine() -> None:
    scheduler, enough = Scheduler(), threading.Event()

    def wait() -> bool:
        with scheduler.acquire(Ticket(scheduler), unless=enough.is_set) as is_held:
            return is_held

    with ThreadPoolExecutor(1) as threads, scheduler.acquire():
        waiting = threads.submit(wait)
        wait_until(scheduler.waiting)
        enough.set()
        scheduler.wake()
        assert waiting.result(10) is False
    with scheduler.acquire(unless=enough.is_set) as is_held:
        assert is_held, "nobody has it: there is nothing to wait for"


def test_a_run_keeps_the_engine_for_a_moment_between_its_turns(monkeypatch) -> None:
    monkeypatch.setattr(turns_module, "PATIENCE_S", 30.0)
    scheduler, order = Scheduler(), []
    first, second = Ticket(scheduler), Ticket(scheduler)
    first.run = PretendedRun()

    def other() -> None:
        with scheduler.acquire(second):
            order.append("other")

    with ThreadPoolExecutor(1) as threads:
        for turn in range(3):
            with scheduler.acquire(first):
                order.append(f"run {turn}")
                if turn == 0:
                    threads.submit(other)
                    wait_until(scheduler.waiting)
        first.run.goes_on = False
        scheduler.wake()
    assert order == ["run 0", "run 1", "run 2", "other"]


def test_a_run_that_nobody_reads_on_keeps_nobody_waiting() -> None:
    scheduler, run = Scheduler(), Ticket(Scheduler())
    run.run = PretendedRun()
    with scheduler.acquire(run):
        pass
    start = time.perf_counter()
    with scheduler.acquire():
        assert time.perf_counter() - start < 5
