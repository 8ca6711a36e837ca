"""`FakeBackend`: an engine without a model, for tests of the page.

Knows what `ServedBackend` promises, and keeps it: keys by the real rules, predictions by the real
ones, functions that are there once they were made. Only texts and times are made up. Must not know
the page.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic

from tests.playground.samples import (
    NO_PHASES,
    comparison,
    entry,
    miss,
    result,
    transcription,
    window,
)
from xla_backend import (
    AnyStream,
    AnyTextStream,
    BucketRules,
    CacheEntry,
    CacheKey,
    CacheOutcome,
    EngineStatus,
    FunctionComparison,
    FunctionRequest,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    ModelInfo,
    ModelUnavailable,
    Prediction,
    ServedBackend,
    StoredKey,
    Token,
    TranscribedWindow,
    Transcription,
)
from xla_backend.interface.backend import Chunk, Result
from xla_backend.interface.function_comparison import DEFAULT_CALLS
from xla_backend.interface.options import DEFAULT_MAX_SECONDS, DEFAULT_OPTIONS, AudioInput
from xla_backend.interface.prompt import Prompt
from xla_backend.interface.results import Past
from xla_backend.prediction import prediction

CONTEXT_LENGTH = 150
"""Most tokens of prompt and text together, in every model."""
TOKENS_A_WORD = 3
MODELS = (
    ModelInfo("gpt2-stories", "decoder-only", "bundled", "Stories."),
    ModelInfo("openai/whisper-tiny", "speech", "hub", "Writes down speech."),
    ModelInfo("openai-community/gpt2", "decoder-only", "hub", "GPT-2."),
    ModelInfo("t5-stories", "encoder-decoder", "bundled", "Answers."),
)
SPEECH_KEY = transcription().key


@dataclass
class FakeStream(AnyStream[Chunk, Result], Generic[Chunk, Result]):
    """Gives pieces until there are no more, or it is stopped."""

    backend: FakeBackend
    result: Result | None = None
    stopped: bool = False

    def __iter__(self) -> Iterator[Chunk]:
        if self.stopped:
            return
        said: list[Chunk] = []
        for piece in self._begin():
            if self.stopped:
                break
            time.sleep(self.backend.piece_s)
            said.append(piece)
            yield piece
        self.result = self._end(said)

    def stop(self) -> None:
        self.stopped = True

    def _begin(self) -> Iterable[Chunk]:
        """Finds or makes the function; all pieces that there are."""
        raise NotImplementedError

    def _end(self, said: list[Chunk]) -> Result:
        """What came of it."""
        raise NotImplementedError


@dataclass
class FakeTextStream(FakeStream[str, GenerationResult], AnyTextStream):
    """Writes the backend's words."""

    model: str = ""
    prompt: Prompt = ""
    options: GenerationOptions = DEFAULT_OPTIONS
    exact_key: bool = False
    cache_salt: str = ""
    met: Prediction | None = None

    @property
    def has_started(self) -> bool:
        return self.met is not None or self.stopped

    def wait_started(self) -> None:
        """The engine turns to everything at once."""

    def close(self) -> None:
        self.stop()

    def _begin(self) -> Iterable[str]:
        self.backend.raise_error(self.prompt)
        self.met = self.backend.predict(
            self.model, self.prompt, self.options, exact_key=self.exact_key
        )
        self.backend.use(self.model, self.met.key)
        return self.backend.words

    def _end(self, said: list[str]) -> GenerationResult:
        assert self.met is not None
        is_first = self.met.outcome in (CacheOutcome.MISS, CacheOutcome.DISK)
        return (miss if is_first else result)(
            model=self.model,
            text="".join(said),
            tokens=tuple(Token(i, text, -0.5) for i, text in enumerate(said)),
            prompt_tokens=self.met.prompt_tokens,
            key=self.met.key,
            requested_key=self.met.requested_key,
            cache=self.met.outcome,
            finish="stopped" if self.stopped else "length",
            options=self.options,
        )


@dataclass
class FakeWindows(FakeStream[TranscribedWindow, Transcription]):
    """Hears the same in each window of four seconds."""

    model: str = ""
    outcome: CacheOutcome = CacheOutcome.HIT

    def _begin(self) -> Iterable[TranscribedWindow]:
        self.outcome = self.backend.predict_speech(self.model).outcome
        self.backend.use(self.model, SPEECH_KEY)
        return [window(start_s=4.0 * i, end_s=4.0 * (i + 1)) for i in range(self.backend.windows)]

    def _end(self, said: list[TranscribedWindow]) -> Transcription:
        return transcription(
            model=self.model,
            cache=self.outcome,
            windows=tuple(said),
            finish="stopped" if self.stopped else "eos",
        )


