"""`RemoteBackend`: what all backends have in common whose engine is in another process.

Knows that a request is a stream of replies, whatever carries it, and that a prediction is made of
a count of tokens. Must not know where the engine is, nor import TensorFlow.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from xla_backend.engine.vocabulary import Vocabulary
from xla_backend.interface.backend import AnyStream, Chunk, Result, ServedBackend
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.errors import EngineStopped
from xla_backend.interface.options import (
    DEFAULT_MAX_SECONDS,
    DEFAULT_OPTIONS,
    AudioInput,
    GenerationOptions,
)
from xla_backend.interface.prompt import Prompt
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.results import (
    GenerationResult,
    Prediction,
    TranscribedWindow,
    Transcription,
)


class RemoteStream(AnyStream[Chunk, Result]):
    """What one request sends as it comes.

    Dropping it, or closing it, before its end stops the work and frees the engine.

    Attributes:
        result: set when the iterator has ended, also after `stop`. It stays None in two cases: an
            error was raised, or the stream was stopped before an engine took it up, so that
            nothing ran.
    """

    def __init__(self) -> None:
        """Nothing has come yet."""
        self.result: Result | None = None
        self._ended = False

    @property
    @abstractmethod
    def has_started(self) -> bool:
        """Whether an engine has taken it up, or never will."""

    @abstractmethod
    def wait_started(self) -> None:
        """Waits for that, where it can be known before a chunk is there."""

    def __iter__(self) -> Self:
        """Itself."""
        return self

    @abstractmethod
    def __next__(self) -> Chunk:
        """The next chunk."""

    def wait(self) -> Result:
        """Waits for the result.

        Raises:
            EngineStopped: it was stopped before an engine took it up.
            BackendError: what the engine raised.
        """
        try:
            for _ in self:
                pass
        except BaseException:  # Ctrl-C: nobody waits any more
            self.close()
            raise
        if self.result is None:
            raise EngineStopped("The request was stopped before an engine took it up.")
        return self.result

    def close(self) -> None:
        """Stops, without waiting for what is left."""
        if not self._ended:
            self._ended = True
            self._abandon()

    @abstractmethod
    def _abandon(self) -> None:
        """Tells the engine that nobody waits for the rest."""

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):  # else it was never sent
            self.close()


class RemoteBackend(ServedBackend):
    """A backend whose requests are streams. Predictions are made where it is asked.

    A prediction needs a model's `Vocabulary`; of a model from the Hub, that can be had once an
    engine has loaded the model.
    """

    def __init__(self, rules: BucketRules) -> None:
        """Takes the rules by which the engine rounds up lengths."""
        self._rules = rules

    @abstractmethod
    def vocabulary(self, model: str) -> Vocabulary:
        """What predictions need of a model; read once.

        Raises:
            ModelUnavailable: the model is not known, or a Hub model that is not loaded yet.
        """

    @abstractmethod
    def predict_key(
        self, model: str, wanted: CacheKey, prompt_tokens: int, exact_key: bool
    ) -> Prediction:
        """What a request would meet that `wanted` fits best; else as `predict`."""

    @abstractmethod
    def _text(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions,
        exact_key: bool,
        cache_salt: str,
        in_chunks: bool,
    ) -> RemoteStream[str, GenerationResult]:
        """Sends a request for a text."""

    @abstractmethod
    def _speech(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None,
        language: str | None,
        max_seconds: float,
        in_chunks: bool,
    ) -> RemoteStream[TranscribedWindow, Transcription]:
        """Sends a request for what is said in a recording."""

    def generate(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        cache_salt: str = "",
    ) -> GenerationResult:
        return self._text(model, prompt, options, exact_key, cache_salt, in_chunks=False).wait()

    def stream(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        cache_salt: str = "",
        in_chunks: bool = True,
    ) -> RemoteStream[str, GenerationResult]:
        return self._text(model, prompt, options, exact_key, cache_salt, in_chunks)

    def transcribe(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        *,
        language: str | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
    ) -> Transcription:
        return self._speech(
            model, recording, options, language, max_seconds, in_chunks=False
        ).wait()

    def transcribe_windows(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        *,
        language: str | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
    ) -> RemoteStream[TranscribedWindow, Transcription]:
        return self._speech(model, recording, options, language, max_seconds, in_chunks=True)

    def identity(self, model: str) -> str:
        return self.vocabulary(model).identity

    def predict(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        cache_salt: str = "",
    ) -> Prediction:
        request = TextRequest(model, prompt, options, exact_key, cache_salt)
        wanted, tokens = self.vocabulary(model).prompt_key(self._rules, request)
        return self.predict_key(model, wanted, tokens, exact_key)

    def predict_speech(self, model: str, options: GenerationOptions | None = None) -> Prediction:
        wanted, frames = self.vocabulary(model).speech_key(self._rules, options)
        return self.predict_key(model, wanted, frames, exact_key=False)
