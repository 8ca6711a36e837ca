"""The API in front of replicas, without Ray: what they are sent, and what is said of replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from ray.exceptions import RayError
from ray.serve._private.default_impl import get_request_metadata
from ray.serve._private.handle_options import DynamicHandleOptions
from ray.serve.context import _set_request_context
from starlette.testclient import TestClient

from tests.playground.fake_backend import FakeBackend
from tests.playground.samples import result, transcription
from xla_backend import InvalidRequest, Message, ModelInfo
from xla_backend.openai_api.body_size import MAX_BODY_BYTES
from xla_backend.prediction.vocabulary import Vocabulary
from xla_backend.serving import router
from xla_backend.serving.ingress import ServiceHost, create_app
from xla_backend.serving.replica import Starting
from xla_backend.serving.replicas import Replicas

CHAT = {"model": "gpt2-stories", "messages": [{"role": "user", "content": "Hello"}]}

INFO = ModelInfo("gpt2-stories", "decoder-only", "bundled", "Stories.", 150, is_instruct=True)
VOCABULARY = Vocabulary(INFO, FakeBackend().tokenizer("gpt2-stories"), None, "of its weights")


@dataclass
class Handle:
    """Ray Serve's handle to replicas that give these replies."""

    replies: list[Any] = field(default_factory=lambda: [None, " there", " was", " a", result()])
    chosen: dict[str, Any] = field(default_factory=dict)
    sent: tuple[Any, ...] = ()
    ids: list[str] = field(default_factory=list)  # Ray Serve's of each request
    starting: list[str] = field(default_factory=list)  # replicas whose engines start, as chosen
    called: str = ""

    def options(self, **chosen: Any) -> Handle:
        self.chosen = chosen
        return self

    def __getattr__(self, method: str) -> Handle:
        self.called = method
        return self

    def remote(self, *arguments: Any) -> Response:
        if self.called == "vocabulary":
            return Response([VOCABULARY])
        self.sent = arguments
        of_handle = SimpleNamespace(_source=None, _run_router_in_separate_loop=True)
        made = get_request_metadata(of_handle, DynamicHandleOptions())
        self.ids.append(made.internal_request_id)
        is_waited_for = arguments[2]
        if self.starting and not is_waited_for:
            return Response([Starting(self.starting.pop(0))])
        return Response(self.replies)


@dataclass
class Response:
    """Ray Serve's response."""

    replies: Iterable[Any]

    async def __aiter__(self) -> AsyncIterator[Any]:
        for reply in self.replies:
            if isinstance(reply, RayError):
                raise reply
            yield reply

    def result(self) -> Any:
        return next(iter(self.replies))

    def cancel(self) -> None:
        """Nothing to be cancelled: each reply is there."""


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Handle:
    monkeypatch.setattr(router, "_avoided_until", {})
    return Handle()


@pytest.fixture
def client(handle: Handle) -> TestClient:
    host = ServiceHost(Replicas(handle), ("gpt2-stories", "whisper-commands"), "")
    return TestClient(create_app(host))


def test_an_answer_or_stream_is_what_a_replica_gave(client: TestClient, handle: Handle) -> None:
    names = [model["id"] for model in client.get("/v1/models").json()["data"]]
    assert names == ["gpt2-stories", "whisper-commands"]
    answer = client.post("/v1/chat/completions", json=CHAT)
    assert answer.json()["choices"][0]["message"]["content"] == result().text
    assert answer.json()["system_fingerprint"].startswith("fp_")
    assert answer.headers["x-request-id"]
    prepared, *_ = handle.sent
    assert prepared.request.prompt == (Message("user", "Hello"),)
    assert prepared.token_ids and prepared.options.may_reuse

    answer = client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    events = [line for line in answer.text.splitlines() if line]
    assert len(events) == 1 + 3 + 1 + 1  # the role, the words, the reason to end, the mark
    assert events[-1] == "data: [DONE]"


