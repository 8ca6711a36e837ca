"""The stream of requests: right from its first message, and nobody reads what others wrote."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from playground.tabs.requests import route
from playground.tabs.requests.route import Viewer, updates
from tests.playground.api_page import ApiPage, api_page
from tests.playground.fake_backend import FakeBackend
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS
from tests.waiting import wait_until
from xla_backend import EngineStopped
from xla_backend.interface.request_queue import SOURCE, RequestQueue, Source

MODEL = "gpt2-stories"
MINE, OTHERS = Source("page", session="mine"), Source("page", session="another's")
PROGRAM = Source("/v1/completions", address="10.1.1.1")
SECRET = "pear-4711"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages come without a pause, and no empty ones."""
    monkeypatch.setattr(route, "BETWEEN_S", 0.0)
    monkeypatch.setattr(route, "BEAT_S", 600.0)


@pytest.fixture
def engine() -> FakeBackend:
    return FakeBackend()


def sent(engine: FakeBackend, source: Source, prompt: str = SECRET) -> Any:
    """A request from somewhere."""
    SOURCE.set(source)
    return engine.stream(MODEL, prompt)


def watched(
    engine: FakeBackend, viewer: Viewer, *changes: Callable[[], object]
) -> list[dict[str, Any]]:
    """What a stream says: at first, and after each change."""

    async def listen() -> list[dict[str, Any]]:
        messages = []
        async with aclosing(updates(engine, viewer)) as stream:
            messages.append(await message(stream))
            for change in changes:
                change()
                messages.append(await message(stream))
        return messages

    return asyncio.run(listen())


async def message(stream: AsyncIterator[str]) -> dict[str, Any]:
    return json.loads((await anext(stream)).removeprefix("data: "))


@pytest.mark.parametrize(
    ("source", "viewer", "seen"),
    [
        (MINE, Viewer("mine", "", False), "own"),
        (MINE, Viewer("another's", "", True), "row"),
        (MINE, Viewer("another's", "", False), ""),
        (PROGRAM, Viewer("mine", "10.1.1.1", True), "own"),
        # An address, and so its salt, may be shared by many who do not know each other.
        (PROGRAM, Viewer("mine", "10.1.1.1", False), "row"),
        (PROGRAM, Viewer("mine", "10.2.2.2", False), ""),
        (PROGRAM, Viewer("10.1.1.1", "", False), ""),
        (PROGRAM, Viewer("mine", "", False), ""),
        (Source(), Viewer("", "", False), ""),
        (Source(), Viewer("", "", True), "row"),
    ],
)
def test_others_have_no_text_and_on_public_pages_no_row(
    engine: FakeBackend, source: Source, viewer: Viewer, seen: str
) -> None:
    engine.hold("prefill")
    engine.errors["wrong"] = EngineStopped(f"{SECRET} is wrong.")
    stream = sent(engine, source)
    failed = sent(engine, source, "wrong")
    wait_until(lambda: failed.record.ended)
    [all_rows] = watched(engine, viewer)
    assert len(all_rows["rows"]) == (2 if seen else 0)
    html = " ".join(html for _, html, _ in all_rows["rows"])
    assert (SECRET in html, "data-stop" in html) == (seen == "own", seen == "own")
    assert ("EngineStopped" in html) == (seen == "row")
    stream.stop()


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded"])
@pytest.mark.parametrize("behind_proxy", [False, True])
def test_the_address_of_an_unknown_proxy_is_nobody_s(header: str, behind_proxy: bool) -> None:
    headers = [(header.encode(), b"10.1.1.1")]
    scope = {"type": "http", "headers": headers, "query_string": b"", "client": ("10.9.9.9", 1)}
    found = Viewer.of(Request(scope), True, behind_proxy).address
    expected = {"x-forwarded-for": "10.1.1.1", "forwarded": "10.9.9.9"}[header]
    assert found == (expected if behind_proxy else "")


def test_a_stream_says_all_and_then_what_has_changed(engine: FakeBackend) -> None:
    engine.queue = RequestQueue(at_once=1)
    engine.hold("prefill")
    sent(engine, MINE)
    engine.reached("prefill")
    waiting = sent(engine, MINE)
    viewer = Viewer("mine", "", False)

    def change() -> None:
        sent(engine, OTHERS)  # of which this one hears nothing
        waiting.stop()

    first, second = watched(engine, viewer, change)
    assert [number for number, *_ in first["rows"]] == [2, 1]
    assert "1 before it" in words(first["rows"][0][1])
    assert (first["all"], second["all"], second["gone"]) == (True, False, [])
    [(number, html, spans)] = second["rows"]
    assert (number, "stopped" in html, spans[-1][0]) == (2, True, "queue")
    assert spans[-1][2] is not None, "its time has ended"
    engine.release()


