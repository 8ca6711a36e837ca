"""Results: the plain values that the engine returns to callers and across processes.

Knows the fields of results, cache entries, predictions and model descriptions. Must not know how
they are made, nor TensorFlow: everything here can be pickled and turned into JSON.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import dropwhile
from typing import Any, Literal, NamedTuple, Self

from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.timing import Span, Statistics, Timing


class CacheOutcome(str, Enum):
    """Where a request's compiled function came from."""

    HIT = "hit"
    """It was in memory."""
    MISS = "miss"
    """It was traced and compiled for this request."""
    DISK = "disk"
    """It was restored from the store on disk."""
    REUSED = "reused"
    """A larger function was in memory and served the request."""


class TopLogprob(NamedTuple):
    """One of the most likely tokens at a position. Fields as in `Token`.

    `is_forbidden` says whether a grammar forbade it there.
    """

    id: int
    text: str
    logprob: float
    is_forbidden: bool = False


@dataclass(frozen=True)
class Token:
    """One generated token.

    Attributes:
        id: its number in the vocabulary.
        text: its own text; several tokens can share a character, so joining these is not exact.
        logprob: natural logarithm of its probability, before temperature, filters and penalties.
        top_logprobs: the 20 most likely tokens at this position, best first; the token itself may
            not be among them.
        in_same_pass: whether it came from the same pass of the model as the token before it, with
            prompt lookup or a grammar.
        forbidden: the probability, 0 to 1, of all tokens that a grammar forbade at this position.
        is_forced: whether a grammar left no other text than this token's.
    """

    id: int
    text: str
    logprob: float
    top_logprobs: tuple[TopLogprob, ...] = ()
    in_same_pass: bool = False
    forbidden: float = 0.0
    is_forced: bool = False


class PromptProgress(NamedTuple):
    """How far a prompt has been read.

    Attributes:
        total: number of its tokens. cached: those that were not computed again. processed: those
            that are read, including cached ones.
        time_s: seconds since reading began.
    """

    total: int
    cached: int
    processed: int
    time_s: float


class TextChunk(str):
    """A chunk of a text with its tokens.

    Attributes:
        tokens: since the previous chunk, without the one that ends the text. If a stop string cuts
            the chunk, its tokens are only in the result.
        generated: how many tokens the text has so far; 0 in an empty chunk.
        progress: of the prompt, in an empty chunk; None in others.
    """

    tokens: tuple[Token, ...] = ()
    generated: int = 0
    progress: PromptProgress | None = None


