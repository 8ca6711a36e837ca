"""The waiting line: bounded, true about positions, and without a memory of what is over."""

import asyncio
import inspect
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import gradio as gr
import httpx
import pytest
from gradio import state_holder
from gradio.queueing import EventQueue, Queue
from gradio.state_holder import SessionState
from gradio_client import Client
from gradio_client.exceptions import AppError

from playground.context import waiting_line
from playground.context.limits import Limits, NoRoom
from playground.context.waiting_line import ALONE, WaitingLine
from tests.waiting import wait_until

ENGINE = "engine"


@dataclass
class Shop:
    """An app whose engine is a door that the test opens.

    Attributes:
        door: opens for everybody who says something, one at a time.
        humming: lets so many through who hum, which three may do at once.
        served: what was asked, in the order of being served.
    """

    line: WaitingLine
    url: str
    door: threading.Event = field(default_factory=threading.Event)
    humming: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    served: list[str] = field(default_factory=list)

    def ask(self, text: str, how: str = "say", **headers: str) -> str:
        """Joins the line as a program does; returns the event's number."""
        answer = httpx.post(
            f"{self.url}/gradio_api/call/{how}", json={"data": [text]}, headers=headers
        )
        return answer.json()["event_id"]

    def answer(self, event: str, how: str = "say") -> str:
        """What came of it."""
        return httpx.get(f"{self.url}/gradio_api/call/{how}/{event}").text

    def heard(self, event: str) -> float:
        """Waits for a hum; returns how many seconds it had to wait for others, as it was told."""
        return float(re.search(r"\[(.*)\]", self.answer(event, "hum")).group(1))

    def wait_for(self, waiting: int, running: int = 1) -> None:
        """Waits until so many are in the line."""
        wait_until(lambda: (self.line.waiting, self.line.running) == (waiting, running))

    @property
    def of_page(self) -> str:
        """The address of a page's stream."""
        return f"{self.url}/gradio_api/queue/data?session_hash=page"

    def send_from_page(self, client: Any) -> None:
        """Joins the line as the page does."""
        index = next(i for i, fn in self.line.blocks.fns.items() if fn.api_name == "mutter")
        event = {"fn_index": index, "session_hash": "page", "data": ["a"]}
        client.post(f"{self.url}/gradio_api/queue/join", json=event).raise_for_status()


def messages(stream: httpx.Response) -> Iterator[str]:
    """What a page's stream brings, as it comes."""
    for line in stream.iter_lines():
        yield from re.findall(r'"msg": ?"(\w+)"', line)


@pytest.fixture
def shop() -> Iterator[Shop]:
    opened: list[Shop] = []

    def say(text: str) -> str:
        shop = opened[0]
        shop.door.wait()
        shop.served.append(text)
        return text.upper()

    def hum(text: str) -> float:
        shop = opened[0]
        shop.humming.acquire()
        shop.served.append(text)
        return shop.line.waited_s()

    with gr.Blocks(analytics_enabled=False) as app:
        limits = Limits(waiting=4, waiting_each=3)
        line = WaitingLine.of(app, ENGINE, limits, behind_proxy=True)
        gr.api(say, api_name="say", concurrency_id=ENGINE, concurrency_limit=ALONE)
        gr.api(hum, api_name="hum", concurrency_id=ENGINE, concurrency_limit=3)
        gr.api(
            say,
            api_name="mutter",
            api_visibility="private",  # as the page's own events are
            concurrency_id=ENGINE,
            concurrency_limit=ALONE,
        )
    app.launch(
        server_name="127.0.0.1",
        prevent_thread_lock=True,
        quiet=True,
        ssr_mode=False,
        _frontend=False,
    )
    opened.append(Shop(line, app.local_url.rstrip("/")))
    yield opened[0]
    opened[0].door.set()
    app.close(verbose=False)


