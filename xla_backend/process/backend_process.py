"""`BackendProcess`: the engine in a child process, with the methods of `Backend`.

Knows how a request becomes a message, and answers from a copy of the child's state what must not
wait for it. Must not know how the child is kept running (`supervisor`), nor import TensorFlow: the
page's process imports this module, and a crash, an out-of-memory kill or seconds of tracing in the
child must not affect it.

The child is a fresh interpreter (`python -m xla_backend.process.engine_process`), not a fork and
not `multiprocessing`'s spawn: the caller's main module is never imported again, so it also works
from notebooks and from scripts without an `if __name__ == "__main__"`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from xla_backend.checkpoints.models import DEFAULT_MODEL, Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.child_process.parent_side import CLOSE_S
from xla_backend.compilation import naming
from xla_backend.compilation.store import open_store
from xla_backend.inspection.inspector import Inspector
from xla_backend.interface.backend import SharedBackend
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.errors import BackendError, ModelUnavailable
from xla_backend.interface.function_comparison import (
    FunctionComparison,
    FunctionRequest,
    StoredKey,
)
from xla_backend.interface.options import DEFAULT_OPTIONS, GenerationOptions
from xla_backend.interface.request_queue import QueueLimits
from xla_backend.interface.requests import Prepared, SpeechRequest, TextRequest
from xla_backend.interface.results import (
    CacheEntry,
    EngineStatus,
    GenerationResult,
    ModelInfo,
    Past,
    Prediction,
    TranscribedWindow,
    Transcription,
)
from xla_backend.prediction.vocabulary import Known, Vocabulary
from xla_backend.process import memory
from xla_backend.process.child import LeftS, ProcessStream, unknown
from xla_backend.process.messages import EngineRequest, Settings
from xla_backend.process.request_log import FinishedRequest
from xla_backend.process.supervisor import EngineHealth, Supervisor
from xla_backend.process.watchdog import Patience
from xla_backend.rows.scheduler import ROW_COUNTS


class BackendProcess(SharedBackend):
    """A `Backend` in a child process. Methods may be called from any thread.

    The child starts with this object, without waiting: it imports TensorFlow and loads the default
    model in the background. Requests start in the order of their calls; `models`, the predictions,
    `cached_functions` and `status` answer at once, even while the engine works. The child's start
    and the loading of a model are not part of any request's `timing`.

    If the child dies or hangs, running requests get `EngineStopped`; a new child starts at once and
    serves those that waited. A child that has grown large is replaced while nobody needs it; one
    that has come to the memory limit, as soon as its running requests have ended.
    """

    def __init__(
        self,
        registry: Registry | None = None,
        rules: BucketRules = BucketRules(),  # noqa: B008 (immutable)
        on_status: Callable[[EngineStatus], None] | None = None,
        default_model: str | None = DEFAULT_MODEL,
        store: Path | str | None = None,
        warm_up: GenerationOptions | None = DEFAULT_OPTIONS,
        memory_limit: str = memory.DEFAULT_LIMIT,
        kv_memory: str = memory.DEFAULT_KV_MEMORY,
        prefix_store: str = "off",
        patience: Patience = Patience(),  # noqa: B008 (immutable)
        on_request: Callable[[FinishedRequest], None] | None = None,
        limits: QueueLimits = QueueLimits(),  # noqa: B008 (immutable)
    ) -> None:
        """Starts the child and returns.

        Args:
            registry: the models that may be loaded; None for the default ones.
            rules: how lengths are rounded up.
            on_status: called with every new status, from a thread of this object; it must return
                soon and must not call `generate` or `stream`.
            default_model: the model that the child loads before the first request; None for none.
            store: folder that keeps compiled functions; see `Backend`.
            warm_up: options whose key the child compiles first in the background, before those that
                earlier runs used most; None to compile nothing by itself.
            memory_limit: memory of the child; see `memory.limit_from`. A single request that needs
                more gets more, and the child is replaced after it.
            kv_memory: memory of the keys and values of rows and of cached prefixes, of all models,
                in the same form; at least what one row needs.
            prefix_store: disk space for cached prefixes, in the store's folder: an amount or "off".
            patience: how long a child may send nothing before it counts as hung.
            on_request: called with every request that has ended, from any thread; must return soon.
            limits: how many requests may wait.

        Raises:
            ValueError: an amount of memory cannot be parsed.
        """
        self._rules = rules
        self._registry = registry = Registry() if registry is None else registry
        self._store = open_store(store)
        self._vocabularies: dict[str, Vocabulary] = {}
        self._inspector = Inspector(self._store, registry) if self._store else None
        self._supervisor = Supervisor(
            Settings(
                registry=registry,
                rules=rules,
                preload=default_model,
                store="off" if self._store is None else str(self._store.root),
                warm_up=warm_up,
                log_level=logging.NOTSET,  # each child gets the level of its start
                memory_limit=memory.limit_from(memory_limit, memory.total()),
                kv_bytes=memory.limit_from(kv_memory, memory.total()) or 0,
                prefix_store_bytes=memory.limit_from(prefix_store, None) or 0,
            ),
            on_status,
            on_request,
            patience,
            limits,
        )
        self.queue = self._supervisor.queue
        self.requests = self._supervisor.requests
        self._default_model = default_model

    # --- what needs the engine ------------------------------------------------------------------

    def submit(self, request: TextRequest | Prepared) -> ProcessStream[str, GenerationResult]:
        if isinstance(request, TextRequest):
            try:
                request = self.prepare(request)
            except ModelUnavailable:
                pass  # the engine prepares it once it has loaded the model, or says why it cannot
            except BackendError as error:
                self._supervisor.refused(EngineRequest(0, "generate", request), error)
                raise
        left_s = self._left_s(request) if isinstance(request, Prepared) else unknown
        return ProcessStream(self._supervisor.submit(EngineRequest(0, "generate", request), left_s))

    def _left_s(self, prepared: Prepared) -> LeftS:
        """Predicts a request when its expected seconds are first needed."""
        predicted = functools.cache(lambda: self.predict_text(prepared).expected_s)

        def left_s(spent_s: float) -> float | None:
            expected_s = predicted()
            return None if expected_s is None else max(0.0, expected_s - spent_s)

        return left_s

    def submit_speech(
        self, request: SpeechRequest
    ) -> ProcessStream[TranscribedWindow, Transcription]:
        recording = request.recording
        if isinstance(recording, str | os.PathLike) and recording:
            # The child does not follow a change of the working directory.
            recording = os.path.abspath(recording)  # noqa: PTH100 (keeps links, takes any string)
            request = dataclasses.replace(request, recording=recording)
        return ProcessStream(self._supervisor.submit(EngineRequest(0, "transcribe", request)))

    def reserve(
        self, what: str, left_s: Callable[[], float | None] = lambda: None
    ) -> ProcessStream[str, GenerationResult]:
        call = self._supervisor.submit(EngineRequest(0, "reserve", what), lambda spent_s: left_s())
        return ProcessStream(call)

    def load(self, model: str) -> ModelInfo:
        return self._supervisor.submit(EngineRequest(0, "load", model)).wait()

    def compare(self, request: FunctionRequest) -> FunctionComparison:
        return self._supervisor.submit(EngineRequest(0, "compare_function", request)).wait()

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        return self._supervisor.current().wait_ready(timeout_s)

    def prefetch(self, model: str, keys: Iterable[CacheKey]) -> None:
        self._supervisor.prefetch(model, keys)

    # --- what does not --------------------------------------------------------------------------

    @property
    def status(self) -> EngineStatus:
        """What the engine is doing right now, and whether it was just replaced."""
        return self._supervisor.status

    @property
    def inspector(self) -> Inspector | None:
        """Inspects compiled functions; None without a store."""
        return self._inspector

    @property
    def pid(self) -> int:
        """The process id of the child, or of the last one."""
        return self._supervisor.engine.pid

    def health(self) -> EngineHealth:
        return self._supervisor.health()

    def models(self) -> list[ModelInfo]:
        mirrored, registry = self._supervisor.engine.snapshot.models, self._registry
        if mirrored is None:
            return registry.list()
        # The engine reports models that were added since only after its next request.
        known = {info.name for info in mirrored}
        return [*mirrored, *(i for i in registry.additions().values() if i.name not in known)]

    def cached_functions(self) -> list[CacheEntry]:
        """See `AnyBackend`; as of the last request."""
        return list(self._supervisor.engine.snapshot.entries)

    def past(self) -> Past:
        """See `AnyBackend`; as of the last request."""
        return {model: dict(keys) for model, keys in self._supervisor.engine.snapshot.past.items()}

    def stored_keys(self) -> list[StoredKey]:
        """See `AnyBackend`; as of the last request."""
        return list(self._supervisor.engine.snapshot.stored_keys)

    def prefetching(self) -> list[tuple[str, CacheKey]]:
        return list(self._supervisor.engine.snapshot.prefetching)

    def cancel_prefetch(self) -> None:
        self._supervisor.cancel_prefetch()

    def read_ahead(self) -> None:
        """Reads the default model's vocabulary, so that the first prediction does not wait for it
        and for an import; for a thread, once this process has nothing more urgent to import."""
        if self._default_model is not None:
            with contextlib.suppress(BackendError):  # a request for the model raises it
                self.vocabulary(self._default_model)

    def identity(self, model: str) -> str:
        return self.vocabulary(model).identity

    def tokenizer(self, model: str) -> Tokenizer:
        return self.vocabulary(model).tokenizer

    def vocabulary(self, model: str) -> Vocabulary:
        """What predictions need from a model; read once.

        Raises:
            ModelUnavailable: the model is unknown, or a Hub model that is not loaded yet.
        """
        if model not in self._vocabularies:
            if any(
                info.source == "hub" and not (info.loaded or info.on_disk)
                for info in self.models()
                if info.name == model
            ):
                # Locating the model could start a download; a prediction must not wait for that.
                raise ModelUnavailable(
                    f"{model} is not loaded yet. Its first request downloads and loads it; from "
                    "then on requests can be predicted."
                )
            # Another thread may have read it too: the first one stays, with its cached prompts.
            self._vocabularies.setdefault(model, Vocabulary.load(self._registry.locate(model)))
        return self._vocabularies[model]

    def prepare(self, request: TextRequest) -> Prepared:
        return self.vocabulary(request.model).prepare(request, self._rules)

    def predict_text(self, request: TextRequest | Prepared) -> Prediction:
        prepared = request if isinstance(request, Prepared) else self.prepare(request)
        return self.vocabulary(request.model).predict_text(prepared, self._known())

    def predict_speech(self, model: str, options: GenerationOptions | None = None) -> Prediction:
        return self.vocabulary(model).predict_speech(self._rules, options, self._known())

    def _known(self) -> Known:
        mirrored = self._supervisor.engine.snapshot
        return Known(mirrored.entries, mirrored.past, mirrored.prefixes, self._store)

    # --- the engine's end -----------------------------------------------------------------------

    def clear(
        self, model: str | None = None, key: CacheKey | None = None, disk: bool = True
    ) -> None:
        names = None
        if disk and model is not None and key is not None:
            identity = self.vocabulary(model).identity
            names = [
                *naming.prompt_code_entries(identity, key),
                *(naming.decode_code_entry(identity, key, size) for size in ROW_COUNTS),
            ]

        def forget_stored() -> None:
            if disk and self._store is not None:
                self._store.clear(names)

        # While no engine runs: otherwise it would save what it is compiling afterwards.
        self._supervisor.restart(meanwhile=forget_stored)

    def close(self, within_s: float = CLOSE_S) -> None:
        """Ends the child. Requests that wait get `EngineStopped`; later calls raise it too.

        Args:
            within_s: seconds in which the child may finish its work; 0 ends it now.
        """
        self.requests.close()
        self._supervisor.close(within_s)
