"""One replica, without Ray: requests reach the engine, replies and ends leave it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.playground.samples import result
from xla_backend import (
    EngineStatus,
    EngineStopped,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
)
from xla_backend.engine.request import Stream
from xla_backend.interface.requests import SpeechRequest, TextRequest
from xla_backend.serving import replica as replicas
from xla_backend.serving.replica import Replica, Starting

OPTIONS = GenerationOptions()
Words = Stream[str, GenerationResult]


def written(chunks: list[str], error: Exception | None, is_endless: bool) -> Words:
    """A stream of chunks, which has ended or never does."""
    stream = Words()
    for chunk in chunks:
        stream.put(chunk)
    if error is not None:
        stream.fail(error)
    elif not is_endless:
        stream.finish(result())
    return stream


class Process:
    """A `BackendProcess` without an engine."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.status = EngineStatus("ready")
        self.error: Exception | None = None
        self.is_endless = False
        self.is_silent = False
        self.asked: list[Any] = []
        self.heard = b""
        self.streams: list[Words] = []

    def start(self, registry: Any, **settings: Any) -> Process:
        self.settings = settings
        return self

    def read_ahead(self) -> None: ...

    def wait_ready(self) -> None: ...

    def close(self) -> None: ...

    def submit(self, request: Any) -> Words:
        self.asked.append(request)
        words = [] if self.is_silent else [" there", " was"]
        is_endless = self.is_endless or self.is_silent
        self.streams.append(written(words, self.error, is_endless))
        return self.streams[-1]

    def submit_speech(self, request: SpeechRequest) -> Words:
        self.heard = Path(str(request.recording)).read_bytes()
        return self.submit(request)


class PlainReplica(Replica):
    """A replica that keeps what it would tell Ray Serve."""

    def __init__(self) -> None:
        super().__init__(("gpt2-stories", "t5-stories"), "off", "", 1, "60%")
        self.registered: list[str] = []

    async def register(self, model: str) -> str:
        self.registered.append(model)
        return model


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(replicas, "BackendProcess", made.start)
    return made


@pytest.fixture
def replica(process: Process, monkeypatch: pytest.MonkeyPatch) -> PlainReplica:
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.setenv(name, "1")  # put back afterwards: the replica sets them
    return PlainReplica()


async def all_of(replies: AsyncIterator[Any]) -> list[Any]:
    return [reply async for reply in replies]


def test_the_first_model_is_loaded_at_the_start(replica: PlainReplica, process: Process) -> None:
    assert process.settings["default_model"] == "gpt2-stories"
    asyncio.run(replica.check_health())
    assert replica.registered == ["gpt2-stories"]
    process.status = EngineStatus("stopped", "It ran out of memory.")
    with pytest.raises(EngineStopped, match="out of memory"):
        asyncio.run(replica.check_health())


def test_a_request_is_answered_or_refused(replica: PlainReplica, process: Process) -> None:
    asked = TextRequest("t5-stories", "Once", cache_salt="a")
    run = replica.run(asked)
    assert asyncio.run(all_of(run)) == [None, " there", " was", result()]
    assert process.asked == [asked]
    assert replica.registered == ["t5-stories"]

    process.error = error = InvalidRequest("Too long.")
    replies = asyncio.run(all_of(replica.run(TextRequest("t5-stories", "Once"))))
    assert replies == [None, " there", " was", error]


def test_while_the_engine_is_replaced_another_replica_may_answer(
    replica: PlainReplica, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = SimpleNamespace(replica_id=SimpleNamespace(unique_id="one"))
    monkeypatch.setattr(replicas.serve, "get_replica_context", lambda: place)
    asked = TextRequest("gpt2-stories", "Once")
    process.is_silent = True  # its engine was killed, and a new one will go on with the request

    async def replies_of_a_killed_engine() -> list[Any]:
        run = replica.run(asked, waits=False)
        replies = [await anext(run)]
        following = asyncio.ensure_future(all_of(run))
        while not process.streams:
            await asyncio.sleep(0)
        process.status = EngineStatus("starting")
        return replies + await following

    assert asyncio.run(replies_of_a_killed_engine()) == [None, Starting("one")]
    assert process.streams[0].is_stopped
    process.is_silent = False
    assert asyncio.run(all_of(replica.run(asked, waits=True)))[-1] == result()


def test_a_client_who_leaves_stops_the_engine(replica: PlainReplica, process: Process) -> None:
    process.is_endless = True

    async def leave() -> None:
        words: asyncio.Queue[object] = asyncio.Queue()

        async def read() -> None:
            async for reply in replica.run(TextRequest("gpt2-stories", "Once")):
                words.put_nowait(reply)

        reading = asyncio.create_task(read())
        assert [await words.get() for _ in range(3)] == [None, " there", " was"]
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(leave())
    assert process.streams[0].is_stopped


def test_a_recording_is_a_file_meanwhile(replica: PlainReplica, process: Process) -> None:
    request = SpeechRequest("whisper-commands", "/of/the/ingress")
    asyncio.run(all_of(replica.run(request, b"sound")))
    assert process.heard == b"sound"
    assert not Path(process.asked[0].recording).exists()