def test_requests_are_routed_by_model_and_salt(client: TestClient, handle: Handle) -> None:
    def chosen(**more: str) -> dict[str, Any]:
        assert client.post("/v1/chat/completions", json=CHAT | more).status_code == 200
        client.get("/v1/models")
        return handle.chosen

    client.post("/v1/chat/completions", json=CHAT)  # now its fingerprint is known
    none = chosen()
    assert (none["stream"], none["multiplexed_model_id"]) == (True, "gpt2-stories")
    one, again, other = (chosen(cache_salt=salt)["session_id"] for salt in ("a", "a", "b"))
    assert one == again
    assert len({one, other, none["session_id"], ""}) == 4


@pytest.mark.parametrize(
    ("path", "body", "calls"),
    [
        ("/v1/chat/completions", CHAT | {"n": 8}, 8),
        ("/v1/completions", {"model": "gpt2-stories", "prompt": ["a", "b"], "n": 2}, 4),
    ],
)
def test_each_call_has_an_id_of_its_own(
    handle: Handle, path: str, body: dict[str, Any], calls: int
) -> None:
    """Ray Serve's router keeps one pending call for each id: of n choices all but one hung."""
    app = create_app(ServiceHost(Replicas(handle), ("gpt2-stories",), ""))

    async def as_served(scope: Any, receive: Any, send: Any) -> None:
        _set_request_context(_internal_request_id="of the HTTP request")  # as a replica does
        await app(scope, receive, send)

    answer = TestClient(as_served).post(path, json=body)
    assert len(answer.json()["choices"]) == calls
    assert len({*handle.ids}) == len(handle.ids) == calls


@pytest.mark.parametrize(
    ("starting", "sent"),
    [([], 1), (["one"], 2), (["one", "two"], 3), (["one", "two", "one"], 4), (["one", "one"], 3)],
)
def test_a_request_goes_to_a_replica_whose_engine_is_there_or_waits(
    client: TestClient, handle: Handle, starting: list[str], sent: int
) -> None:
    handle.starting = starting
    answer = client.post("/v1/chat/completions", json=CHAT)
    assert answer.json()["choices"][0]["message"]["content"] == result().text
    assert len(handle.ids) == sent


def test_a_recording_s_bytes_travel(client: TestClient, handle: Handle) -> None:
    handle.replies = [None, transcription()]
    sound = Path(__file__).read_bytes()
    answer = client.post(
        "/v1/audio/transcriptions", data={"model": "whisper-commands"}, files={"file": sound}
    )
    assert answer.json()["text"] == transcription().text
    asked, travelled, _ = handle.sent
    assert (asked.model, travelled) == ("whisper-commands", sound)


@pytest.mark.parametrize(
    ("replies", "status", "message"),
    [
        ([None, InvalidRequest("The prompt is too long.")], 400, "The prompt is too long."),
        ([None, RayError("a long story")], 503, "Send the request again"),
        ([RayError("a long story")], 503, "Send the request again"),
    ],
)
def test_what_a_replica_could_not_do_is_said_in_openai_s_form(
    client: TestClient, handle: Handle, replies: list[Any], status: int, message: str
) -> None:
    handle.replies = replies
    answer = client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status == 503)
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert message in error["message"] and "story" not in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", CHAT | {"model": "openai-community/gpt2"}, 404),
        ("/v1/chat/completions", CHAT | {"temperature": "hot"}, 400),
        ("/generate", {"prompt": "Once"}, 404),
        ("/", {}, 404),
    ],
)
def test_what_is_not_offered_is_refused_in_openai_s_form(
    client: TestClient, handle: Handle, path: str, body: dict[str, Any], status: int
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"].endswith(".")
    assert handle.sent == ()


def test_a_body_has_an_end_also_where_it_comes_in_chunks(client: TestClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 2**20 + 1):
            yield b" " * 2**20

    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as visitor:
            headers = {"content-type": "application/json"}
            return await visitor.post("/v1/completions", content=pieces(), headers=headers)

    refused = asyncio.run(answer())
    assert refused.status_code == 413
    assert f"more than {MAX_BODY_BYTES:,} bytes" in refused.json()["error"]["message"]


@pytest.mark.parametrize("depth", [400, 900, 100_000])
@pytest.mark.parametrize(
    "body", ["{}", '{{"model": "gpt2-stories", "messages": {}}}', '{{"model": {}}}']
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_deep_json_is_refused(client: TestClient, path: str, body: str, depth: int) -> None:
    deep = body.format("[" * depth + "]" * depth)
    answer = client.post(path, content=deep, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
