"""What the engine answers: the plain values that travel to callers and between processes.

Knows the shapes of answers (results, cache entries, predictions, model descriptions). Must not know
how they come about, nor TensorFlow: everything here can be pickled and turned into JSON.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple

from xla_backend.buckets import CacheKey
from xla_backend.options import GenerationOptions
from xla_backend.timing import Statistics, Timing


class CacheOutcome(str, Enum):
    """Where the compiled function of a request came from."""

    HIT = "hit"
    """It was in memory."""
    MISS = "miss"
    """It was traced and compiled for this request."""
    DISK = "disk"
    """It was restored from the store on disk."""
    REUSED = "reused"
    """A larger function that was in memory served the request."""


class LikelyToken(NamedTuple):
    """A token that the model found likely in a place. Fields as in `Token`."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True)
class Token:
    """One generated token.

    Attributes:
        id: its number in the vocabulary.
        text: its own text; several tokens can share one character, so joining these is not exact.
        logprob: natural logarithm of the probability that the model gave it, before temperature,
            filters and penalties.
        likeliest: the five tokens that the model found likeliest in this place, best first, by the
            same probabilities; the token itself need not be among them.
    """

    id: int
    text: str
    logprob: float
    likeliest: tuple[LikelyToken, ...] = ()


@dataclass(frozen=True)
class FirstCall:
    """What the first call of a compiled function cost, in seconds."""

    outcome: CacheOutcome
    trace_s: float
    compile_s: float
    run_s: float

    @property
    def total_s(self) -> float:
        """Tracing (or restoring), compiling and running."""
        return self.trace_s + self.compile_s + self.run_s


@dataclass(frozen=True)
class Signature:
    """What a function made by `jit` is kept under: its arguments' types, as `float32[8, 4]`."""

    arguments: str

    def __str__(self) -> str:
        return self.arguments


AnyKey = CacheKey | Signature
"""What a compiled function is kept under: of a language model, or of a function of any kind."""


@dataclass(frozen=True)
class CacheEntry:
    """One compiled function in memory: what it cost once, and what it costs since.

    Attributes:
        model: the model, or the function that `jit` was given.
        key: which function.
        cached: statistics of `Timing.run_s` over the calls that came after the first, however
            many tokens they asked for; None before there is one.
        batch_size: how many requests it serves at once; those count one by one in `hits` and
            `cached`.
    """

    model: str
    key: AnyKey
    first_call: FirstCall
    hits: int
    cached: Statistics | None
    batch_size: int = 1

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the API; `first_call` has "cache" beside its seconds."""
        first = dataclasses.asdict(self.first_call)
        return {
            "model": self.model,
            "key": self.key.to_dict() if isinstance(self.key, CacheKey) else str(self.key),
            "batch_size": self.batch_size,
            "first_call": {"cache": first.pop("outcome").value, **first},
            "hits": self.hits,
            "cached": dataclasses.asdict(self.cached) if self.cached else None,
        }


@dataclass(frozen=True)
class GenerationResult:
    """One answer.

    Attributes:
        model: the name the model was asked for by.
        text: the continuation (or answer), without the prompt and without special tokens.
        tokens: the generated tokens, an end-of-text token included.
        prompt_tokens: tokens of the prompt, without padding.
        key: the compiled function that served the request.
        requested_key: the function that fits the request best; differs from `key` when REUSED.
        cache: where the compiled function came from.
        finish: "eos" (the model ended its text), "length" (max_new_tokens) or "stopped".
        timing: the phases, in seconds.
        first_call: what the first call of `key` cost; this very call on a miss.
        load_s: seconds spent loading the model for this request, outside `timing`.
        prompt_texts: each prompt token's own text, as in `Token`; empty for a recording.
        batch_size: how many requests ran side by side, this one included. They share the
            processor, so `timing` and `tokens_per_second` are what this one got of it.
    """

    model: str
    text: str
    tokens: tuple[Token, ...]
    prompt_tokens: int
    key: CacheKey
    requested_key: CacheKey
    cache: CacheOutcome
    finish: Literal["eos", "length", "stopped"]
    timing: Timing
    first_call: FirstCall
    options: GenerationOptions
    load_s: float = 0.0
    prompt_texts: tuple[str, ...] = ()
    batch_size: int = 1

    @property
    def new_tokens(self) -> int:
        """How many tokens were generated."""
        return len(self.tokens)

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens over the seconds spent running; None when nothing was generated."""
        return self.new_tokens / self.timing.run_s if self.timing.run_s > 0 else None

    @property
    def speedup(self) -> float | None:
        """How many times longer the first call of this function took than this one's run.

        None on the first call itself: there is nothing to compare yet.
        """
        if self.cache in (CacheOutcome.MISS, CacheOutcome.DISK) or self.timing.run_s <= 0:
            return None
        return self.first_call.total_s / self.timing.run_s

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line and the API."""
        return {
            "model": self.model,
            "text": self.text,
            "prompt_tokens": self.prompt_tokens,
            "new_tokens": self.new_tokens,
            "key": self.key.to_dict(),
            "cache": self.cache.value,
            "batch_size": self.batch_size,
            "timing": self.timing.to_dict(),
        }


@dataclass(frozen=True)
class TranscribedWindow:
    """What was said in one window of a recording.

    Attributes:
        start_s, end_s: where in the recording it lies.
        new_tokens: how many tokens were generated.
        cache: where the compiled function came from; None for a silent window, which no function
            was asked about.
        timing: the window's share of the request's; they add up to it.
    """

    start_s: float
    end_s: float
    text: str
    new_tokens: int
    cache: CacheOutcome | None
    timing: Timing


@dataclass(frozen=True)
class Transcription(GenerationResult):
    """What was said in a recording.

    The fields of `GenerationResult` are about the whole recording: `text` and `tokens` are all
    windows' in their order, `prompt_tokens` the frames of the spectrogram that sound fills, `cache`
    and `first_call` those of the first window that was run, `timing` all windows' together.

    Attributes:
        audio_s: seconds of the recording; when stopped, up to the last window that was run.
        language: code of the language, as asked for or as heard; None where the model knows only
            one and has no name for it.
        windows: what was said when.
    """

    audio_s: float = 0.0
    language: str | None = None
    windows: tuple[TranscribedWindow, ...] = ()

    @property
    def real_time_factor(self) -> float:
        """`timing.total_s` over `audio_s`, waiting, tracing and compiling included.

        Below 1 is faster than real time: 0.25 is 4 times faster.
        """
        return self.timing.total_s / self.audio_s

    @property
    def speedup(self) -> float | None:
        """How many times longer the first call of this function took than a window's run here.

        None when the first window was that first call: there is nothing to compare yet.
        """
        of_all_windows = super().speedup
        runs = sum(window.cache is not None for window in self.windows)
        return of_all_windows * runs if of_all_windows is not None else None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line and the API."""
        return {
            **super().to_json(),
            "audio_s": self.audio_s,
            "real_time_factor": self.real_time_factor,
        }


