"""`BackendProcess`: the engine in a child process, with the methods of `Backend`.

Knows how the child is started, watched and replaced, and answers from mirrors of its state what
must not wait for it. Must not import TensorFlow: the page's process imports this module, and a
crash, an out-of-memory kill or seconds of tracing in the child must not reach it.

The child is a fresh interpreter (`python -m xla_backend.engine_process`), not a fork and not
`multiprocessing`'s spawn: the caller's main module is never imported again, so it also works from
notebooks and from scripts without an `if __name__ == "__main__"`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from xla_backend import memory, naming, prediction
from xla_backend.audio import DEFAULT_MAX_SECONDS, AudioInput
from xla_backend.batch import BATCH_SIZES
from xla_backend.buckets import BucketRules, CacheKey
from xla_backend.child import Call, Child, Warming
from xla_backend.errors import BackendError, EngineStopped, ModelUnavailable
from xla_backend.function_comparison import (
    DEFAULT_CALLS,
    FunctionComparison,
    FunctionRequest,
    KeptShape,
)
from xla_backend.history import Past
from xla_backend.messages import Request, RequestKind, Settings
from xla_backend.models import DEFAULT_MODEL, Registry
from xla_backend.options import GenerationOptions
from xla_backend.prompts import encode_prompt
from xla_backend.request_log import FinishedRequest
from xla_backend.results import (
    CacheEntry,
    EngineStatus,
    GenerationResult,
    ModelInfo,
    Prediction,
    TranscribedWindow,
    Transcription,
)
from xla_backend.store import open_store
from xla_backend.transcription import fitting_options, speech_key, works_on_text
from xla_backend.watchdog import Patience
from xla_backend.weights import read_weights

if TYPE_CHECKING:
    from xla_backend.speech_input import SpeechInput
    from xla_backend.tokenization import Tokenizer

DEFAULT_OPTIONS = GenerationOptions()
CLOSED = "The engine was closed; it takes no more requests."
TO_FREE_MEMORY = "to free memory"
STOPPED = "after it stopped"
NOTE_S = 60.0
"""Seconds for which the status says that the engine was replaced, and why."""
ROOM_FOR_TWO = 1.2
"""A successor gets ready beside the engine where this many times the engine's size at its start is
still to be had; elsewhere the engine ends first."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class BackendProcess:
    """A `Backend` in a child process. Methods may be called from any thread.

    The child starts when this object is made, without waiting: it imports TensorFlow and loads the
    default model in the background. Requests are served in the order of their calls, those that
    wait for the same function side by side; `models`, `predict`, `entries` and `status` answer at
    once, whatever the engine does.
    Time spent in the child's start is in no request's `timing`, like the loading of a model.
    If the child dies or hangs, the request at work gets `EngineStopped`; those that waited are
    served by a new child, which starts at once. A child that has grown near the memory limit is
    replaced between two requests, by one that has started beside it where there is room for both.
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
        patience: Patience = Patience(),  # noqa: B008 (immutable)
        on_request: Callable[[FinishedRequest], None] | None = None,
    ) -> None:
        """Starts the child and returns.

        Args:
            registry: the models that may be loaded; None for the default ones.
            rules: how lengths are rounded up.
            on_status: called with every new status, from a thread of this object; it must return
                soon and must not call `generate` or `stream`.
            default_model: the model that the child loads before the first request; None for none.
            store: folder that keeps compiled functions; see `Backend`.
            warm_up: options whose key the child makes ready first in idle moments after its start,
                before those that earlier runs used most; None to make nothing ready by itself.
            memory_limit: what the child may hold; see `memory.limit_from`. A single request that
                needs more gets more, and the child is replaced after it.
            patience: after which silence a child counts as hung.
            on_request: told of every request that has ended, from any thread; must return soon.

        Raises:
            ValueError: the memory limit cannot be understood.
        """
        self._registry = Registry() if registry is None else registry
        self._rules = rules
        self._on_status = on_status
        self._default_model = default_model
        self._store = open_store(store)
        self._texts: dict[str, Vocabulary] = {}
        self._warm_up = warm_up
        self.memory_limit = memory.limit_from(memory_limit, memory.total())
        self._patience = patience
        self._on_request = on_request
        self._began = time.monotonic()
        self._restarts: Counter[str] = Counter()
        self._note, self._note_from = "", 0.0
        self._size_at_start = 0
        self._lock = threading.Lock()
        # Guarded by the lock:
        self._closed = False
        self._successor: Child | None = None
        self._engine = self._start(warm_up)
        if default_model is not None:
            # So that the first prediction does not wait for an import and a vocabulary.
            threading.Thread(target=self._read_ahead, args=(default_model,), daemon=True).start()

    # --- what needs the engine ------------------------------------------------------------------

    def load(self, model: str) -> ModelInfo:
        """Loads a model now instead of at its first use.

        Raises:
            ModelUnavailable: it cannot be loaded.
            EngineStopped: the engine's process ended meanwhile.
        """
        return self._submit("load", model).wait()

    def generate(
        self,
        model: str,
        prompt: str,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
    ) -> GenerationResult:
        """Generates the whole text; arguments as for `Backend.generate`.

        Raises:
            InvalidRequest: the prompt is empty or too long.
            ModelUnavailable: the model cannot be loaded.
            EngineStopped: the engine's process ended meanwhile.
        """
        return self._submit("generate", model, prompt, options, exact_key).wait()

    def stream(
        self,
        model: str,
        prompt: str,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
    ) -> ProcessTextStream:
        """Generates text that can be read as it comes. Returns at once.

        What `generate` raises, the iterator raises, before its first chunk where possible.
        """
        return ProcessTextStream(self._submit("stream", model, prompt, options, exact_key))

    def transcribe(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        *,
        language: str | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
    ) -> Transcription:
        """Writes down what is said in a recording; see `Backend.transcribe`.

        Raises:
            InvalidRequest: the recording cannot be used, or the model is none for speech.
            ModelUnavailable: the model cannot be loaded.
            EngineStopped: the engine's process ended meanwhile.
        """
        return self._submit_speech(
            "transcribe", model, recording, options, language, max_seconds
        ).wait()

    def transcribe_windows(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        *,
        language: str | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
    ) -> ProcessWindowStream:
        """Writes down a recording window by window. Returns at once.

        What `transcribe` raises, the iterator raises.
        """
        return ProcessWindowStream(
            self._submit_speech(
                "transcribe_windows", model, recording, options, language, max_seconds
            )
        )

    def compare_function(
        self, function: str, batch_size: int, *, pad: bool = False, calls: int = DEFAULT_CALLS
    ) -> FunctionComparison:
        """Calls one of the guide's functions in three ways; see `Backend.compare_function`.

        Raises:
            InvalidRequest: there is no such function, or a number is out of range.
            EngineStopped: the engine's process ended meanwhile.
        """
        comparison = FunctionRequest(function, batch_size, pad, calls)
        return self._submit("compare_function", "", comparison=comparison).wait()

    def forget_functions(self) -> None:
        """Has `compare_function` trace and compile everything again.

        Raises:
            EngineStopped: the engine's process ended meanwhile.
        """
        self._submit("forget_functions", "").wait()

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Waits until the engine has started and tried to load the default model.

        Returns:
            Whether it is ready; False when `timeout_s` seconds were not enough.

        Raises:
            EngineStopped: the engine's process ended meanwhile.
        """
        return self._current().wait_ready(timeout_s)

    # --- what does not --------------------------------------------------------------------------

    @property
    def status(self) -> EngineStatus:
        """What the engine is doing right now, and whether it was just replaced."""
        status = self._engine.status
        is_new = self._note and time.perf_counter() - self._note_from < NOTE_S
        return status.replace(note=self._note) if is_new else status

    @property
    def pid(self) -> int:
        """The child's process id; of the last one, when it has ended."""
        return self._engine.pid

    def health(self) -> EngineHealth:
        """How the child fares."""
        engine = self._engine
        return EngineHealth(
            pid=engine.pid,
            up_s=time.monotonic() - self._began,
            requests=engine.waiting(),
            resident=memory.resident(engine.pid),
            memory_limit=self.memory_limit,
            restarts=dict(self._restarts),
        )

    def models(self) -> list[ModelInfo]:
        """The models that can be asked for."""
        mirrored = self._engine.models
        return self._registry.list() if mirrored is None else list(mirrored)

    def entries(self) -> list[CacheEntry]:
        """The compiled functions in the engine's memory, as of its last request."""
        return list(self._engine.entries)

    def past(self) -> Past:
        """What each key took, in this run of the program and earlier ones, as of the last request.

        The same as `Backend.past`.
        """
        return {model: dict(keys) for model, keys in self._engine.past.items()}

    def kept_shapes(self) -> list[KeptShape]:
        """The shapes that `compare_function` has compiled for, as of the last request."""
        return list(self._engine.kept_shapes)

    def predict(
        self,
        model: str,
        prompt: str,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
    ) -> Prediction:
        """What this request would meet now, decided in this process.

        Raises:
            InvalidRequest: the prompt is empty or too long.
            ModelUnavailable: the model is not known, or a Hub model that is not loaded yet.
        """
        vocabulary = self.vocabulary(model)
        wanted, prompt_tokens = vocabulary.prompt_key(self._rules, prompt, options)
        return self._predict(vocabulary, wanted, prompt_tokens, exact_key)

    def predict_speech(self, model: str, options: GenerationOptions | None = None) -> Prediction:
        """What the first window of any recording would meet now; see `Backend.predict_speech`.

        Raises:
            InvalidRequest: the model is none for speech.
            ModelUnavailable: the model is not known, or a Hub model that is not loaded yet.
        """
        vocabulary = self.vocabulary(model)
        wanted, frames = vocabulary.speech_key(self._rules, options)
        return self._predict(vocabulary, wanted, frames, exact_key=False)

    def vocabulary(self, model: str) -> Vocabulary:
        """What predictions need of a model, read from its folder once.

        Raises:
            ModelUnavailable: the model is not known, or a Hub model that is not loaded yet.
        """
        if model not in self._texts:
            if any(
                info.source == "hub" and not info.loaded
                for info in self.models()
                if info.name == model
            ):
                # Locating it could start a download, and a prediction must not wait for one.
                raise ModelUnavailable(
                    f"{model} is not loaded yet. Its first request downloads it if need be and "
                    "loads it; from then on requests can be predicted."
                )
            from xla_backend.speech_input import SpeechInput
            from xla_backend.tokenization import Tokenizer

            files = self._registry.locate(model)
            self._texts[model] = Vocabulary(
                info=files.info,
                tokenizer=Tokenizer.load(files.folder),
                speech=SpeechInput.load(files.folder, files.generation_config, files.config)
                if files.info.family == "speech"
                else None,
                identity=naming.identity(
                    files.config, files.generation_config, read_weights(files.folder)
                ),
            )
        return self._texts[model]

    def warm_soon(self, model: str, keys: Iterable[CacheKey]) -> None:
        """Makes keys ready in idle moments; the model must be loaded. Returns at once."""
        self._current().send("warm", (model, list(keys)))

    def warming(self) -> list[tuple[str, CacheKey]]:
        """Models and keys that are being made ready in the background, and those that wait."""
        return list(self._engine.warming)

    def cancel_warming(self) -> None:
        """Gives up what waits in the background; what XLA has begun it ends."""
        self._engine.send("cancel_warming", None)

    def forget(
        self, model: str | None = None, key: CacheKey | None = None, disk: bool = True
    ) -> None:
        """Forgets compiled functions, so that a cold call can be seen again.

        XLA never frees a function inside a process: the child ends and a new one starts, which
        takes seconds and forgets all that was in memory. Nothing is made ready by itself then.

        Args:
            model, key: with `disk`, removes this one key's code from the store, or everything when
                they are None.
            disk: also forget what the store holds; without it, functions will be restored.
        """
        names = None
        if disk and model is not None and key is not None:
            identity = self.vocabulary(model).identity
            names = [
                naming.prefill_code_entry(identity, key.padded_length),
                *(naming.decode_code_entry(identity, key, size) for size in BATCH_SIZES),
            ]
        with self._lock:
            if self._closed:
                raise EngineStopped(CLOSED)
            past = self._engine.past
            # It goes first: what it is compiling would be written to the store afterwards.
            self._close_children()
            if disk and self._store is not None:
                self._store.forget(names)
            self._engine = self._start(warm_up=None)
            self._engine.past = past

    def close(self) -> None:
        """Ends the child. Requests that wait get `EngineStopped`; later calls raise it too."""
        with self._lock:
            self._closed = True
            self._close_children()

    def __del__(self) -> None:
        for name in ("_engine", "_successor"):
            if (child := getattr(self, name, None)) is not None:
                child.end_soon()

    # --- called by the children -----------------------------------------------------------------

    def child_is_ready(self, child: Child) -> None:
        """See `Owner`."""
        self._size_at_start = memory.resident(child.pid) or 0
        with self._lock:
            if child is self._successor:
                self._engine.send("retire", None)

    def child_is_crowded(self, child: Child, held: int) -> None:
        """See `Owner`."""
        with self._lock:
            if child is self._engine and self._successor is None and self._has_room_for_two():
                self._prepare_successor(held)

    def child_is_full(self, child: Child, held: int) -> None:
        """See `Owner`."""
        with self._lock:
            if child is not self._engine or self._closed:
                return
            child.set_status(EngineStatus("starting", TO_FREE_MEMORY, time.perf_counter()))
            if self._successor is None and self._has_room_for_two():
                self._prepare_successor(held)
            elif self._successor is None or self._successor.was_ready:
                child.send("retire", None)

    def child_retired(self, child: Child, waiting: list[Call], unmade: Warming) -> None:
        """See `Owner`."""
        self._replace(child, waiting)
        for model in dict.fromkeys(model for model, _ in unmade):
            self._engine.send("warm", (model, [key for of, key in unmade if of == model]))

    def child_died(self, child: Child, waiting: list[Call]) -> None:
        """See `Owner`."""
        with self._lock:
            if child is self._successor:  # nobody's requests were in it
                self._successor = None
                self._engine.send("retire", None)
                return
        if child.was_ready:
            self._replace(child, waiting)
            return
        for call in waiting:  # another would not start either
            child.finish(call, "error", EngineStopped(child.status.detail))

    def request_finished(self, finished: FinishedRequest) -> None:
        """See `Owner`."""
        if self._on_request is not None:
            try:
                self._on_request(finished)
            except Exception:
                logger.exception("on_request raised an error")

    # --- inside ---------------------------------------------------------------------------------

    def _start(self, warm_up: GenerationOptions | None, is_announced: bool = True) -> Child:
        return Child(
            Settings(
                registry=self._registry,
                rules=self._rules,
                preload=self._default_model,
                store="off" if self._store is None else str(self._store.root),
                warm_up=warm_up,
                log_level=logging.getLogger("xla_backend").getEffectiveLevel(),
                memory_limit=self.memory_limit,
            ),
            weakref.ref(self),
            self._on_status if is_announced else None,
            self._patience,
        )

    def _has_room_for_two(self) -> bool:
        available = memory.available()
        return available is None or available > ROOM_FOR_TWO * self._size_at_start

    def _prepare_successor(self, held: int) -> None:
        """Starts the next child beside the present one; the caller holds the lock."""
        if not self._closed:
            logger.info("The engine holds %d MB; its successor starts", held // 10**6)
            self._successor = self._start(self._warm_up, is_announced=False)

    def _replace(self, child: Child, waiting: list[Call]) -> None:
        """Has the successor, or a new child, go on where one is gone."""
        with self._lock:
            try:
                if child is self._engine and not self._closed:
                    self._renew()
            except EngineStopped as error:
                for call in waiting:
                    child.finish(call, "error", error)
            else:
                # Under the lock, so that they stay before requests that come now.
                self._engine.adopt(waiting)

    def _renew(self) -> None:
        """Puts the successor, or a new child, in the place of the present one, which takes no more
        requests. The caller holds the lock."""
        old, new = self._engine, self._successor or self._start(self._warm_up)
        old.on_status = None
        self._engine, self._successor = new, None
        new.past = new.past or old.past  # what calls took before is still the best guess
        if new.on_status is None:
            new.on_status = self._on_status
            new.set_status(new.status)
        if old.was_ready:
            reason, why = ("memory", TO_FREE_MEMORY) if old.has_retired else ("stopped", STOPPED)
            self._restarts[reason] += 1
            self._note, self._note_from = f"restarted {why}", time.perf_counter()

    def _close_children(self) -> None:
        """The caller holds the lock."""
        if self._successor is not None:
            self._successor.close()
            self._successor = None
        self._engine.close()

    def _current(self) -> Child:
        """The running child; a new one if the last one ended."""
        with self._lock:
            if self._closed:
                raise EngineStopped(CLOSED)
            if self._engine.is_over():
                self._renew()
            return self._engine

    def _submit(
        self,
        kind: RequestKind,
        model: str,
        prompt: str = "",
        options: GenerationOptions | None = DEFAULT_OPTIONS,
        exact_key: bool = False,
        **more: Any,
    ) -> Call:
        request = Request(
            number=0,
            kind=kind,
            model=model,
            prompt=prompt,
            options=options,
            received=time.perf_counter(),
            exact_key=exact_key,
            **more,
        )
        while True:
            if (call := self._current().submit(request)) is not None:
                return call

    def _submit_speech(
        self,
        kind: RequestKind,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None,
        language: str | None,
        max_seconds: float,
    ) -> Call:
        if isinstance(recording, str | os.PathLike) and recording:
            # The child stays in the folder in which it was started.
            recording = os.path.abspath(recording)  # noqa: PTH100 (keeps links, takes any string)
        return self._submit(
            kind,
            model,
            "",
            options,
            recording=recording,
            language=language,
            max_seconds=max_seconds,
        )

    def _predict(
        self, vocabulary: Vocabulary, wanted: CacheKey, prompt_tokens: int, exact_key: bool
    ) -> Prediction:
        engine = self._engine
        entries = [entry for entry in engine.entries if entry.model == vocabulary.info.name]
        in_memory = {entry.key for entry in entries if entry.batch_size == 1}

        def is_stored(key: CacheKey) -> bool:
            return self._store is not None and naming.is_stored(
                vocabulary.identity, key, in_memory, self._store.holds
            )

        return prediction.predict(
            wanted=wanted,
            prompt_tokens=prompt_tokens,
            entries=entries,
            past=engine.past.get(vocabulary.info.name, {}),
            is_stored=is_stored,
            exact_key=exact_key,
        )

    def _read_ahead(self, model: str) -> None:
        with contextlib.suppress(BackendError):  # a request for it will say so
            self.vocabulary(model)


@dataclass(frozen=True)
class EngineHealth:
    """How an engine's process fares.

    Attributes:
        up_s: seconds since the first engine was started.
        requests: how many it has, the one at work included.
        resident: bytes that it holds in memory; None where the system does not say.
        memory_limit: bytes that it may hold; None for no bound.
        restarts: how often it was replaced: "memory" (before it grew too large), "stopped" (it had
            died or hung).
    """

    pid: int
    up_s: float
    requests: int
    resident: int | None
    memory_limit: int | None
    restarts: dict[str, int]


@dataclass(frozen=True)
class Vocabulary:
    """What predictions need of a model; can be pickled. `identity`: see `naming`."""

    info: ModelInfo
    tokenizer: Tokenizer
    speech: SpeechInput | None
    identity: str

    def prompt_key(
        self, rules: BucketRules, prompt: str, options: GenerationOptions
    ) -> tuple[CacheKey, int]:
        """The key that fits a prompt best, and the prompt's tokens without padding.

        Raises:
            InvalidRequest: the prompt is empty or too long.
        """
        prompt_tokens = len(
            encode_prompt(self.tokenizer, prompt, options.max_new_tokens, self.info)
        )
        key = rules.key_for(
            prompt_tokens, options.num_beams, options.max_new_tokens, self.info.context_length
        )
        return key, prompt_tokens

    def speech_key(
        self, rules: BucketRules, options: GenerationOptions | None
    ) -> tuple[CacheKey, int]:
        """The key of every window of a recording, and a whole window's frames.

        Raises:
            InvalidRequest: the model is none for speech.
        """
        if self.speech is None:
            raise works_on_text(self.info.name)
        options = fitting_options(options, self.speech, self.info.context_length)
        return speech_key(rules, self.speech, options), self.speech.frames


class _ProcessStream(Generic[Piece, Result]):
    """What one request sends as it comes.

    Dropping it, or closing it, before its end stops the work and frees the engine.

    Attributes:
        result: set when the iterator has ended, also after `stop`. It stays None in two cases: an
            error was raised, or the stream was stopped before the engine took it up, so that
            nothing ran.
    """

    def __init__(self, call: Call) -> None:
        """Wraps a request that was sent."""
        self._call = call
        self._ended = False
        self.result: Result | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the engine has turned to it, or never will."""
        return self._call.begun.is_set()

    def wait_begun(self) -> None:
        """Waits until the engine turns to it; until its end where it never does."""
        self._call.begun.wait()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Piece:
        if self._ended:
            raise StopIteration
        kind, value = self._call.next_reply()
        if kind == "chunk":
            return value
        self._ended = True
        if kind == "error":
            raise value
        self.result = value
        raise StopIteration

    def stop(self) -> None:
        """Ends after the piece that is being made; what was made is kept.

        May be called from another thread. Returns at once; a compilation that has begun is
        finished first, because XLA cannot be interrupted.
        """
        self._call.stop()

    def close(self) -> None:
        """Stops, without waiting for what is left."""
        if not self._ended:
            self._ended = True
            self._call.abandon()

    def __del__(self) -> None:
        self.close()


class ProcessTextStream(_ProcessStream[str, GenerationResult]):
    """The text of one request as it comes: an iterator of strings."""


class ProcessWindowStream(_ProcessStream[TranscribedWindow, Transcription]):
    """A recording's text as it comes: an iterator of windows."""