@dataclass(frozen=True)
class Miss:
    """Why no function in memory could serve a request.

    Attributes:
        nearest: the function that needs the fewest changes; None if the model has none.
        changes: what would have avoided the compile, each a part of a sentence: "1 beam instead of
            4".
        outcome: what the request would then have been.
    """

    nearest: CacheKey | None = None
    changes: tuple[str, ...] = ()
    outcome: CacheOutcome | None = None

    def sentence(self, tense: Literal["would be", "would have been"]) -> str:
        """The reason, for a person."""
        if self.nearest is None or self.outcome is None:
            return "No compiled function of this model can serve it with other options."
        outcome = self.outcome.value.upper()
        return f"With {' and '.join(self.changes)} it {tense} {outcome}."

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the API."""
        return {
            "reason": self.sentence("would have been"),
            "nearest_key": self.nearest.to_dict() if self.nearest else None,
            "changes": list(self.changes),
        }


PrefixCause = Literal[
    "differs", "evicted", "restarted", "not written", "no state", "other model", "new salt"
]
"""Why a prefix was not reused; see `PrefixMiss`."""
PrefixField = Literal[
    "date", "space", "thoughts", "tools", "left out", "inserted", "tokens", "content", "template"
]
"""What differs between two prompts: a date or time; white space; thoughts, which a template drops;
tools; messages that were left out or inserted; only how the same text is split into tokens; a text
of another kind, in a message or in the template around it."""
_FIELDS: dict[str, str] = {
    "date": "a date or time",
    "space": "white space",
    "thoughts": "thoughts that one of them lacks",
    "tools": "the tools",
    "left out": "what came next there was left out",
    "inserted": "something was inserted",
    "tokens": "the same text, split into other tokens",
    "content": "its text",
    "template": "what the chat template writes",
}


@dataclass(frozen=True)
class PrefixMiss:
    """Why a row reused less of its prompt than there was, or had been, in the cache.

    Attributes:
        cause: "differs" from an earlier text of the same salt; "evicted" from memory; "restarted":
            the engine was, since; "not written": another row was still computing the same text;
            "no state": the model goes on only behind certain tokens; "other model": the text is
            cached for that one; "new salt": nothing is cached under this salt.
        place: the prompt's first token that was not reused; where it differs, the first that the
            earlier text does not have there.
        tokens: how many were read again, although an earlier text had them.
        seconds: the share of the prefill that they took.
        message, role: the message in which the texts part, counted from 0, and its role; None
            and empty outside of messages.
        field: what differs there; empty for other causes.
        before, sent, cached: the text before the place, and how the prompt and the earlier text go
            on; empty where callers share the salt, and for other causes.
        at: when it was evicted or lost, in seconds since 1970; None for other causes.
        by_others: whether it was evicted to make room for a request with another salt.
        model: the other model; empty for other causes.
    """

    cause: PrefixCause
    place: int
    tokens: int = 0
    seconds: float = 0.0
    message: int | None = None
    role: str = ""
    field: PrefixField | Literal[""] = ""
    before: str = ""
    sent: str = ""
    cached: str = ""
    at: float | None = None
    by_others: bool = False
    model: str = ""

    @property
    def reason(self) -> str:
        """The reason, for a person."""
        when = (
            f" at {datetime.fromtimestamp(self.at, UTC):%H:%M:%S} UTC"
            if self.at is not None
            else ""
        )
        first = f"From token {self.place + 1} on, "
        match self.cause:
            case "differs":
                place = f"It parts from an earlier prompt at token {self.place + 1}"
                if self.message is not None:
                    place += f", in message {self.message + 1} ({self.role})"
                return f"{place}: {_FIELDS[self.field]}."
            case "evicted":
                whom = "another salt" if self.by_others else "the same salt"
                return f"{first}it was evicted from memory{when}, for a request with {whom}."
            case "restarted":
                return f"{first}it was lost when the engine restarted{when}."
            case "not written":
                return f"{first}another request was still computing the same text."
            case "no state":
                return f"{first}it was cached, but this model can go on only from there."
            case "other model":
                return f"It is cached for {self.model}; each model has keys and values of its own."
            case "new salt":
                return "Nothing is cached under this salt yet."

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the API, without empty fields; seconds as milliseconds."""
        fields = dataclasses.asdict(self)
        ms = round(1000 * fields.pop("seconds"), 3)
        given = {
            name: each
            for name, each in fields.items()
            if each is not None and each is not False and each != ""
        }
        return {"reason": self.reason, **given, "ms": ms}


@dataclass(frozen=True)
class FirstCall:
    """The phases of a compiled function's first call, in seconds.

    Attributes:
        made_at: when the function was made, in seconds since 1970; None if unknown.
    """

    outcome: CacheOutcome
    trace_s: float
    compile_s: float
    run_s: float
    made_at: float | None = None

    @property
    def once_s(self) -> float:
        """Tracing and compiling, or restoring."""
        return self.trace_s + self.compile_s

    @property
    def total_s(self) -> float:
        """Tracing (or restoring), compiling and running."""
        return self.once_s + self.run_s

    def gain(self, run_s: float) -> float | None:
        """How many times as long the same work takes where the function must be made for it.

        Args:
            run_s: seconds of the work with the function in memory; above 0, else there is no gain.
        """
        return (self.once_s + run_s) / run_s if run_s > 0 else None


@dataclass(frozen=True)
class Signature:
    """The key of a function made by `jit`: its arguments' types, such as `float32[8, 4]`."""

    arguments: str

    def __str__(self) -> str:
        return self.arguments


