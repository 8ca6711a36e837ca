"""The record of requests: true of each, bounded for a million, and right if a clock jumps."""

import threading
import tracemalloc
from types import SimpleNamespace

import pytest

from tests.playground.samples import result
from xla_backend import EngineStopped, Message
from xla_backend.interface import request_record
from xla_backend.interface.request_queue import Entry, RequestQueue
from xla_backend.interface.request_record import NEWEST, RequestRecord, RequestRecords
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.results import PrefixMiss, Progress, TextChunk
from xla_backend.interface.timing import PHASES, Span

LARGE = 3000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(request_record, "time", clock)
    return clock


def opened(records: RequestRecords, prompt: object = "Once", stop: object = None) -> RequestRecord:
    entry = Entry(RequestQueue(), lambda: None)
    request = TextRequest("gpt2-stories", prompt)  # type: ignore[arg-type]
    return records.open(entry, "generate", "gpt2-stories", request, stop or (lambda: None))


def chunk(text: str, generated: int) -> TextChunk:
    made = TextChunk(text)
    made.generated = generated
    return made


def test_a_request_goes_through_its_states_and_keeps_what_came_of_it(
    clock: SimpleNamespace,
) -> None:
    records, stops = RequestRecords(), list[str]()
    told = (Message("system", "Be brief."), Message("user", "Why?"))
    record = opened(records, told, lambda: stops.append("stop"))
    assert (record.state, record.prompt) == ("queued", "Why?")
    record.report(Progress("reading", 1001.0))
    record.report(Progress("writing", 1003.0))
    record.add(chunk("Because", 2))
    clock.now = 1004.0
    spans = [("queue", 1000.0, 1.0), ("prefill", 1001.0, 2.0), ("decode", 1003.0, 1.0)]
    assert [each[:3] for each in record.spans()] == spans
    assert (record.text, record.new_tokens) == ("Because", 2)
    record.stop()
    exact = (Span("queue", 1000.0, 0.5), Span("prefill", 1000.5, 3.5))
    miss = PrefixMiss("evicted", 3, 9, 0.5)
    record.end(result(spans=exact, text="Because.", finish="stopped", prefix_miss=miss))
    record.stop()
    record.end(EngineStopped("It died afterwards."))
    assert (record.state, record.text, record.spans()) == ("stopped", "Because.", exact)
    assert (record.new_tokens, record.ttft_s, record.prefix_miss) == (3, result().ttft_s, miss)
    assert stops == ["stop"], "one that has ended takes no notice"


@pytest.mark.parametrize(
    ("value", "state"),
    [(None, "stopped"), (EngineStopped("It died."), "failed"), ("model", "done")],
)
def test_every_end_has_a_state_and_keeps_the_phases_until_then(
    clock: SimpleNamespace, value: object, state: str
) -> None:
    record = opened(RequestRecords())
    record.report(Progress("compiling", 1002.0))
    clock.now = 1005.0
    record.end(value)
    clock.now = 2000.0
    assert record.state == state
    assert [each[:3] for each in record.spans()] == [
        ("queue", 1000.0, 2.0),
        ("compile", 1002.0, 3.0),
    ]


def test_nothing_lasts_less_than_no_time_where_the_clock_jumps_back(clock: SimpleNamespace) -> None:
    record = opened(RequestRecords())
    record.report(Progress("reading", 900.0))
    clock.now = 800.0
    assert [each.duration_s for each in record.spans()] == [0.0, 0.0]
    record.end(None)
    assert [each.duration_s for each in record.spans()] == [0.0, 0.0]


def test_a_million_requests_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of what is kept stays within that part of 50 MB, and more adds nothing to it."""
    newest = NEWEST // 20
    monkeypatch.setattr(request_record, "NEWEST", newest)
    names = [PHASES[number % 2] for number in range(LARGE)]
    spans = tuple(Span(name, float(at), 1.0) for at, name in enumerate(names))
    whole = result(spans=spans, tokens=result().tokens * LARGE, text="many words " * LARGE)
    records, held = RequestRecords(), list[int]()
    tracemalloc.start()
    try:
        for _ in range(2):
            for _ in range(2 * newest):
                record = opened(records, "many words " * LARGE)
                record.add(chunk("many words " * LARGE, LARGE))
                record.end(whole)
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(held) < 50e6 / 20
    assert held[1] < 1.1 * held[0]
    numbers = [each.number for each in records.newest()]
    assert numbers == list(range(4 * newest, 3 * newest, -1))
    ends = [each.spans()[-1] for each in records.newest()]
    assert {each.started + each.duration_s for each in ends} == {float(LARGE)}


def test_those_that_run_stay_listed_however_many_have_ended() -> None:
    records = RequestRecords()
    first = opened(records)
    for _ in range(3 * NEWEST):
        opened(records).end(None)
    assert len(records.newest()) == NEWEST + 1
    assert records.newest()[-1] is first


def test_watchers_are_woken_by_every_change_of_any_thread_until_they_leave() -> None:
    records, woken = RequestRecords(), threading.Event()
    with records.watched(woken.set):
        for change in (
            lambda: opened(records),
            lambda: records.newest()[0].report(Progress("reading", 1.0)),
            lambda: records.newest()[0].add(TextChunk("a")),
            lambda: records.newest()[0].end(None),
            records.close,
        ):
            woken.clear()
            thread = threading.Thread(target=change)
            thread.start()
            thread.join()
            assert woken.is_set()
    woken.clear()
    opened(records)
    assert not woken.is_set()
    assert records.is_closed
