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
import itertools
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from xla_backend import errors, naming, prediction
from xla_backend.audio import DEFAULT_MAX_SECONDS, AudioInput
from xla_backend.buckets import BucketRules, CacheKey
from xla_backend.channel import Channel
from xla_backend.errors import BackendError, EngineStopped, ModelUnavailable
from xla_backend.function_comparison import (
    DEFAULT_CALLS,
    FunctionComparison,
    FunctionRequest,
    KeptShape,
)
from xla_backend.history import Past
from xla_backend.messages import Request, Settings
from xla_backend.models import DEFAULT_MODEL, Registry
from xla_backend.options import GenerationOptions
from xla_backend.prompts import encode_prompt
from xla_backend.results import (
    CacheEntry,
    EngineStatus,
    GenerationResult,
    ModelInfo,
    Prediction,
    TranscribedWindow,
    Transcription,
)
from xla_backend.startup import ENVIRONMENT, QUIET_ENVIRONMENT
from xla_backend.store import open_store
from xla_backend.transcription import fitting_options, speech_key, works_on_text
from xla_backend.weights import read_weights

if TYPE_CHECKING:
    from xla_backend.speech_input import SpeechInput
    from xla_backend.tokenization import Tokenizer

DEFAULT_OPTIONS = GenerationOptions()
CLOSED = "The engine was closed; it takes no more requests."
CLOSE_S = 5.0
"""Seconds that the child gets to end when it is told to, before it is killed."""
LAST_LINES = 20
"""Lines of the child's own output that the log shows when it dies."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class BackendProcess:
    """A `Backend` in a child process. Methods may be called from any thread.

    The child starts when this object is made, without waiting: it imports TensorFlow and loads the
    default model in the background. Requests are served one at a time, in the order of their
    calls; `models`, `predict`, `entries` and `status` answer at once, whatever the engine does.
    Time spent in the child's start is in no request's `timing`, like the loading of a model.
    If the child dies, the requests that it had get `EngineStopped`, and the next request starts a
    new child.
    """

    def __init__(
        self,
        registry: Registry | None = None,
        rules: BucketRules = BucketRules(),  # noqa: B008 (immutable)
        on_status: Callable[[EngineStatus], None] | None = None,
        default_model: str | None = DEFAULT_MODEL,
        store: Path | str | None = None,
        warm_up: GenerationOptions | None = DEFAULT_OPTIONS,
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
        """
        self._registry = Registry() if registry is None else registry
        self._rules = rules
        self._on_status = on_status
        self._default_model = default_model
        self._store = open_store(store)
        self._texts: dict[str, Vocabulary] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._engine = self._start(warm_up)
        self._warm_up = warm_up
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
        received = time.perf_counter()
        return self._submit("generate", model, prompt, options, received, exact_key).wait()

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
        received = time.perf_counter()
        return ProcessTextStream(
            self._submit("stream", model, prompt, options, received, exact_key)
        )

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
        received = time.perf_counter()
        comparison = FunctionRequest(function, batch_size, pad, calls)
        return self._submit("compare_function", "", received=received, comparison=comparison).wait()

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
        """What the engine is doing right now."""
        return self._engine.status

    @property
    def pid(self) -> int:
        """The child's process id; of the last one, when it has ended."""
        return self._engine.pid

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
                naming.decode_code_entry(identity, key),
                naming.prefill_code_entry(identity, key.padded_length),
            ]
        with self._lock:
            if self._closed:
                raise EngineStopped(CLOSED)
            past = self._engine.past
            # It goes first: what it is compiling would be written to the store afterwards.
            self._engine.close()
            if disk and self._store is not None:
                self._store.forget(names)
            self._engine = self._start(warm_up=None)
            self._engine.past = past  # what calls took before is still the best guess

    def close(self) -> None:
        """Ends the child. Requests that wait get `EngineStopped`; later calls raise it too."""
        with self._lock:
            self._closed = True
        self._engine.close()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.end_soon()

    # --- inside ---------------------------------------------------------------------------------

    def _start(self, warm_up: GenerationOptions | None) -> _Engine:
        return _Engine(
            Settings(
                registry=self._registry,
                rules=self._rules,
                preload=self._default_model,
                store="off" if self._store is None else str(self._store.root),
                warm_up=warm_up,
                log_level=logging.getLogger("xla_backend").getEffectiveLevel(),
            ),
            self._on_status,
        )

    def _current(self) -> _Engine:
        """The running child; a new one if the last one ended."""
        with self._lock:
            if self._closed:
                raise EngineStopped(CLOSED)
            if self._engine.has_ended():
                self._engine = self._start(self._warm_up)
            return self._engine

    def _submit(
        self,
        kind: str,
        model: str,
        prompt: str = "",
        options: GenerationOptions | None = DEFAULT_OPTIONS,
        received: float = 0.0,
        exact_key: bool = False,
        **speech: Any,
    ) -> _Call:
        while True:
            call = self._current().submit(
                kind, model, prompt, options, received, exact_key, **speech
            )
            if call is not None:
                return call

    def _submit_speech(
        self,
        kind: str,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None,
        language: str | None,
        max_seconds: float,
    ) -> _Call:
        received = time.perf_counter()
        if isinstance(recording, str | os.PathLike) and recording:
            # The child stays in the folder in which it was started.
            recording = os.path.abspath(recording)  # noqa: PTH100 (keeps links, takes any string)
        return self._submit(
            kind,
            model,
            "",
            options,
            received,
            recording=recording,
            language=language,
            max_seconds=max_seconds,
        )

    def _predict(
        self, vocabulary: Vocabulary, wanted: CacheKey, prompt_tokens: int, exact_key: bool
    ) -> Prediction:
        engine = self._engine
        entries = [entry for entry in engine.entries if entry.model == vocabulary.info.name]
        in_memory = {entry.key for entry in entries}

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

    def __init__(self, call: _Call) -> None:
        """Wraps a request that was sent."""
        self._call = call
        self._ended = False
        self.result: Result | None = None

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