AnyKey = CacheKey | Signature
"""The key of a compiled function: of a model (`CacheKey`) or made by `jit` (`Signature`)."""


@dataclass(frozen=True)
class CacheEntry:
    """One compiled function in memory: its first call and statistics of later ones.

    Attributes:
        model: the model, or the function that `jit` got.
        key: of the function.
        cached: statistics of `Timing.run_s` of the calls after the first, for any number of tokens;
            None before there is one.
        batch_size: requests that it serves at once; `hits` and `cached` count each of them.
    """

    model: str
    key: AnyKey
    first_call: FirstCall
    hits: int
    cached: Statistics | None
    batch_size: int = 1

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the API; `first_call` also has "cache"."""
        first = dataclasses.asdict(self.first_call)
        return {
            "model": self.model,
            "key": self.key.to_dict() if isinstance(self.key, CacheKey) else str(self.key),
            "batch_size": self.batch_size,
            "first_call": {"cache": first.pop("outcome").value, **first},
            "hits": self.hits,
            "cached": dataclasses.asdict(self.cached) if self.cached else None,
        }


Finish = Literal["eos", "stop", "length", "stopped"]
"""What ended a text; see `GenerationResult`."""

GrammarWay = Literal["", "tensors", "step by step"]
"""How a grammar was followed; see `GenerationResult`."""


@dataclass(frozen=True)
class GenerationResult:
    """The result of one request.

    Attributes:
        model: the name that the request used.
        text: the continuation or answer, without the prompt and special tokens.
        tokens: the generated tokens, with the end-of-text token; if a stop string cut the text,
            those of the remaining text, with the last one's own text cut.
        prompt_tokens: tokens of the prompt, without padding.
        key: cache key of the function that served the request.
        requested_key: the request's exact cache key; differs from `key` when REUSED.
        cache: where the compiled function came from.
        finish: "eos" (the model ended its text), "stop" (a stop string did), "length"
            (max_new_tokens) or "stopped".
        timing: the phases, in seconds.
        since_first_token_s: the part of `timing.total_s` that came after the first token.
        first_call: of `key`: the call that compiled it, now or in an earlier process; the one that
            restored it if that is unknown.
        load_s: seconds of loading the model for this request, not part of `timing`.
        prompt_texts: text of each prompt token, as in `Token`; empty for a recording.
        prompt_logprobs: the prompt's tokens with their log-probabilities, if they were requested;
            the first has none, so its number is 0, without top tokens.
        batch_size: number of requests that ran together, this one included. They share the
            processor, so `timing` and `tokens_per_second` are this request's share.
        cut_tokens: number of tokens that were generated beyond `tokens`, until a stop string was
            found.
        spans: the phases in order, with each call of a compiled function and its tokens; they add
            up to `timing`.
        cached_tokens: prompt tokens whose keys and values were cached and not computed again.
        passes: with prompt lookup or a grammar's tables, how often the model ran for the tokens
            after the first one; None without.
        rounded_bits: to how many bits the model's weights were rounded; None if they are as stored.
        activations: see `ModelInfo`.
        background_compile_s: how long other functions were compiled meanwhile, which slows it down.
        stop_string: the one that ended it; empty if none did.
        grammar: how its grammar was followed: by tables in the compiled loop, or token by token
            where these would be too large or endless; empty without one.
        miss: why it had to compile; None where it did not.
        prefix_miss: why a row did not reuse more of its prompt; None if nothing could be.
        thought_tokens: of `tokens`, how many are thoughts in front of an answer, with the mark that
            opens them.
    """

    model: str
    text: str
    tokens: tuple[Token, ...]
    prompt_tokens: int
    key: CacheKey
    requested_key: CacheKey
    cache: CacheOutcome
    finish: Finish
    timing: Timing
    first_call: FirstCall
    options: GenerationOptions
    since_first_token_s: float = 0.0
    load_s: float = 0.0
    prompt_texts: tuple[str, ...] = ()
    prompt_logprobs: tuple[Token, ...] = ()
    batch_size: int = 1
    cut_tokens: int = 0
    spans: tuple[Span, ...] = ()
    cached_tokens: int = 0
    passes: int | None = None
    rounded_bits: int | None = None
    activations: str = "exact"
    background_compile_s: float = 0.0
    stop_string: str = ""
    grammar: GrammarWay = ""
    thought_tokens: int = 0
    miss: Miss | None = None
    prefix_miss: PrefixMiss | None = None

    @property
    def new_tokens(self) -> int:
        return len(self.tokens)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token from the request's arrival, with queue, trace and compile.

        None without a token. With several beams, that token may still be replaced.
        """
        is_any = self.new_tokens + self.cut_tokens > 0
        return self.timing.total_s - self.since_first_token_s if is_any else None

    @property
    def ttft_queue_s(self) -> float:
        """The queue time in `ttft_s`: `timing.queue_s` without the waiting between chunks."""
        later = dropwhile(lambda span: not span.tokens, self.spans)
        return self.timing.queue_s - sum(span.duration_s for span in later if span.name == "queue")

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first one; None with less than two."""
        generated = self.new_tokens + self.cut_tokens
        return self.since_first_token_s / (generated - 1) if generated > 1 else None

    @property
    def tokens_per_second(self) -> float | None:
        """Decode tokens per second, 1 / `tpot_s`, or None."""
        return 1 / self.tpot_s if self.tpot_s else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Tokens per pass of the model after the first token; None without prompt lookup."""
        return (self.new_tokens + self.cut_tokens - 1) / self.passes if self.passes else None

    def after_waiting(self, waited_s: float) -> Self:
        """A copy with the time in a queue before the engine added to the queue time."""
        timing = dataclasses.replace(
            self.timing,
            queue_s=self.timing.queue_s + waited_s,
            total_s=self.timing.total_s + waited_s,
        )
        return dataclasses.replace(self, timing=timing)

    @property
    def speedup(self) -> float | None:
        """How many times as long the first token would take as in the function's first call, which
        made it: `FirstCall.gain` of the prefill. None for that first call.

        It is the same whatever the length of the text.
        """
        if self.cache in (CacheOutcome.MISS, CacheOutcome.DISK):
            return None
        return self.first_call.gain(self.first_token_run_s)

    @property
    def first_token_run_s(self) -> float:
        """Seconds in which the function itself gave the first token."""
        return self.timing.prefill_s

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line and the API."""
        special = {
            "tokens_per_pass": self.tokens_per_pass,
            "grammar": self.grammar,
            "rounded_bits": self.rounded_bits,
            "activations": "" if self.activations == "exact" else self.activations,
            "background_compile_s": self.background_compile_s,
            "miss": self.miss and self.miss.to_json(),
            "cache_miss": self.prefix_miss and self.prefix_miss.to_json(),
        }
        return {
            "model": self.model,
            "text": self.text,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "new_tokens": self.new_tokens,
            "finish_reason": "stop" if self.finish == "eos" else self.finish,
            "key": self.key.to_dict(),
            "cache": self.cache.value,
            "options": {
                name: value
                for name, value in self.options.to_dict().items()
                if name != "grammar" and value not in ([], {})
            },
            "batch_size": self.batch_size,
            "timing": self.timing.to_dict(),
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            **{name: value for name, value in special.items() if value},
        }


@dataclass(frozen=True)
class TimedText:
    """A part of a transcript, its place in the recording in seconds, and its tokens."""

    start_s: float
    end_s: float
    text: str
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class TranscribedWindow:
    """The transcript of one window of a recording.

    Attributes:
        start_s, end_s: its place in the recording, in seconds.
        new_tokens: number of generated tokens.
        cache: where the compiled function came from; None for a silent window, which is not run.
        timing: this window's part of the request's timing; they add up to it.
        segments: its text, split at the model's timestamps; one segment if there are none.
        temperature: with which its text was found.
        mean_logprob: of its tokens.
        no_speech: the probability that nobody speaks in it; 0 for models that do not tell.
    """

    start_s: float
    end_s: float
    text: str
    new_tokens: int
    cache: CacheOutcome | None
    timing: Timing
    segments: tuple[TimedText, ...] = ()
    temperature: float = 0.0
    mean_logprob: float = 0.0
    no_speech: float = 0.0


@dataclass(frozen=True)
class Transcription(GenerationResult):
    """The transcript of a recording.

    The inherited fields are about the whole recording: `text`, `tokens` and `timing` cover all
    windows, `prompt_tokens` counts the spectrogram frames that sound fills, `cache` and
    `first_call` are those of the first window that ran.

    Attributes:
        audio_s: seconds of the recording; when stopped, up to the last window that ran.
        language: code of the requested or detected language; None if the model knows one language
            and has no name for it.
        windows: the transcript of each window.
    """

    audio_s: float = 0.0
    language: str | None = None
    windows: tuple[TranscribedWindow, ...] = ()

    @property
    def segments(self) -> list[TimedText]:
        return [segment for window in self.windows for segment in window.segments]

    @property
    def tpot_s(self) -> float | None:
        """As for a text; None if several windows ran, because each has its own prefill."""
        runs = sum(window.cache is not None for window in self.windows)
        return super().tpot_s if runs == 1 else None

    @property
    def real_time_factor(self) -> float:
        """`timing.total_s` (waiting, tracing and compiling included) over `audio_s`.

        0.25 is 4 times faster than real time.
        """
        return self.timing.total_s / self.audio_s

    @property
    def first_token_run_s(self) -> float:
        """The mean of the windows that ran."""
        runs = sum(window.cache is not None for window in self.windows)
        return self.timing.prefill_s / max(1, runs)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line and the API."""
        return {
            **super().to_json(),
            "audio_s": self.audio_s,
            "real_time_factor": self.real_time_factor,
        }


