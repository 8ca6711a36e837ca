"""Gradio's queue: events wait for nothing, streams stay open while they are used, and nothing is
kept of what is over."""

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
from gradio.queueing import Queue
from gradio.state_holder import SessionState

from playground.server import page_queue, page_streams
from playground.server.page_queue import PageQueue
from tests.waiting import wait_until
from xla_backend.interface.request_queue import SOURCE, Source


@dataclass
class Shop:
    """An app with a door that the test opens.

    Attributes:
        visitors: whose events have come in.
        served: what was sent, in the order of being served. left: what was given up.
    """

    app: gr.Blocks
    url: str
    door: threading.Event = field(default_factory=threading.Event)
    visitors: list[Source] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    loops: list[asyncio.AbstractEventLoop] = field(default_factory=list)

    @property
    def queue(self) -> PageQueue:
        return self.app._queue  # noqa: SLF001

    def send(self, text: str, **headers: str) -> str:
        """Sends an event as a program does; returns its number."""
        answer = httpx.post(
            f"{self.url}/gradio_api/call/say", json={"data": [text]}, headers=headers
        )
        return answer.json()["event_id"]

    def answer(self, event: str) -> str:
        """What came of it."""
        return httpx.get(f"{self.url}/gradio_api/call/say/{event}").text

    @property
    def of_page(self) -> str:
        """The address of a page's stream."""
        return f"{self.url}/gradio_api/queue/data?session_hash=page"

    def send_from_page(self, client: Any) -> None:
        """Sends an event as the page does."""
        index = next(i for i, fn in self.app.fns.items() if fn.api_name == "mutter")
        event = {"fn_index": index, "session_hash": "page", "data": ["a"]}
        client.post(f"{self.url}/gradio_api/queue/join", json=event).raise_for_status()


def messages(stream: httpx.Response) -> Iterator[str]:
    """What a page's stream brings, as it comes, without the estimates."""
    for line in stream.iter_lines():
        found = re.findall(r'"msg": ?"(\w+)"', line)
        yield from (each for each in found if each not in ("estimation", "process_starts"))


@pytest.fixture
def shop() -> Iterator[Shop]:
    opened: list[Shop] = []

    async def say(text: str) -> str:
        shop = opened[0]
        shop.loops.append(asyncio.get_running_loop())
        shop.visitors.append(SOURCE.get())
        try:
            while not shop.door.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            shop.left.append(text)
            raise
        shop.served.append(text)
        return text.upper()

    with gr.Blocks(analytics_enabled=False) as app:
        PageQueue.of(app, behind_proxy=True)
        gr.api(say, api_name="say")
        gr.api(say, api_name="mutter", api_visibility="private")  # as the page's own events are
    app.launch(
        server_name="127.0.0.1",
        prevent_thread_lock=True,
        quiet=True,
        ssr_mode=False,
        _frontend=False,
    )
    opened.append(Shop(app, app.local_url.rstrip("/")))
    yield opened[0]
    opened[0].door.set()
    app.close(verbose=False)


def test_hundreds_of_events_wait_at_once_and_none_has_a_thread(shop: Shop) -> None:
    before = threading.active_count()
    with ThreadPoolExecutor(8) as senders:
        events = list(senders.map(shop.send, [f"text {number}" for number in range(300)]))
    wait_until(lambda: len(shop.visitors) == 300)
    assert threading.active_count() < before + 30
    shop.door.set()
    with ThreadPoolExecutor(8) as readers:
        answers = list(readers.map(shop.answer, events))
    assert all("event: complete" in answer for answer in answers)


def test_a_program_s_event_has_its_address_and_ends_when_it_leaves(shop: Shop) -> None:
    event = shop.send("a", **{"x-forwarded-for": "10.0.0.1, 172.16.0.1"})
    program = Source("Gradio", address="10.0.0.1")
    wait_until(lambda: shop.visitors == [program])
    shop.send_from_page(httpx)
    wait_until(lambda: shop.visitors == [program, Source()])
    other = shop.queue.clean_events(session_hash="another")
    asyncio.run_coroutine_threadsafe(other, shop.loops[0]).result()
    assert shop.left == []
    leaves = shop.queue.clean_events(session_hash=event)  # as Gradio does when the client has gone
    asyncio.run_coroutine_threadsafe(leaves, shop.loops[0]).result()
    wait_until(lambda: shop.left == ["a"])