class _Call:
    """One request that was sent to a child, and its replies."""

    def __init__(self, engine: _Engine, number: int) -> None:
        self._engine = engine
        self.number = number
        self.replies: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def next_reply(self) -> tuple[str, Any]:
        """The next ("chunk" | "result" | "error", value); blocks."""
        return self.replies.get()

    def wait(self) -> Any:
        """The result of a request that has one reply only; raises what the child sent instead."""
        try:
            kind, value = self.next_reply()
        except BaseException:  # Ctrl-C: nobody waits any more
            self.abandon()
            raise
        if kind == "error":
            raise value
        return value

    def stop(self) -> None:
        self._engine.stop(self)

    def abandon(self) -> None:
        self._engine.abandon(self)


class _Engine:
    """One child process, from its start to its end, and the mirrors of its state."""

    def __init__(
        self, settings: Settings, on_status: Callable[[EngineStatus], None] | None
    ) -> None:
        self.status = EngineStatus("starting", since=time.perf_counter())
        self.entries: tuple[CacheEntry, ...] = ()
        self.models: tuple[ModelInfo, ...] | None = None
        self.kept_shapes: tuple[KeptShape, ...] = ()
        self.past: Past = {}
        self.warming: tuple[tuple[str, CacheKey], ...] = ()
        self._on_status = on_status
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        # Guarded by the lock, but for removal, which is one step and happens in `__del__` too.
        self._calls: dict[int, _Call] = {}
        self._end: str | None = None
        self._failure: str | None = None
        self._closing = False
        self._ready = threading.Event()  # also set at the end, so that nobody waits in vain
        self._ended = threading.Event()
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._process, self._channel = self._spawn()
        self.pid = self._process.pid
        self._channel.send(settings)
        self._output = threading.Thread(target=self._read_output, name="engine-output", daemon=True)
        self._output.start()
        threading.Thread(target=self._receive, name="engine-replies", daemon=True).start()

    def _spawn(self) -> tuple[subprocess.Popen[bytes], Channel]:
        ours, theirs = socket.socketpair()
        package_folder = str(Path(__file__).resolve().parent.parent)
        search_path = [package_folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **QUIET_ENVIRONMENT,
            **os.environ,
            **ENVIRONMENT,
            "PYTHONPATH": os.pathsep.join(search_path),
        }
        # -P: modules of the same name in the caller's working directory are not ours to run.
        command = [sys.executable, "-P", "-m", "xla_backend.engine_process", str(theirs.fileno())]
        with theirs:
            try:
                process = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
            except OSError as error:
                ours.close()
                raise EngineStopped(f"The engine's process cannot be started: {error}.") from error
        return process, Channel(Connection(ours.detach()))

    # --- called by the callers' threads ---------------------------------------------------------

    def has_ended(self) -> bool:
        """Whether the child is gone; if it has just gone, waits until that is settled."""
        if self._process.poll() is not None:
            self._ended.wait()
        return self._ended.is_set()

    def submit(self, kind: str, *arguments: Any, **speech: Any) -> _Call | None:
        """Sends a request; None if the child is gone. Calls are served in this order."""
        with self._lock:
            if self._end is not None:
                return None
            call = _Call(self, next(self._numbers))
            self._channel.send(("request", Request(call.number, kind, *arguments, **speech)))
            self._calls[call.number] = call
        return call

    def send(self, kind: str, value: Any) -> None:
        """Sends what gets no reply."""
        self._channel.send((kind, value))

    def stop(self, call: _Call) -> None:
        if call.number in self._calls:
            self._channel.send(("stop", call.number))

    def abandon(self, call: _Call) -> None:
        if self._calls.pop(call.number, None) is not None:
            self._channel.send(("stop", call.number))

    def wait_ready(self, timeout_s: float | None) -> bool:
        ready = self._ready.wait(timeout_s)
        if self._end is not None:
            raise EngineStopped(self._end)
        return ready

    def end_soon(self) -> None:
        self._closing = True
        self._channel.send(("close", None))

    def close(self) -> None:
        self.end_soon()
        if not self._ended.wait(CLOSE_S):
            self._process.kill()
            self._ended.wait()

    # --- the threads of this object -------------------------------------------------------------

    def _receive(self) -> None:
        self._set_status(self.status)
        try:
            while True:
                self._take(*self._channel.receive())
        except (EOFError, OSError):
            pass  # the child ended
        except Exception:
            logger.exception("The engine sent something that cannot be read; it is ended")
        self._settle()

    def _take(self, kind: str, number: int | None, value: Any) -> None:
        """Takes one message of the child."""
        if kind == "status":
            self._set_status(value)
        elif kind == "entries":
            self.entries = tuple(value)
        elif kind == "models":
            self.models = tuple(value)
        elif kind == "kept_shapes":
            self.kept_shapes = tuple(value)
        elif kind == "past":
            self.past = value
        elif kind == "warming":
            self.warming = tuple(value)
        elif kind == "ready":
            self._ready.set()
        elif kind == "failed":
            self._failure = value
        elif kind == "log":
            name, level, text = value
            logging.getLogger(name).log(level, "%s", text)
        elif kind == "chunk":
            if call := self._calls.get(number):
                call.replies.put((kind, value))
        elif call := self._calls.pop(number, None):
            if kind == "error":
                name, sentence = value
                value = getattr(errors, name, BackendError)(sentence)
            call.replies.put(("result" if kind == "dropped" else kind, value))

    def _set_status(self, status: EngineStatus) -> None:
        self.status = status
        if self._on_status is not None:
            try:
                self._on_status(status)
            except Exception:
                logger.exception("on_status raised an error")

    def _read_output(self) -> None:
        """What the child prints is noise until it dies; then its last lines are evidence."""
        with self._process.stdout as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                self._last_lines.append(text)
                logger.debug("engine: %s", text)

    def _settle(self) -> None:
        """Settles the end of the child: its exit status, its waiting callers, its status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self._process.kill()  # does nothing to one that has ended
        code = self._process.wait()
        self._output.join(1.0)
        sentence = self._describe_end(code)
        if not self._closing:
            logger.error("%s", "\n".join([sentence, *self._last_lines]))
        self.entries = ()
        self.kept_shapes = ()
        self.warming = ()
        self.models = None
        self._set_status(EngineStatus("stopped", sentence, time.perf_counter()))
        with self._lock:
            self._end = sentence
        self._ready.set()
        self._ended.set()
        while self._calls:
            with contextlib.suppress(KeyError):  # abandoned at this very moment
                _, call = self._calls.popitem()
                call.replies.put(("error", EngineStopped(sentence)))
        self._channel.close()

    def _describe_end(self, code: int) -> str:
        if self._closing:
            return "The engine was closed."
        if self._failure is not None:
            return f"The engine could not start: {self._failure}."
        idle = self.status.state == "ready"
        doing = "it was idle" if idle else f"{self.status.state} {self.status.detail}".strip()
        if code == -signal.SIGKILL:
            cause = "it was killed, as the system does when memory runs out"
        elif code < 0:
            cause = f"it was ended by signal {-code} ({signal.strsignal(-code)})"
        else:
            cause = f"it ended with exit status {code}"
        return (
            f"The engine stopped while {doing}: {cause}. "
            "Send the request again: that starts a new engine."
        )
