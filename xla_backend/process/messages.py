"""The messages between `BackendProcess` and its child.

Knows the form of every message. Must not know what either side does with it. All values can be
pickled, and none comes from TensorFlow.

To the child: first one `Settings`; then tuples (kind, value):

| kind | value |
| --- | --- |
| "request" | a `Request` |
| "stop" | number of the request that shall end now |
| "warm" | (model, keys): compile them in the background |
| "cancel_prefetch" | None: drop the keys that wait |
| "close" | None: end the process |

To the parent: tuples (kind, number of the request or None, value):

| kind | value |
| --- | --- |
| "status" | an `EngineStatus` |
| "snapshot" | a `Snapshot`, when the engine's state has changed |
| "ready" | None: the engine takes requests; loading the default model was tried |
| "failed" | why the engine cannot start; the process ends |
| "log" | a `LogRecord` |
| "soft_limit" | bytes held: the engine is so large that another should replace it when it is idle |
| "hard_limit" | bytes held: the engine is so large that it starts no other request |
| "progress" | the request's new `Progress`; the first one says that it has started |
| "chunk" | the next chunk of a stream: text, or a `TranscribedWindow` |
| "result" | the last reply: what the method returns; a stream's `result` |
| "error" | the last reply: a `BackendError` |
| "dropped" | the last reply: it was stopped before it started |
| "returned" | the last reply: it was not started, and another engine shall serve it |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.function_comparison import FunctionRequest, StoredKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.requests import Prepared, SpeechRequest, TextRequest
from xla_backend.interface.results import CacheEntry, KVMemoryUse, ModelInfo, Past

if TYPE_CHECKING:
    from xla_backend.checkpoints.models import Registry


RequestKind = Literal["load", "generate", "transcribe", "compare_function", "reserve"]
"""The methods of `Backend` that need the engine."""


@dataclass(frozen=True)
class Settings:
    """The child's settings.

    Attributes:
        registry: the models that may be loaded.
        rules: how lengths are rounded up.
        preload: model to load before the first request, None for none.
        store: folder that keeps compiled functions; "off" for none.
        warm_up: options whose key is compiled first in the background, before those that earlier
            runs used most; None to compile nothing.
        log_level: log records of this package from this level on are sent to the parent.
        memory_limit: bytes that the process should not exceed; None for no bound.
        kv_bytes, prefix_store_bytes, prefixes_before: see `Backend`.
    """

    registry: Registry
    rules: BucketRules
    preload: str | None
    store: str
    warm_up: GenerationOptions | None
    log_level: int
    memory_limit: int | None = None
    kv_bytes: int = 0
    prefix_store_bytes: int = 0
    prefixes_before: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Snapshot:
    """The engine's state, for answers that must not wait for it.

    Attributes are what the methods of `Backend` return; `models` is None before there is an engine.
    """

    entries: tuple[CacheEntry, ...] = ()
    models: tuple[ModelInfo, ...] | None = None
    stored_keys: tuple[StoredKey, ...] = ()
    kv_memory: KVMemoryUse = field(default_factory=KVMemoryUse)
    past: Past = field(default_factory=dict)
    prefetching: tuple[tuple[str, CacheKey], ...] = ()
    prefixes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EngineRequest:
    """Work for the engine.

    Attributes:
        number: the parent's number for it, which every reply carries.
        kind: the method.
        payload: the request, a text's prepared unless its model is not loaded; to load a model, its
            name; to reserve the engine, what for.
        arrival_time: when its time began to count, by `time.perf_counter()`: that clock is the
            system's monotonic one, which all processes of a machine share.
        request_id: the server's id of the HTTP request; empty for others.
    """

    number: int
    kind: RequestKind
    payload: Prepared | TextRequest | SpeechRequest | FunctionRequest | str
    arrival_time: float = 0.0
    request_id: str = ""

    @property
    def model(self) -> str:
        """The name of its model; empty if it has none."""
        if isinstance(self.payload, Prepared | TextRequest | SpeechRequest):
            return self.payload.model
        return self.payload if isinstance(self.payload, str) and self.kind == "load" else ""

    @property
    def text(self) -> TextRequest | None:
        """The text request as its caller made it; None for other requests."""
        if isinstance(self.payload, Prepared):
            return self.payload.request
        return self.payload if isinstance(self.payload, TextRequest) else None

    @property
    def options(self) -> GenerationOptions | None:
        """The options of a generation; None for other requests."""
        payload = self.payload
        if isinstance(payload, Prepared | TextRequest | SpeechRequest):
            return payload.options
        return None