def test_requests_by_hand_do_not_pass_the_queue_and_ended_ones_are_forgotten(shop: Shop) -> None:
    answer = httpx.post(f"{shop.url}/gradio_api/run/say", json={"data": ["x"]})
    assert answer.status_code == 404
    assert "join the queue" in answer.text
    assert shop.served == []

    shop.door.set()
    for number in range(20):
        assert "event: complete" in shop.answer(shop.send(f"text {number}"))
    wait_until(lambda: not shop.queue.of_programs)
    assert shop.queue.event_ids_to_events == {}
    assert shop.queue.event_analytics == {}
    assert not shop.app.app.state_holder.session_data
    assert not shop.app.app.iterators


def test_a_wrong_number_of_values_is_refused_by_a_sentence(shop: Shop) -> None:
    refused = httpx.post(f"{shop.url}/gradio_api/call/say", json={"data": ["a", "b"]})
    assert refused.status_code == 400
    assert "say takes 1 value, not 2" in refused.json()["detail"]


def test_a_page_hears_of_events_meanwhile(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page reads that its stream was closed a moment after the server closed it, however late
    that was: until then it is not told that its event was taken in."""
    delays: list[float] = []

    async def at_once(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr(page_streams, "IDLE_S", 3600.0)
    monkeypatch.setattr(page_streams, "_UNREAD_S", 3600.0)
    loop = SimpleNamespace(get_running_loop=asyncio.get_running_loop, sleep=at_once)
    monkeypatch.setattr(page_streams, "asyncio", loop)
    shop.door.set()
    with httpx.Client() as client:
        shop.send_from_page(client)
        with client.stream("GET", shop.of_page) as stream:
            heard = messages(stream)
            for idle_s in (3600.0, 3600.0, 0.0):  # On the same stream: nothing ends it before.
                assert next(heard) == "process_completed"
                monkeypatch.setattr(page_streams, "IDLE_S", idle_s)
                shop.send_from_page(client)
            assert list(heard) == ["process_completed"] * 2 + ["close_stream"]
        assert delays == []
        monkeypatch.setattr(page_streams, "IDLE_S", 3600.0)
        shop.send_from_page(client)
        assert 0 < delays.pop() <= 3600.0
        with client.stream("GET", shop.of_page) as stream:
            assert next(messages(stream)) == "process_completed"


def test_an_idle_stream_does_not_keep_servers(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_streams, "IDLE_S", 3600.0)
    shop.door.set()
    shop.send_from_page(httpx)
    with httpx.stream("GET", shop.of_page) as stream:
        came = messages(stream)
        assert next(came) == "process_completed"
        shop.app.close(verbose=False)
        assert [*came][-1] == "close_stream"


def test_programs_share_one_state_of_the_page(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """To make one takes as long as everything else that a request takes."""
    made: list[object] = []

    def make(blocks: gr.Blocks) -> SessionState:
        made.append(blocks)
        return SessionState(blocks)

    monkeypatch.setattr(page_queue, "SessionState", make)
    monkeypatch.setattr(state_holder, "SessionState", make)
    shop.door.set()
    for text in "abc":
        assert f'["{text.upper()}"]' in shop.answer(shop.send(text))
    assert len(made) == 1


def test_overridden_methods_of_gradio_have_the_same_parameters() -> None:
    """Another Gradio that calls one of these in another way fails here, and not in a request."""
    overridden = {
        name: method
        for name, method in vars(PageQueue).items()
        if inspect.isfunction(method) and name in vars(Queue)
    }
    assert set(overridden) == {"clean_events", "close", "process_events", "push", "start"}
    for name, method in overridden.items():
        ours, theirs = (inspect.signature(each) for each in (method, vars(Queue)[name]))
        assert list(ours.parameters) == list(theirs.parameters), f"Queue.{name} of {gr.__version__}"
        is_awaited = [inspect.iscoroutinefunction(each) for each in (method, vars(Queue)[name])]
        assert is_awaited[0] == is_awaited[1], f"Queue.{name} of {gr.__version__}"


def test_attributes_of_gradio_that_are_used_exist(shop: Shop) -> None:
    plain = Queue(False, 1, 1, None, shop.app)
    for name in (
        "ANALYTICS_MAX_EVENTS",
        "max_thread_count",
        "pending_event_ids_session",
        "pending_messages_per_session",
    ):
        assert hasattr(plain, name), f"Queue.{name} of {gr.__version__}"
    assert {"session_data", "time_last_used"} <= set(vars(shop.app.app.state_holder))