@dataclass(frozen=True)
class Prediction:
    """What a request would meet if it were sent now.

    Attributes:
        outcome: HIT, MISS, DISK or REUSED.
        key: the compiled function that it would run on.
        requested_key: the function that fits it best; differs from `key` when REUSED.
        prompt_tokens: tokens of the prompt, without padding.
        expected_s: seconds, from what this key (or on a miss, the likeliest other one) took
            before; None when nothing comparable was measured yet.
    """

    outcome: CacheOutcome
    key: CacheKey
    requested_key: CacheKey
    prompt_tokens: int
    expected_s: float | None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the API."""
        return {
            "cache": self.outcome.value,
            "key": self.key.to_dict(),
            "requested_key": self.requested_key.to_dict(),
            "prompt_tokens": self.prompt_tokens,
            "expected_s": self.expected_s,
        }


@dataclass(frozen=True)
class ModelInfo:
    """A model that can be asked for.

    Attributes:
        family: "decoder-only", "encoder-decoder" or "speech".
        source: "bundled" (ships with the project), "hub" (downloaded when first asked for) or
            "folder".
        context_length: most tokens of prompt and text together; None until it is known.
        model_type: its architecture by Hugging Face's name ("gpt2", "opt", "t5", "whisper"); empty
            for a Hub model of which nothing but its name is known yet.
        is_multilingual: whether it is a speech model that has to be told, or hears, the language.
    """

    name: str
    family: Literal["decoder-only", "encoder-decoder", "speech"]
    source: Literal["bundled", "hub", "folder"]
    description: str
    context_length: int | None = None
    loaded: bool = False
    is_multilingual: bool = False
    model_type: str = ""


@dataclass(frozen=True)
class EngineStatus:
    """What the engine is doing right now.

    Attributes:
        state: the activity.
        detail: the model or key it concerns, for a visitor to read; may be empty.
        since: `time.perf_counter()` when the state began.
        progress: how much of a download is here, 0 to 1; None in every other state.
        note: what just happened to the engine, for a visitor to read; empty for nothing special.
    """

    state: Literal[
        "starting",
        "downloading",
        "loading",
        "ready",
        "tracing",
        "compiling",
        "generating",
        "measuring",
        "stopped",
    ]
    detail: str = ""
    since: float = 0.0
    progress: float | None = None
    note: str = ""

    def replace(self, **changes: Any) -> EngineStatus:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)
