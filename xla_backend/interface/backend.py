"""The interface of all backends, as protocols.

`Backend` runs the engine in this process, `BackendProcess` in a child process. Their docstrings say
only how they differ.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.decisions import Decisions, Question
from xla_backend.interface.errors import EngineStopped
from xla_backend.interface.function_comparison import FunctionComparison, FunctionRequest, StoredKey
from xla_backend.interface.options import DEFAULT_OPTIONS, AudioInput, GenerationOptions
from xla_backend.interface.prompt import Prompt
from xla_backend.interface.request_queue import RequestQueue
from xla_backend.interface.request_record import RequestRecords
from xla_backend.interface.requests import Prepared, SpeechRequest, TextRequest
from xla_backend.interface.results import (
    CacheEntry,
    EngineStatus,
    GenerationResult,
    ModelInfo,
    Past,
    Prediction,
    Progress,
    TranscribedWindow,
    Transcription,
)

NEVER_STARTED = "The request was stopped before it began."

Chunk = TypeVar("Chunk", covariant=True)
Result = TypeVar("Result", bound=GenerationResult)


class EventStream(Protocol[Chunk, Result]):
    """The output of a request for a caller on an event loop.

    Attributes:
        result: None until the last chunk was read; after `stop`, the output so far. Stays None
            after an error, or if `stop` came before anything ran.
    """

    result: Result | None

    @abstractmethod
    def events(self) -> AsyncIterator[Progress | Chunk]:
        """The chunks, and every new state of the request; raises the request's errors."""

    async def whole(self) -> Result:
        """The result, at the end; as `AnyStream.read_all` otherwise."""
        try:
            async for _ in self.events():
                pass
        except BaseException:  # the caller has left
            self.stop()
            raise
        if self.result is None:
            raise EngineStopped(NEVER_STARTED)
        return self.result

    @abstractmethod
    def stop(self) -> None:
        """Ends the request after the current chunk; the output so far is kept.

        Any thread may call it; it returns at once. A running compilation finishes first, because
        XLA cannot be interrupted.
        """


class AnyStream(EventStream[Chunk, Result], Protocol[Chunk, Result]):
    """The output of a request: read its chunks once, then `result`.

    Attributes:
        progress: the newest state of the request.
    """

    progress: Progress

    @abstractmethod
    def __iter__(self) -> Iterator[Chunk]:
        """The chunks, for a caller with a thread; raises the request's errors."""

    def close(self) -> None:
        """Abandons the request without waiting for the rest."""
        self.stop()

    def read_all(self) -> Result:
        """Waits for the end; returns the result.

        Raises:
            EngineStopped: the request was stopped before it began.
        """
        try:
            for _ in self:
                pass
        except BaseException:  # Ctrl-C: the caller no longer waits
            self.close()
            raise
        if self.result is None:
            raise EngineStopped(NEVER_STARTED)
        return self.result


AnyTextStream = AnyStream[str, GenerationResult]
"""The chunks of a text; they are never empty, and joined they are `result.text`."""


