"""`Replicas`: the replicas as one engine that answers the API's requests.

Knows Ray Serve's handle, and what happens to a request whose replica dies or whose engine is being
replaced. Its methods block, so they are called from threads; its streams do not.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from xla_backend.interface.backend import Chunk, EventStream, Result
from xla_backend.interface.buckets import BucketRules
from xla_backend.interface.errors import BackendError, EngineStopped
from xla_backend.interface.requests import Prepared, SpeechRequest, TextRequest
from xla_backend.interface.results import (
    GenerationResult,
    Progress,
    TranscribedWindow,
    Transcription,
)
from xla_backend.serving.replica import Starting
from xla_backend.serving.router import avoid

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from xla_backend.checkpoints.tokenization import Tokenizer
    from xla_backend.prediction.vocabulary import Vocabulary

REPLICA_DIED = (
    "The replica that served this request ended before it was done. "
    "Send the request again: another one will take it."
)


class Replicas:
    """Sends each request to the replica that Ray Serve chooses for its model and session."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        self._vocabularies: dict[str, Vocabulary] = {}

    def prepare(self, request: TextRequest) -> Prepared:
        """See `AnyBackend`."""
        return self._vocabulary(request.model).prepare(request, BucketRules())

    def submit(self, request: TextRequest | Prepared) -> ReplicaStream[str, GenerationResult]:
        """See `AnyBackend`. Requests with the same `cache_salt` are a session."""
        text = request.request if isinstance(request, Prepared) else request
        return self._send(request, text.cache_salt)

    def submit_speech(
        self, request: SpeechRequest
    ) -> ReplicaStream[TranscribedWindow, Transcription]:
        """See `AnyBackend`. Sends the file's bytes, because replicas may not see the file."""
        assert isinstance(request.recording, str), "a file's path"
        return self._send(request, sound=Path(request.recording).read_bytes())

    def identity(self, model: str) -> str:
        """See `SharedBackend`."""
        return self._vocabulary(model).identity

    def tokenizer(self, model: str) -> Tokenizer:
        """See `SharedBackend`."""
        return self._vocabulary(model).tokenizer

    def _vocabulary(self, model: str) -> Vocabulary:
        if model not in self._vocabularies:
            try:
                found = self._call("vocabulary", model, multiplexed_model_id=model).result()
            except (RayError, RayServeException) as error:
                raise EngineStopped(REPLICA_DIED) from error
            self._vocabularies[model] = found
        return self._vocabularies[model]

    def _send(
        self, request: Prepared | TextRequest | SpeechRequest, session: str = "", sound: bytes = b""
    ) -> ReplicaStream[Any, Any]:
        options = {"stream": True, "multiplexed_model_id": request.model, "session_id": session}
        return ReplicaStream(lambda waits: self._call("run", request, sound, waits, **options))

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Calls a replica, in a context of its own.

        In the context of a caller's HTTP request, Ray Serve would take its id for the call's, and
        its router keeps one pending call for each id: of several choices all but one would hang.
        """
        handle = getattr(self._handle.options(**options), method)
        return Context().run(handle.remote, *arguments)


class ReplicaStream(EventStream[Chunk, Result]):
    """The stream of one request to a replica."""

    def __init__(self, send: Callable[[bool], Any]) -> None:
        """`send` sends the request, and says whether it may wait for an engine that is starting;
        its response yields each `replica.Reply`."""
        self.result: Result | None = None
        self._send = send
        self._is_stopped = False
        self._response = send(False)

    async def events(self) -> AsyncIterator[Progress | Chunk]:
        """See `EventStream`; states stay in the replica."""
        sent, waited_s = time.perf_counter(), 0.0
        starting: set[str] = set()
        try:
            while True:
                refusal: Starting | None = None
                async for reply in self._response:
                    if reply is None:  # the replica has accepted the request
                        waited_s = time.perf_counter() - sent
                    elif isinstance(reply, Starting):
                        refusal = reply
                    elif isinstance(reply, BackendError):
                        raise reply
                    elif isinstance(reply, GenerationResult):
                        self.result = cast("Result", reply.after_waiting(waited_s))
                    else:
                        yield reply
                if refusal is None or self._is_stopped:
                    return
                avoid(refusal.replica)
                # A replica that is chosen again is the only one, or all are starting.
                self._response = self._send(refusal.replica in starting)
                starting.add(refusal.replica)
                if self._is_stopped:
                    self._response.cancel()
        except (RayError, RayServeException) as error:
            raise EngineStopped(REPLICA_DIED) from error

    def stop(self) -> None:
        """Cancels the request, without a result."""
        self._is_stopped = True
        self._response.cancel()
