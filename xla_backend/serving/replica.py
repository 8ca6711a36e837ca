"""`Engines`: one replica of the service, an engine inside Ray Serve.

Knows how requests reach the engine and how its answers, errors and state leave it. Must not know
who asks, nor TensorFlow: the engine is a `BackendProcess`, a child of this process. Tracing holds
Python's lock for seconds, and XLA may take all memory; neither must keep this process from
answering Serve's questions after its health and its queue, from passing on a stop, or from telling
how the engine ended. The way through the child costs less than a millisecond a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ray import serve

from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import BackendError, EngineStopped
from xla_backend.process.backend_process import BackendProcess
from xla_backend.serving.board import HEARTBEAT_S
from xla_backend.serving.routing import Route, function_id
from xla_backend.serving.settings import first_model, open_registry
from xla_backend.serving.snapshot import Snapshot
from xla_backend.serving.work import Reply, Work

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

FUNCTIONS_KNOWN = 1000
"""How many function ids a replica is known for; the least recently used is forgotten first."""
BETWEEN_SNAPSHOTS_S = 0.2
"""A status changes several times in a short request; nobody reads it as often."""


class Engines:
    """One engine. The first argument of every method is the `Route` by which it was chosen."""

    def __init__(
        self,
        models: tuple[str, ...],
        store: str | None,
        cores: int,
        memory_limit: str,
        weights: str,
        board: DeploymentHandle,
    ) -> None:
        """Starts the engine; returns when it is ready, so that no request comes too early.

        Args:
            models, store, cores, memory_limit, weights: see `ServeSettings`. Not all of it: a
                replica is replaced when its arguments change, and how many there are is none of
                them.
            board: handle to the `Board`.

        Raises:
            EngineStopped: it cannot start; Ray Serve tries again.
        """
        # TensorFlow reads them when the engine's process starts: the replicas of one machine share
        # its cores, each with as many threads as it has reserved.
        os.environ["TF_NUM_INTRAOP_THREADS"] = str(cores)
        os.environ["TF_NUM_INTEROP_THREADS"] = "1"
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._board = board
        self._numbers = itertools.count(1)
        self._streams: dict[str, Any] = {}
        self._registered: set[str] = set()
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._process = BackendProcess(
            open_registry(models, weights=weights),
            on_status=lambda status: self._changed.set(),
            default_model=first_model(models),
            store=store,
            # Functions are made where their requests go; all replicas making the same ones would
            # cost memory for nothing.
            warm_up=None,
            memory_limit=memory_limit,
        )
        self._process.wait_ready()
        threading.Thread(target=self._tell, name="board", daemon=True).start()

    # --- requests -------------------------------------------------------------------------------

    async def run(self, route: Route, work: Work) -> AsyncIterator[Reply]:
        """Runs a request. Yields first ("taken", this replica's name), then the engine's replies.

        The value of "result" is the result and a `Snapshot` in which the request counts.
        """
        yield "taken", self._replica
        await self._keep(route.function)
        replies: asyncio.Queue[Reply] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(reply: Reply) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the replica ends
                loop.call_soon_threadsafe(replies.put_nowait, reply)

        stream = self._open(work)
        self._streams[work.id] = stream
        threading.Thread(target=_read, args=(stream, put, work.is_streaming), daemon=True).start()
        try:
            while True:
                kind, value = await replies.get()
                if kind == "chunk":
                    yield kind, value
                    continue
                yield kind, (value, self._snapshot()) if kind == "result" else value
                break
        finally:
            # Also where the client is gone, or has given up: the engine must not go on for nobody.
            del self._streams[work.id]
            stream.close()
        await self._register()

    async def stop(self, route: Route, id: str) -> None:
        """Ends a request after the chunk that is being made; what was made is its result."""
        stream = self._streams.get(id)
        if stream is not None:
            stream.stop()

    async def call(self, route: Route, method: str, *arguments: Any, **named: Any) -> Reply:
        """Calls a method of `BackendProcess`; the reply's value is as for `run`."""
        if route.to and route.to != self._replica:
            return "error", (EngineStopped.__name__, f"The replica {route.to} is gone.")
        reply = await asyncio.to_thread(_answer, getattr(self._process, method), arguments, named)
        await self._register()
        return (reply[0], (reply[1], self._snapshot())) if reply[0] == "result" else reply

    async def prefetch(self, route: Route, model: str, key: CacheKey) -> Reply:
        """Makes a key ready in an idle moment, and loads the model for that if need be."""
        reply = await asyncio.to_thread(_answer, self._process.load, (model,), {})
        if reply[0] == "result":
            await self._keep(route.function)
            self._process.prefetch(model, [key])
            reply = "result", (None, self._snapshot())
        return reply

    # --- what Ray Serve asks --------------------------------------------------------------------

    async def check_health(self) -> None:
        """Called now and then; also a moment to register what was made in the background."""
        await self._register()

    def __del__(self) -> None:
        """Ends the engine and takes its state from the board."""
        if hasattr(self, "_process"):
            self._ended.set()
            self._changed.set()
            self._process.close()

    # --- inside ---------------------------------------------------------------------------------

    def _open(self, work: Work) -> Any:
        if work.recording is None:
            assert work.options is not None
            return self._process.stream(
                work.model,
                work.prompt,
                work.options,
                exact_key=work.exact_key,
                cache_salt=work.cache_salt,
            )
        return self._process.transcribe_windows(
            work.model,
            work.recording,
            work.options,
            language=work.language,
            max_seconds=work.max_seconds,
        )

    @serve.multiplexed(max_num_models_per_replica=FUNCTIONS_KNOWN)
    async def _keep(self, function: str) -> str:
        """Registers an id with Ray Serve; the function itself is the engine's affair."""
        return function

    async def _register(self) -> None:
        """Registers all functions that the engine has, prefetched ones included."""
        ids = {
            function_id(entry.model, entry.key)
            for entry in self._process.cached_functions()
            if isinstance(entry.key, CacheKey)
        }
        ids |= {function_id(info.name) for info in self._process.models() if info.loaded}
        for new in ids - self._registered:
            await self._keep(new)
        self._registered = ids

    def _snapshot(self) -> Snapshot:
        return Snapshot.take(self._replica, next(self._numbers), self._process, os.getpid())

    def _tell(self) -> None:
        """The thread that keeps the board up to date."""
        while not self._ended.is_set():
            self._changed.clear()
            self._board.report.remote(self._snapshot())
            self._changed.wait(HEARTBEAT_S)
            self._ended.wait(BETWEEN_SNAPSHOTS_S)
        self._board.leave.remote(self._replica)


def _read(stream: Iterable[Any], put: Callable[[Reply], None], is_streaming: bool) -> None:
    """The thread of one request: hands on what the engine sends."""
    for reply in _replies(stream):
        if reply[0] != "chunk" or is_streaming:
            put(reply)


def _replies(stream: Any) -> Iterator[Reply]:
    try:
        for chunk in stream:
            yield "chunk", chunk
    except BackendError as error:
        yield "error", (type(error).__name__, str(error))
    else:
        yield ("dropped", None) if stream.result is None else ("result", stream.result)


def _answer(method: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Reply:
    try:
        return "result", method(*arguments, **named)
    except BackendError as error:
        return "error", (type(error).__name__, str(error))