@dataclass(frozen=True)
class Prediction:
    """The predicted outcome of a request.

    Attributes:
        outcome: HIT, MISS, DISK or REUSED.
        key: cache key of the function that it would run on.
        requested_key: its exact cache key; differs from `key` when REUSED.
        prompt_tokens: tokens of the prompt, without padding.
        expected_s: seconds, from earlier times of this key (on a miss, of the most similar one);
            None if nothing comparable was measured yet.
        low_s, high_s: the expected range, from the scatter of those times; None likewise.
        miss: why it must compile; None where it need not.
    """

    outcome: CacheOutcome
    key: CacheKey
    requested_key: CacheKey
    prompt_tokens: int
    expected_s: float | None
    low_s: float | None = None
    high_s: float | None = None
    miss: Miss | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the API."""
        return {
            "cache": self.outcome.value,
            "key": self.key.to_dict(),
            "requested_key": self.requested_key.to_dict(),
            "prompt_tokens": self.prompt_tokens,
            "expected_s": self.expected_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            **({"miss": self.miss.to_json()} if self.miss else {}),
        }


@dataclass(frozen=True)
class ModelInfo:
    """A model that requests can name.

    Attributes:
        family: "decoder-only", "encoder-decoder" or "speech".
        source: "bundled" (ships with the project), "hub" (downloaded at its first use) or "folder".
        context_length: bound on the tokens of prompt and text together; None if it is unknown.
        model_type: Hugging Face's name of its architecture ("gpt2", "opt", "t5", "whisper"); empty
            if it is unknown before the download.
        is_multilingual: whether it is a speech model for several languages.
        is_instruct: whether it has a chat template, so that it answers messages; before the
            download guessed from its name.
        on_disk: whether its files are on this computer.
        license: from its card; empty if it is unknown.
        download_bytes: approximate download size; None if there is no download, or it is unknown.
        weights: format of its matrices in memory: "auto" (as they are stored), "float32",
            "bfloat16" or "int8".
        activations: what matrices in blocks are multiplied by: "exact" or rounded to "int8".
        kernels: what computes: "own" machine code, or "xla" alone, with matrices in float32.
        device: what computes it, "cpu" or a GPU with its name.
        own_context: context of the model itself if the server serves less; otherwise None.
        parameters: number of weights; None before it is loaded.
        formats: of its stored weights ("Q4_1, Q8_0"), the most used first; empty before it is
            loaded.
        stored_bytes: size of its weights on disk; None if they are not on this computer.
        weights_bytes: size of its weights in memory; None before it is loaded.
        rounded_bits: to how many bits its weights were rounded; None if they are as stored, or it
            is not loaded.
        matrices: bytes of its matrices in memory by format, by the name that they share in all
            layers: {"mlp.down_proj": {"Q6_K": 8_000_000}}; empty before it is loaded.
        sampling: the sampling options that its makers recommend, from its generation_config.json
            or its card.
    """

    name: str
    family: Literal["decoder-only", "encoder-decoder", "speech"]
    source: Literal["bundled", "hub", "folder"]
    description: str
    context_length: int | None = None
    loaded: bool = False
    is_multilingual: bool = False
    model_type: str = ""
    is_instruct: bool = False
    on_disk: bool = False
    license: str = ""
    download_bytes: int | None = None
    weights: str = "auto"
    activations: str = "exact"
    kernels: str = "own"
    device: str = "cpu"
    own_context: int | None = None
    parameters: int | None = None
    formats: str = ""
    stored_bytes: int | None = None
    weights_bytes: int | None = None
    rounded_bits: int | None = None
    matrices: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict, hash=False)
    sampling: dict[str, float] = dataclasses.field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class EngineStatus:
    """What the engine is doing now.

    Attributes:
        state: the activity.
        detail: its model or cache key, as text for visitors; may be empty.
        since: `time.perf_counter()` when the state began.
        progress: the downloaded part, or the part of the prompt that was read, 0 to 1; None in
            other states, or if unknown.
        note: a recent event of the engine, as text for visitors; may be empty.
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