class AnyBackend(Protocol):
    """An engine that generates text with compiled functions that it caches. Thread-safe.

    If the engine is in another process, all methods that need it may raise `EngineStopped`.
    """

    @property
    @abstractmethod
    def status(self) -> EngineStatus:
        """What the engine is doing now."""

    @abstractmethod
    def models(self) -> list[ModelInfo]:
        """All models with a name, and all loaded folders."""

    @abstractmethod
    def load(self, model: str) -> ModelInfo:
        """Loads a model before its first use.

        Raises:
            ModelUnavailable: it is unknown or broken, or cannot be downloaded.
        """

    @abstractmethod
    def prepare(self, request: TextRequest) -> Prepared:
        """Checks and encodes a request in this process, for prediction and submission.

        Raises:
            InvalidRequest: the prompt is empty, too long or not text, messages are sent to a model
                without a chat template, or fields contradict each other.
            ModelUnavailable: the model is unknown or broken.
        """

    @abstractmethod
    def submit(self, request: TextRequest | Prepared) -> AnyTextStream:
        """Starts a text request; returns at once.

        What `prepare` raises is raised here, or by the stream's iterator if the model must be
        loaded first. With beams the text is known only at the end, so there is one chunk.
        """

    @abstractmethod
    def submit_speech(self, request: SpeechRequest) -> AnyStream[TranscribedWindow, Transcription]:
        """Starts a transcription, whose text comes window by window.

        Raises:
            InvalidRequest: the recording is unreadable, silent, too short or too long, or the model
                does not know the language, or it is not a speech model.
            ModelUnavailable: the model cannot be loaded.
        """

    @abstractmethod
    def predict_text(self, request: TextRequest | Prepared) -> Prediction:
        """Predicts a request's cache outcome and time; raises what `prepare` raises."""

    def stream(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        **fields: Any,
    ) -> AnyTextStream:
        """`submit` of a `TextRequest` with these fields."""
        return self.submit(TextRequest(model, prompt, options, **fields))

    def generate(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        **fields: Any,
    ) -> GenerationResult:
        """The whole text; otherwise as `stream`."""
        request = TextRequest(model, prompt, options, **{"in_chunks": False, **fields})
        return self.submit(request).read_all()

    def decide(
        self,
        model: str,
        text: str,
        questions: Sequence[Question] | Mapping[str, Any],
        **fields: Any,
    ) -> Decisions:
        """A probability for every allowed answer to some questions about a text.

        Args:
            model: as for a text; decoder-only.
            text: what the questions are about. It is read once for all of them.
            questions: as they are, or by their names as JSON has them, see `Question.of`.
            **fields: of the `TextRequest`.

        Raises:
            InvalidRequest: a question cannot be read, text and question are too long, or the model
                is not decoder-only.
            ModelUnavailable: as `generate`.
        """
        defaults = {"cache_salt": "decide", "in_chunks": False, **fields}
        request = TextRequest(model, text, questions=Question.all_of(questions), **defaults)
        result = self.submit(request).read_all()
        assert isinstance(result, Decisions), "questions were asked"
        return result

    def predict(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        **fields: Any,
    ) -> Prediction:
        """`predict_text` of a `TextRequest` with these fields."""
        return self.predict_text(TextRequest(model, prompt, options, **fields))

    def transcribe_windows(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        **fields: Any,
    ) -> AnyStream[TranscribedWindow, Transcription]:
        """`submit_speech` of a `SpeechRequest` with these fields."""
        return self.submit_speech(SpeechRequest(model, recording, options, **fields))

    def transcribe(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        **fields: Any,
    ) -> Transcription:
        """The whole transcript; otherwise as `transcribe_windows`."""
        request = SpeechRequest(model, recording, options, **{"in_chunks": False, **fields})
        return self.submit_speech(request).read_all()

    @abstractmethod
    def predict_speech(self, model: str, options: GenerationOptions | None = None) -> Prediction:
        """Predicts the same for the first window of any recording; arguments as for `transcribe`.

        In the result, `prompt_tokens` counts the frames of a window, and `expected_s` is the time
        of one window.

        Raises:
            InvalidRequest: it is not a speech model.
            ModelUnavailable: as `generate`.
        """

    @abstractmethod
    def compare(self, request: FunctionRequest) -> FunctionComparison:
        """Calls an example function eagerly, as `tf.function` and compiled by XLA."""

    def compare_function(self, function: str, batch_size: int, **fields: Any) -> FunctionComparison:
        """`compare` of a `FunctionRequest` with these fields, which may be refused."""
        return self.compare(FunctionRequest(function, batch_size, **fields))

    @abstractmethod
    def stored_keys(self) -> list[StoredKey]:
        """The input shapes for which `compare_function` has compiled."""

    @abstractmethod
    def prefetch(self, model: str, keys: Iterable[CacheKey]) -> None:
        """Compiles or restores cache keys while no request runs; the model must be loaded.

        Returns at once.
        """

    @abstractmethod
    def prefetching(self) -> list[tuple[str, CacheKey]]:
        """Models and cache keys of `prefetch` that are being compiled or still wait."""

    @abstractmethod
    def cancel_prefetch(self) -> None:
        """Drops the waiting keys of `prefetch`; a running compilation finishes."""

    @abstractmethod
    def past(self) -> Past:
        """Requests and times of each model's cache keys, earlier runs included."""

    @abstractmethod
    def cached_functions(self) -> list[CacheEntry]:
        """The compiled functions in memory and statistics of their calls."""

    @abstractmethod
    def close(self) -> None:
        """Ends the engine; later requests raise an error."""


class SharedBackend(AnyBackend, Protocol):
    """An engine in another process that can be restarted, for many callers.

    Attributes:
        queue: the order in which their requests run.
        requests: the record of all of them.
    """

    queue: RequestQueue
    requests: RequestRecords

    @abstractmethod
    def reserve(self, what: str, left_s: Callable[[], float | None]) -> AnyTextStream:
        """Waits in the queue until no other request runs, and keeps others from running.

        It has no chunks; its state is "reserved" from then on, until it is stopped.

        Args:
            what: its name for those who wait, such as "Measuring".
            left_s: gives the expected seconds until it is stopped.
        """

    @abstractmethod
    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Waits until an engine has started and tried to load its default model.

        Returns:
            Whether one is ready; False after `timeout_s` seconds.
        """

    @abstractmethod
    def identity(self, model: str) -> str:
        """A hash of a model's weights and settings.

        Raises:
            ModelUnavailable: the model is not known, or a Hub model that is not loaded yet.
        """

    @abstractmethod
    def tokenizer(self, model: str) -> Any:
        """The `checkpoints.tokenization.Tokenizer` of a model; errors as for `identity`."""

    @abstractmethod
    def clear(
        self, model: str | None = None, key: CacheKey | None = None, disk: bool = True
    ) -> None:
        """Clears compiled functions, so that the next call is a cold one.

        XLA never frees a function inside a process. So the engine restarts, which takes seconds,
        clears all functions in memory and cancels prefetching.

        Args:
            model, key: with `disk`, the store's entries to remove; all if they are None.
            disk: also clear the store; otherwise functions will be restored from it.
        """