def test_requests_are_served_in_order_and_those_beyond_the_limit_are_refused(shop: Shop) -> None:
    events = [shop.ask("a")]
    shop.wait_for(waiting=0)
    for number, text in enumerate("bcde"):
        events.append(shop.ask(text, **{"x-forwarded-for": f"10.0.0.{number}"}))
        shop.wait_for(waiting=number + 1)
    assert [shop.line.before(event) for event in events] == [None, 1, 2, 3, 4]
    with pytest.raises(NoRoom, match="The server is busy: 4 requests wait"):
        shop.line.check_room()
    refused = shop.answer(shop.ask("f"))
    assert "event: error" in refused
    assert "The server is busy: 4 requests wait already" in refused
    client = Client(shop.url, verbose=False)
    with pytest.raises(AppError, match="The server is busy"):
        client.predict("g", api_name="/say")
    shop.door.set()
    with ThreadPoolExecutor(5) as readers:
        answers = list(readers.map(shop.answer, events))
    assert [f'["{text}"]' in answer for text, answer in zip("ABCDE", answers, strict=True)] == [
        True
    ] * 5
    assert shop.served == list("abcde")
    shop.line.check_room()


def test_events_run_side_by_side_except_those_that_must_be_alone(shop: Shop) -> None:
    hums = [shop.ask(text, "hum") for text in "abc"]
    shop.wait_for(waiting=0, running=3)
    fourth = shop.ask("d", "hum")
    shop.wait_for(waiting=1, running=3)
    said = shop.ask("e")
    behind = [shop.ask(text, "hum", **{"x-forwarded-for": "10.0.0.2"}) for text in "fg"]
    shop.wait_for(waiting=4, running=3)
    line = shop.line
    assert [line.before(hum) for hum in hums] == [None] * 3
    assert [line.before(hum, at_engine=True) for hum in hums] == [0, 1, 2]
    assert [line.before(event) for event in (fourth, said, *behind)] == [3, 4, 5, 6]
    shop.humming.release()
    shop.wait_for(waiting=3, running=3)  # the fourth is at the engine now
    shop.humming.release(3)
    shop.wait_for(waiting=2, running=1)  # and what must be alone is, though others have room
    assert line.before(said, at_engine=True) == 0
    shop.door.set()
    shop.wait_for(waiting=0, running=2)
    shop.humming.release(2)
    waited_s = [shop.heard(event) for event in (*hums, fourth, *behind)]
    assert waited_s[:3] == [0.0] * 3, "there was room for them"
    assert min(waited_s[3:]) > 0.0
    assert shop.served.index("e") == 4
    shop.humming.release()
    assert shop.heard(shop.ask("h", "hum")) == 0.0, "nobody was there before"


def test_one_program_cannot_take_every_place(shop: Shop) -> None:
    shop.ask("a")
    shop.wait_for(waiting=0)
    mine = {"x-forwarded-for": "10.0.0.1, 172.16.0.1"}
    for place in range(3):
        shop.ask("mine", **mine)
        shop.wait_for(waiting=place + 1)
    assert "3 requests of yours wait already; at most 3 may" in shop.answer(
        shop.ask("one more", **mine)
    )
    shop.ask("another's", **{"x-forwarded-for": "10.0.0.2"})
    shop.wait_for(waiting=4)


def test_a_visitor_who_leaves_gives_up_the_place(shop: Shop) -> None:
    shop.ask("a")
    shop.wait_for(waiting=0)
    event = shop.ask("b")
    shop.wait_for(waiting=1)
    asyncio.run(shop.line.clean_events(session_hash=event))
    shop.wait_for(waiting=0)
    assert event not in shop.line.event_ids_to_events


def test_requests_by_hand_do_not_pass_the_line_and_ended_ones_are_forgotten(shop: Shop) -> None:
    answer = httpx.post(f"{shop.url}/gradio_api/run/say", json={"data": ["x"]})
    assert answer.status_code == 404
    assert "join the queue" in answer.text
    assert shop.served == []

    shop.door.set()
    for number in range(20):
        assert "event: complete" in shop.answer(shop.ask(f"text {number}"))
    shop.wait_for(waiting=0, running=0)
    assert shop.line.event_ids_to_events == {}
    assert shop.line.event_analytics == {}
    assert not shop.line.blocks.app.state_holder.session_data
    assert not shop.line.blocks.app.iterators