RequestState = Literal[
    "queued",
    "loading",
    "tracing",
    "compiling",
    "restoring",
    "reading",
    "writing",
    "reserved",
    "done",
    "stopped",
    "failed",
]
"""What a request is doing: "queued" until nothing but a stop can keep it from running; "reserved"
while it only keeps others from running; the last three are its end."""


@dataclass(frozen=True)
class Progress:
    """The state of a request.

    Attributes:
        state: see `RequestState`.
        since: `time.perf_counter()` when it began, one clock for all processes of a machine.
        ahead: while queued, the number of requests before it.
        waits_for: while queued, the exclusive run before it; empty without one.
        wait_s: while queued, expected seconds until those before it have ended; None if unknown.
    """

    state: RequestState
    since: float
    ahead: int = 0
    waits_for: str = ""
    wait_s: float | None = None


class RowRun(NamedTuple):
    """Sizes and times of a text that ran alone, such as a row of a pool.

    Attributes:
        prompt_tokens: of the prompt.
        positions: how many were computed for the prompt: see `buckets.positions`.
        prefill_s, decode_s: see `Timing`.
        new_tokens: generated tokens.
        is_cut: whether it ended at the token limit.
    """

    prompt_tokens: int
    positions: int
    prefill_s: float
    decode_s: float
    new_tokens: int
    is_cut: bool


@dataclass(frozen=True)
class KeyHistory:
    """The history of one cache key, in seconds; None for what never happened.

    Attributes:
        times: number of requests for this key.
        miss_s: the last first call that compiled: trace, compile and run.
        disk_s: the last first call that was restored from the store.
        run_s: the last run of the compiled function.
        compiled: that first call by its phases; also None in files of older versions.
        rows: the latest texts that ran alone, of a pool or of padded functions.
    """

    times: int = 0
    miss_s: float | None = None
    disk_s: float | None = None
    run_s: float | None = None
    compiled: FirstCall | None = None
    rows: tuple[RowRun, ...] = ()


@dataclass(frozen=True)
class KVMemoryUse:
    """Memory of keys and values, of running rows and of cached prefixes.

    Attributes:
        cached_tokens: of prefixes.
        used_bytes: of blocks in use. limit_bytes: their bound.
    """

    cached_tokens: int = 0
    used_bytes: int = 0
    limit_bytes: int = 0


Past = dict[str, dict[CacheKey, KeyHistory]]
"""Model -> cache key -> its history."""