@pytest.mark.parametrize(("viewer", "text"), [("mine", " a b"), ("another's", "")])
def test_of_a_text_that_grows_only_that_is_sent(
    engine: FakeBackend, viewer: str, text: str
) -> None:
    engine.hold("text")
    stream = sent(engine, MINE)
    engine.write(" a")
    wait_until(lambda: stream.record.new_tokens == 1)

    def grow() -> None:
        engine.write(" b")
        wait_until(lambda: stream.record.text == " a b")

    _, news = watched(engine, Viewer(viewer, "", True), grow)
    assert (news["rows"], news["texts"]) == ([], [[1, "2", text]])
    stream.stop()


def test_a_page_that_was_asleep_is_right_at_once(engine: FakeBackend) -> None:
    viewer = Viewer("mine", "", False)
    engine.hold("prefill")
    sent(engine, MINE)
    engine.reached("prefill")
    [before] = watched(engine, viewer)
    engine.release()
    wait_until(lambda: engine.streams[0].record.ended)
    for _ in range(250):
        sent(engine, OTHERS).read_all()
    sent(engine, MINE).read_all()
    [after] = watched(engine, viewer)
    assert before["all"] and after["all"]
    assert ["reading" in before["rows"][0][1], *(n for n, *_ in after["rows"])] == [True, 252]
    assert "done" in words(after["rows"][0][1])


def test_an_engine_that_dies_in_the_middle_ends_what_ran_and_keeps_what_waits(
    engine: FakeBackend,
) -> None:
    engine.queue = RequestQueue(at_once=1)
    engine.hold("prefill")
    sent(engine, MINE)
    engine.reached("prefill")
    running = engine.streams[0]

    def die() -> None:
        running.error = EngineStopped("The engine stopped.")
        engine.tell()
        wait_until(lambda: running.record.ended)

    waiting = sent(engine, MINE)
    _, after = watched(engine, Viewer("mine", "", False), die)
    rows = {number: words(html) for number, html, _ in after["rows"]}
    assert "failed The engine stopped." in rows[1]
    engine.release()
    assert waiting.read_all().finish == "length"
    assert engine.requests.newest()[0].state == "done"


def test_the_end_of_the_server_ends_the_stream(engine: FakeBackend) -> None:
    async def until_its_end() -> int:
        stream = updates(engine, Viewer("mine", "", True))
        await anext(stream)
        engine.close()
        return len([each async for each in stream])

    assert asyncio.run(until_its_end()) == 0


def test_texts_of_visitors_are_text(engine: FakeBackend) -> None:
    for prompt in INJECTIONS:
        sent(engine, MINE, prompt).read_all()
    [message] = watched(engine, Viewer("mine", "", False))
    assert len(message["rows"]) == len(INJECTIONS)
    assert all(is_text(html) for _, html, _ in message["rows"])


@pytest.fixture(scope="module")
def served() -> Any:
    with api_page(admin=True) as page:
        yield page


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "messages"])
def test_every_protocol_is_named_and_traced(served: ApiPage, path: str) -> None:
    prompt = {"completions": {"prompt": SECRET}, "responses": {"input": SECRET}}
    messages = {"messages": [{"role": "user", "content": SECRET}]}
    body = {"model": MODEL, "max_tokens": 16, **prompt.get(path, messages)}
    if path == "responses":
        body["max_output_tokens"] = body.pop("max_tokens")
    assert httpx.post(f"{served.api}/{path}", json=body).status_code == 200
    newest = served.backend.requests.newest()[0]
    assert newest.entry.source == Source(f"/v1/{path}", address="127.0.0.1")
    answer = httpx.get(f"{served.url}/requests/trace")
    assert SECRET not in answer.text
    facts = [each["args"] for each in answer.json()["traceEvents"] if each["name"] == "request"]
    assert facts[-1]["protocol"] == f"/v1/{path}"


def test_only_one_s_own_request_can_be_stopped(served: ApiPage) -> None:
    served.backend.hold("prefill")
    stream = sent(served.backend, OTHERS)
    served.backend.reached("prefill")
    number = stream.record.number
    for session, status in (("mine", 404), (OTHERS.session, 204), (OTHERS.session, 204)):
        address = f"{served.url}/requests/stop?session={session}&number={number}"
        assert httpx.post(address).status_code == status
        assert stream.is_stopped == (status == 204)
    assert httpx.get(address).status_code == 405
    served.settle()
