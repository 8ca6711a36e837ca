"""Tests of `supervisor`: who serves a request when engines end, with engines that a test leads."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import wait_until
from xla_backend import (
    BucketRules,
    CacheEntry,
    CacheKey,
    CacheOutcome,
    EngineStopped,
    GenerationOptions,
    NoRoom,
)
from xla_backend.interface.request_queue import RESERVATION, QueueLimits
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.results import FirstCall, Progress
from xla_backend.process import child, supervisor
from xla_backend.process.child import Call
from xla_backend.process.messages import EngineRequest, Settings, Snapshot
from xla_backend.process.supervisor import Supervisor
from xla_backend.process.watchdog import Patience

OPTIONS = GenerationOptions()


class LedProcess:
    """Stands in for `ChildProcess`; the test sends the engine's messages."""

    started: list[LedProcess]

    def __init__(self, *_: object) -> None:
        self.pid = 1000 + len(self.started)
        self.flag_error = ""
        self.last_lines: list[str] = []
        self.sent: list[tuple[str, Any]] = []
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_gone = False
        self.started.append(self)

    def requests(self) -> list[EngineRequest]:
        return [value for kind, value in self.sent if kind == "request"]

    def says(self, kind: str, number: int | None = None, value: Any = None) -> None:
        self._messages.put((kind, number, value))

    def dies(self) -> None:
        self._is_gone = True
        self._messages.put(None)

    # --- as `ChildProcess` ----------------------------------------------------------------------

    def send(self, kind: str, value: Any) -> None:
        self.sent.append((kind, value))
        if kind == "close":
            self.dies()

    def receive(self) -> tuple[str, int | None, Any]:
        if (message := self._messages.get()) is None:
            raise EOFError
        return message

    def has_ended(self) -> bool:
        return self._is_gone

    def kill(self) -> None:
        self.dies()

    def end(self, within_s: float = 0.0) -> None:
        pass

    def cause(self) -> str:
        return "it was killed"


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> list[LedProcess]:
    """The processes that were started."""
    LedProcess.started = []
    monkeypatch.setattr(child, "ChildProcess", LedProcess)
    return LedProcess.started


@pytest.fixture
def engines(led: list[LedProcess]) -> Iterator[Supervisor]:
    settings = Settings(None, BucketRules(), None, "off", OPTIONS, 0)  # type: ignore[arg-type]
    keeper = Supervisor(settings, None, None, Patience(), QueueLimits(waiting=5))
    yield keeper
    keeper.close(0)


def request(kind: Any = "generate") -> EngineRequest:
    payload = TextRequest("m", "fox", OPTIONS) if kind == "generate" else "Measuring"
    return EngineRequest(0, kind, payload)


def sent(process: LedProcess, count: int) -> list[EngineRequest]:
    """Its requests, as soon as there are so many."""
    wait_until(lambda: len(process.requests()) >= count)
    assert len(process.requests()) == count
    return process.requests()


def starts(process: LedProcess, number: int) -> None:
    process.says("progress", number, Progress("reading", time.perf_counter()))


def next_engine(led: list[LedProcess], count: int) -> LedProcess:
    """The newest process, as soon as there are so many; it is ready."""
    wait_until(lambda: len(led) == count)
    led[-1].says("ready")
    return led[-1]


@pytest.fixture
def first(engines: Supervisor, led: list[LedProcess]) -> LedProcess:
    """The first process, which has answered one request."""
    call = engines.submit(request())
    process = next_engine(led, 1)
    process.says("result", sent(process, 1)[0].number)
    call.wait()
    process.sent.clear()
    return process


def test_requests_wait_for_the_engine_s_start(engines: Supervisor, led: list[LedProcess]) -> None:
    calls = [engines.submit(request()) for _ in range(3)]
    assert led[0].requests() == []
    led[0].says("ready")
    for call, its in zip(calls, sent(led[0], 3), strict=True):
        assert its.arrival_time > call.arrived, "the first start does not count"
        led[0].says("result", its.number, its.number)
        assert call.wait() == its.number


def test_what_has_started_fails_with_its_engine_and_the_rest_goes_on_in_order(
    engines: Supervisor, led: list[LedProcess], first: LedProcess
) -> None:
    calls = [engines.submit(request()) for _ in range(4)]
    numbers = [its.number for its in sent(first, 4)]
    starts(first, numbers[0])
    first.says("result", numbers[3], "done")
    assert calls[3].wait() == "done"
    first.dies()
    with pytest.raises(EngineStopped, match="was killed"):
        calls[0].wait()
    second = next_engine(led, 2)
    waited = sent(second, 2)
    assert [its.arrival_time for its in waited] == [call.arrived for call in calls[1:3]]
    for its, call in zip(waited, calls[1:3], strict=True):
        second.says("result", its.number, "late")
        assert call.wait() == "late"
    assert engines.health().restarts == {"stopped": 1}
    assert engines.status.note == f"restarted {supervisor.STOPPED}"


def test_a_request_in_which_engines_die_is_given_up(
    engines: Supervisor, led: list[LedProcess]
) -> None:
    call = engines.submit(request())
    for count in range(1, child.MAX_RETURNS + 2):
        engine = next_engine(led, count)
        sent(engine, 1)
        engine.dies()
    with pytest.raises(EngineStopped):
        call.wait()