class FakeBackend(ServedBackend):
    """An engine without a model.

    Attributes:
        status: what it says that it does.
        words: what it writes after every prompt, a token each.
        windows: how many of them every recording has.
        piece_s: seconds that a word or a window takes.
        errors: prompt, or name of an example function -> what a request for it raises.
        on_disk: models and keys that can be restored.
        in_background: what is being made ready; nothing is before `make_ready` says so.
        history: what keys took before.
        asked: the arguments of the requests for texts and recordings, in their order.
    """

    status = EngineStatus("ready")

    def __init__(self, words: Iterable[str] = (" there", " was", " a")) -> None:
        self.words = tuple(words)
        self.windows = 1
        self.piece_s = 0.0
        self.errors: dict[str, Exception] = {}
        self.on_disk: set[tuple[str, CacheKey]] = set()
        self.in_background: list[tuple[str, CacheKey]] = []
        self.history: Past = {}
        self.asked: list[tuple[Any, ...]] = []
        self._in_memory: dict[tuple[str, CacheKey], CacheEntry] = {}
        self._shapes: dict[tuple[str, int], StoredKey] = {}

    # ---- what tests and streams do with it

    def make_ready(self, model: str, key: CacheKey) -> None:
        """A function is in memory from here on, and none that is being made."""
        self._in_memory[model, key] = entry(model=model, key=key, hits=0, cached=None)
        self.in_background = [each for each in self.in_background if each != (model, key)]

    def use(self, model: str, key: CacheKey) -> None:
        """A call of a function, which is made if it is not there."""
        there = self._in_memory.get((model, key))
        if there is None:
            self.make_ready(model, key)
        else:
            self._in_memory[model, key] = replace(there, hits=there.hits + 1)

    def raise_error(self, request: Prompt) -> None:
        """Raises what the test has set for it."""
        if request in self.errors:
            raise self.errors[request]

    # ---- what every engine does

    def models(self) -> list[ModelInfo]:
        return list(MODELS)

    def load(self, model: str) -> ModelInfo:
        for info in MODELS:
            if info.name == model:
                return info
        raise ModelUnavailable(f"There is no model {model!r} here.")

    def generate(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        cache_salt: str = "",
    ) -> GenerationResult:
        return _whole(
            self.stream(model, prompt, options, exact_key=exact_key, cache_salt=cache_salt)
        )

    def stream(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        cache_salt: str = "",
        in_chunks: bool = True,
    ) -> FakeTextStream:
        self.asked.append((model, prompt, options, exact_key))
        return FakeTextStream(
            self,
            model=model,
            prompt=prompt,
            options=options,
            exact_key=exact_key,
            cache_salt=cache_salt,
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
        return _whole(
            self.transcribe_windows(
                model, recording, options, language=language, max_seconds=max_seconds
            )
        )

    def transcribe_windows(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        *,
        language: str | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
    ) -> FakeWindows:
        self.asked.append((model, recording, options, language, max_seconds))
        return FakeWindows(self, model=model)

    def predict(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        cache_salt: str = "",
    ) -> Prediction:
        if self.load(model).family == "speech":
            raise InvalidRequest(f"{model} takes recordings.")
        tokens = TOKENS_A_WORD * len(str(prompt).split())
        if tokens == 0:
            raise InvalidRequest("The prompt is empty.")
        if tokens + options.max_new_tokens > CONTEXT_LENGTH:
            raise InvalidRequest(f"The model has room for {CONTEXT_LENGTH} tokens.")
        wanted = BucketRules().key_for(
            tokens, options.num_beams, options.max_new_tokens, CONTEXT_LENGTH
        )
        return self._predict(model, wanted, tokens, exact_key)

    def predict_speech(self, model: str, options: GenerationOptions | None = None) -> Prediction:
        if self.load(model).family != "speech":
            raise InvalidRequest(f"{model} takes text.")
        return self._predict(model, SPEECH_KEY, SPEECH_KEY.padded_length)

    def _predict(
        self, model: str, wanted: CacheKey, tokens: int, exact_key: bool = True
    ) -> Prediction:
        return prediction.predict(
            wanted,
            tokens,
            [entry for entry in self.cached_functions() if entry.model == model],
            self.history.get(model, {}),
            lambda key: [] if (model, key) in self.on_disk else ["decode"],
            exact_key,
        )

    def compare_function(
        self, function: str, batch_size: int, *, pad: bool = False, calls: int = DEFAULT_CALLS
    ) -> FunctionComparison:
        request = FunctionRequest(function, batch_size, pad, calls)
        self.raise_error(function)
        place = function, request.rows
        before = self._shapes.get(place)
        sizes = {batch_size} | set(before.batch_sizes if before else ())
        self._shapes[place] = StoredKey(*place, tuple(sorted(sizes)), NO_PHASES, NO_PHASES)
        return comparison(request=request, cache=CacheOutcome.HIT if before else CacheOutcome.MISS)

    def stored_keys(self) -> list[StoredKey]:
        return list(self._shapes.values())

    def clear_functions(self) -> None:
        self._shapes.clear()

    def prefetch(self, model: str, keys: Iterable[CacheKey]) -> None:
        self.in_background += [(model, key) for key in keys]

    def prefetching(self) -> list[tuple[str, CacheKey]]:
        return list(self.in_background)

    def cancel_prefetch(self) -> None:
        self.in_background.clear()

    def past(self) -> Past:
        return self.history

    def cached_functions(self) -> list[CacheEntry]:
        return list(self._in_memory.values())

    def close(self) -> None:
        self.status = EngineStatus("stopped")

    def identity(self, model: str) -> str:
        return self.load(model).name

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        return self.status.state != "starting"

    def clear(
        self, model: str | None = None, key: CacheKey | None = None, disk: bool = True
    ) -> None:
        self._in_memory.clear()
        if disk:
            self.on_disk -= {
                place for place in self.on_disk if model is None or place == (model, key)
            }


def _whole(stream: FakeStream[Any, Result]) -> Result:
    for _ in stream:
        pass
    assert stream.result is not None
    return stream.result