def test_the_page_gets_no_progress_messages(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is told how it goes, which costs a page as much as a chunk of text does."""

    def reported(how: str) -> list[str]:
        index = next(i for i, fn in shop.line.blocks.fns.items() if fn.api_name == how)
        event = {"fn_index": index, "session_hash": how, "data": ["a"]}
        httpx.post(f"{shop.url}/gradio_api/queue/join", json=event).raise_for_status()
        data = f"{shop.url}/gradio_api/queue/data?session_hash={how}"
        with httpx.stream("GET", data) as stream:
            return list(messages(stream))

    monkeypatch.setattr(waiting_line, "IDLE_S", 0.2)
    shop.door.set()
    assert reported("say") == ["estimation", "process_starts", "process_completed", "close_stream"]
    # The first is the event's; the second has Gradio close the stream.
    assert reported("mutter") == ["process_completed", "process_completed", "close_stream"]


def test_a_page_hears_of_events_meanwhile(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page reads that its stream was closed a moment after the server closed it, however late
    that was: until then it is not told that its event was taken in."""
    delays: list[float] = []

    async def at_once(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr(waiting_line, "IDLE_S", 3600.0)
    monkeypatch.setattr(waiting_line, "_UNREAD_S", 3600.0)
    loop = SimpleNamespace(get_running_loop=asyncio.get_running_loop, sleep=at_once)
    monkeypatch.setattr(waiting_line, "asyncio", loop)
    shop.door.set()
    with httpx.Client() as client:
        shop.send_from_page(client)
        with client.stream("GET", shop.of_page) as stream:
            heard = messages(stream)
            for idle_s in (3600.0, 3600.0, 0.0):  # On the same stream: nothing ends it before.
                assert next(heard) == "process_completed"
                monkeypatch.setattr(waiting_line, "IDLE_S", idle_s)
                shop.send_from_page(client)
            assert list(heard) == ["process_completed"] * 2 + ["close_stream"]
        assert delays == []
        monkeypatch.setattr(waiting_line, "IDLE_S", 3600.0)
        shop.send_from_page(client)
        assert 0 < delays.pop() <= 3600.0
        with client.stream("GET", shop.of_page) as stream:
            assert next(messages(stream)) == "process_completed"


def test_an_idle_stream_does_not_keep_servers(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_line, "IDLE_S", 3600.0)
    shop.door.set()
    shop.send_from_page(httpx)
    with httpx.stream("GET", shop.of_page) as stream:
        lines = stream.iter_lines()
        assert "process_completed" in next(lines)
        shop.line.blocks.close(verbose=False)
        assert "close_stream" in "".join(lines)


def test_programs_share_one_state_of_the_page(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """To make one takes as long as everything else that a request takes."""
    made: list[object] = []

    def make(blocks: gr.Blocks) -> SessionState:
        made.append(blocks)
        return SessionState(blocks)

    monkeypatch.setattr(waiting_line, "SessionState", make)
    monkeypatch.setattr(state_holder, "SessionState", make)
    shop.door.set()
    for text in "abc":
        assert f'["{text.upper()}"]' in shop.answer(shop.ask(text))
    assert len(made) == 1


def test_overridden_methods_of_gradio_have_the_same_parameters() -> None:
    """Another Gradio that calls one of these in another way fails here, and not in a request."""
    overridden = {
        name: method
        for name, method in vars(WaitingLine).items()
        if inspect.isfunction(method) and name in vars(Queue)
    }
    assert set(overridden) == {
        *("clean_events", "close", "get_events", "process_events", "push"),
        *("remove_from_queue", "send_message"),
    }
    for name, method in overridden.items():
        ours, theirs = (inspect.signature(each) for each in (method, vars(Queue)[name]))
        assert list(ours.parameters) == list(theirs.parameters), f"Queue.{name} of {gr.__version__}"
        is_awaited = [inspect.iscoroutinefunction(each) for each in (method, vars(Queue)[name])]
        assert is_awaited[0] == is_awaited[1], f"Queue.{name} of {gr.__version__}"


def test_attributes_of_gradio_that_are_used_exist(shop: Shop) -> None:
    plain = Queue(False, 1, 1, None, shop.line.blocks)
    for name in (
        "ANALYTICS_MAX_EVENTS",
        "active_jobs",
        "event_queue_per_concurrency_id",
        "pending_event_ids_session",
        "pending_messages_per_session",
    ):
        assert hasattr(plain, name), f"Queue.{name} of {gr.__version__}"
    assert {"queue", "concurrency_limit"} <= set(vars(EventQueue("", 1)))
    assert {"session_data", "time_last_used"} <= set(vars(shop.line.blocks.app.state_holder))