def test_an_engine_that_cannot_start_is_told_to_all_and_tried_again(
    engines: Supervisor, led: list[LedProcess]
) -> None:
    calls = [engines.submit(request()) for _ in range(2)]
    led[0].says("failed", None, "no TensorFlow")
    led[0].dies()
    for call in calls:
        with pytest.raises(EngineStopped, match="no TensorFlow"):
            call.wait()
    again = engines.submit(request())
    second = next_engine(led, 2)
    [its] = sent(second, 1)
    second.says("result", its.number, "works")
    assert again.wait() == "works"


def test_a_process_that_cannot_be_started_is_told_to_all_and_tried_again(
    engines: Supervisor,
    led: list[LedProcess],
    first: LedProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = [engines.submit(request()) for _ in range(2)]
    sent(first, 2)

    def refuse(*_: object) -> None:
        raise EngineStopped("no processes left")

    with monkeypatch.context() as patch:
        patch.setattr(child, "ChildProcess", refuse)
        first.dies()
        for call in calls:
            with pytest.raises(EngineStopped):
                call.wait()
        with pytest.raises(EngineStopped, match="no processes left"):
            engines.submit(request())
    again = engines.submit(request())
    second = next_engine(led, 2)
    second.says("result", sent(second, 1)[0].number, "works")
    assert again.wait() == "works"


def test_a_full_engine_ends_what_runs_and_the_rest_goes_to_the_next(
    engines: Supervisor, led: list[LedProcess], first: LedProcess
) -> None:
    running, waiting = engines.submit(request()), engines.submit(request())
    numbers = [its.number for its in sent(first, 2)]
    starts(first, numbers[0])
    first.says("hard_limit", None, 1)
    wait_until(lambda: engines.status.detail == supervisor.TO_FREE_MEMORY)
    later = engines.submit(request())
    first.says("returned", numbers[1])
    assert len(led) == 1, "one still runs"
    first.says("result", numbers[0], "whole")
    assert running.wait() == "whole"
    second = next_engine(led, 2)
    for call, its in zip((waiting, later), sent(second, 2), strict=True):
        second.says("result", its.number, its.arrival_time)
        assert call.wait() == call.arrived
    assert first.sent[-1] == ("close", None)
    assert engines.health().restarts == {"memory": 1}


def test_a_stop_reaches_a_request_that_was_returned(
    engines: Supervisor, led: list[LedProcess], first: LedProcess
) -> None:
    calls = [engines.submit(request()) for _ in range(2)]
    starts(first, sent(first, 2)[0].number)
    first.says("hard_limit", None, 1)
    calls[1].stop()
    first.says("returned", first.requests()[1].number)
    assert calls[1].wait() is None


def test_a_large_engine_is_replaced_when_nobody_needs_it(
    engines: Supervisor, led: list[LedProcess], first: LedProcess
) -> None:
    call = engines.submit(request())
    [its] = sent(first, 1)
    for _ in range(2):
        engines.child_is_large(engines.engine)
    assert len(led) == 1, "it works"
    first.says("result", its.number, "done")
    assert call.wait() == "done"
    engines.child_is_large(engines.engine)
    assert len(led) == 1, "it has just worked"
    engines.child_is_large(engines.engine)
    assert len(led) == 2
    assert engines.health().restarts == {"memory": 1}


def test_a_reservation_and_its_requests_go_to_the_next_engine(
    engines: Supervisor, led: list[LedProcess], first: LedProcess
) -> None:
    reservation = engines.submit(request("reserve"))
    [its] = sent(first, 1)
    starts(first, its.number)
    other = engines.submit(request())
    token = RESERVATION.set(reservation.entry)
    within: Call = engines.submit(request())
    RESERVATION.reset(token)
    first.says("hard_limit", None, 1)
    first.says("returned", sent(first, 2)[1].number)
    second = next_engine(led, 2)
    reserved, text = sent(second, 2)
    assert (reserved.kind, text.kind) == ("reserve", "generate")
    second.says("result", text.number, "measured")
    assert within.wait() == "measured"
    second.says("result", reserved.number)
    assert reservation.wait() is None
    second.says("result", sent(second, 3)[2].number, "at last")
    assert other.wait() == "at last"


def test_keys_that_were_requested_are_compiled_by_the_next_engine(
    engines: Supervisor, led: list[LedProcess], first: LedProcess
) -> None:
    keys = [CacheKey(16, 1, 8), CacheKey(32, 1, 8)]
    engines.prefetch("m", keys)
    made = CacheEntry("m", keys[0], FirstCall(CacheOutcome.MISS, 0.1, 0.1, 0.1), 0, None)
    first.says("snapshot", None, Snapshot((made,)))
    first.dies()
    second = next_engine(led, 2)
    wait_until(lambda: ("warm", ("m", keys[1:])) in second.sent)
    engines.cancel_prefetch()
    second.dies()
    call = engines.submit(request())
    third = next_engine(led, 3)
    third.says("result", sent(third, 1)[0].number)
    call.wait()
    assert "warm" not in dict(third.sent)


def test_what_waits_learns_that_all_was_closed(engines: Supervisor, led: list[LedProcess]) -> None:
    calls = [engines.submit(request()) for _ in range(5)]
    with pytest.raises(NoRoom):
        engines.submit(request())
    engines.close()
    for call in calls:
        with pytest.raises(EngineStopped, match="closed"):
            call.wait()
    with pytest.raises(EngineStopped, match="closed"):
        engines.submit(request())
