"""`Replica`: one engine inside Ray Serve.

Knows how a request reaches the engine, and how its answer or error returns. Must not know who asks,
nor TensorFlow: the engine is a `BackendProcess`, a child of this process. Tracing holds Python's
lock for seconds, and XLA may take all memory; neither must keep this process from reporting health
and queue to Serve, or from passing on a stop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray import serve

from xla_backend.checkpoints.models import first_model, open_registry
from xla_backend.interface.backend import NEVER_STARTED
from xla_backend.interface.errors import BackendError, EngineStopped
from xla_backend.interface.requests import Prepared, SpeechRequest, TextRequest
from xla_backend.interface.results import GenerationResult, Progress, TranscribedWindow
from xla_backend.prediction.vocabulary import Vocabulary
from xla_backend.process.backend_process import BackendProcess
from xla_backend.process.child import ProcessStream


@dataclasses.dataclass(frozen=True)
class Starting:
    """The reply of a replica whose engine is being replaced: another one may take the request."""

    replica: str


Reply = str | TranscribedWindow | GenerationResult | BackendError | Starting | None
"""None when a replica has accepted the request, then chunks, then the result or an error: as a
value, because Serve would log an exception as a fault of the replica."""
CHECK_S = 0.2
"""How often a request without a first reply looks whether its engine is being replaced."""


class Replica:
    """One engine."""

    def __init__(
        self,
        models: tuple[str, ...],
        store: str | None,
        weights: str,
        cores: int,
        memory_limit: str,
    ) -> None:
        """Starts the engine; returns when it is ready, so that no request comes too early.

        Args:
            models, store, weights, cores, memory_limit: see `ServeSettings`. Not the others,
            because
                a replica is replaced when its arguments change.

        Raises:
            EngineStopped: it cannot start; Ray Serve tries again.
        """
        # TensorFlow reads these when the engine's process starts: the replicas of one machine share
        # its cores, each with as many threads as it has reserved cores.
        os.environ["TF_NUM_INTRAOP_THREADS"] = str(cores)
        os.environ["TF_NUM_INTEROP_THREADS"] = "1"
        self._first = first_model(models)
        self._process = BackendProcess(
            open_registry(models, weights=weights),
            default_model=self._first,
            store=store,
            # Compiling the same functions in all replicas would waste memory.
            warm_up=None,
            memory_limit=memory_limit,
        )
        self._process.read_ahead()
        self._process.wait_ready()

    async def run(
        self,
        request: Prepared | TextRequest | SpeechRequest,
        sound: bytes = b"",
        waits: bool = True,
    ) -> AsyncIterator[Reply]:
        """Runs a request; a client that leaves cancels it, which stops the engine's work.

        Args:
            request: the request.
            sound: the bytes of the recording's file, whose path is on the ingress's machine.
            waits: whether it may wait for an engine that is being replaced.
        """
        yield None
        await self.register(request.model)
        try:
            with _submitted(self._process, request, sound) as stream:
                events = stream.events()
                first = asyncio.ensure_future(anext(events, None))
                try:
                    while not (waits or first.done()):
                        if self._process.status.state == "starting":
                            yield Starting(serve.get_replica_context().replica_id.unique_id)
                            return
                        await asyncio.wait([first], timeout=CHECK_S)
                    event = await first
                    while event is not None:
                        if not isinstance(event, Progress):
                            yield event
                        event = await anext(events, None)
                    yield stream.result or EngineStopped(NEVER_STARTED)
                finally:
                    first.cancel()
                    stream.close()
        except BackendError as error:
            yield error

    async def vocabulary(self, model: str) -> Vocabulary:
        """See `BackendProcess`; the ingress prepares requests with it."""
        return await asyncio.to_thread(self._process.vocabulary, model)

    @serve.multiplexed(max_num_models_per_replica=-1)
    async def register(self, model: str) -> str:
        """Registers the model with Ray Serve's multiplexing; the engine loads it."""
        return model

    async def check_health(self) -> None:
        """Called regularly by Ray Serve, which replaces the replica if this keeps failing.

        Raises:
            EngineStopped: the engine ended, and another one did not start.
        """
        status = self._process.status
        if status.state == "stopped":
            raise EngineStopped(status.detail)
        await self.register(self._first)

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self._process.close()


@contextmanager
def _submitted(
    process: BackendProcess, request: Prepared | TextRequest | SpeechRequest, sound: bytes
) -> Iterator[ProcessStream[Any, Any]]:
    """Submits the request; a recording is in a temporary file until its end."""
    if not isinstance(request, SpeechRequest):
        yield process.submit(request)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, Path(str(request.recording)).name)  # the upload's name, for errors
        path.write_bytes(sound)
        yield process.submit_speech(dataclasses.replace(request, recording=str(path)))
