"""The answers of OpenAI's protocol, typed, and how the engine's results become them.

Knows the objects and the engine's results. Must not know HTTP, nor how an answer is streamed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from xla_backend.answers.decoder import IncrementalDecoder
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.results import (
    GenerationResult,
    GrammarWay,
    TextChunk,
    Token,
    TopLogprob,
)


def _is_none(value: object) -> bool:
    return value is None


MIN_LOGPROB = -9999.0
"""OpenAI's number for an impossible token; JSON has no infinity."""
Finish = Literal["stop", "length", "tool_calls"]


class TokenDetails(BaseModel):
    """How many of a prompt's tokens were reused from the cache, see `cache_salt`."""

    cached_tokens: int


class AnswerDetails(BaseModel):
    """How many of an answer's tokens are its thoughts."""

    reasoning_tokens: int


class Usage(BaseModel):
    """Tokens of a request, including those generated after a stop string."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokenDetails
    completion_tokens_details: AnswerDetails


class Timings(BaseModel):
    """Times of a run in milliseconds; the first five and the two rates are llama.cpp's.

    `prompt_n` counts the prompt tokens that were computed, `cache_n` those that were reused;
    `prompt_ms` is prefill, which includes the first new token; `predicted_ms` is decode. `ttft_ms`
    counts from the request's arrival. `cache` says where the compiled function with this `key` came
    from. `tokens_per_pass` is set with prompt lookup, `grammar` with one, `miss` where it had to
    compile (the nearest function, and what would have avoided it), `cache_miss` where more of the
    prompt had been cached: why it was not reused, and where it parts from an earlier one.
    """

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cache_n: int
    cache: Literal["hit", "miss", "disk", "reused"]
    key: dict[str, int]
    batch_size: int
    queue_ms: float
    trace_ms: float
    compile_ms: float
    total_ms: float
    ttft_ms: float | None
    tpot_ms: float | None
    prompt_per_second: float | None
    predicted_per_second: float | None
    tokens_per_pass: float | None = None
    grammar: GrammarWay = ""
    miss: dict[str, Any] | None = None
    cache_miss: dict[str, Any] | None = Field(default=None, exclude_if=_is_none)


class TopTokenLogprob(BaseModel):
    """One of the most likely tokens at a position; `bytes` may be a part of a character."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopTokenLogprob):
    """A token and the most likely ones at its position."""

    top_logprobs: list[TopTokenLogprob]


class ChatLogprobs(BaseModel):
    """The tokens of an answer."""

    content: list[TokenLogprob]


class FunctionCall(BaseModel):
    """A function's name, and its arguments as JSON text; in an event, the next part of them."""

    name: str | None = None
    arguments: str


class AnswerCall(BaseModel):
    """A tool call of the model."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class AnswerMessage(BaseModel):
    """The model's message; `content` is null if there are only calls or thoughts."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    reasoning_content: str | None = Field(default=None, exclude_if=operator.not_)
    refusal: None = None
    tool_calls: list[AnswerCall] = Field(default=[], exclude_if=operator.not_)


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish
    token_ids: list[int] | None = None


class CompletionLogprobs(BaseModel):
    """The tokens of a text, and the offset of each; null for the first one of a prompt."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(BaseModel):
    """vLLM's form of a token; `rank` only among the most likely ones."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""By ids, at each place of a prompt; null at the first one."""


class CompletionChoice(BaseModel):
    """One text."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None = None
    finish_reason: Finish | None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None


class DeltaCall(BaseModel):
    """The next part of a call; the first part has id, type and name."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionCall


class Delta(BaseModel):
    """The next part of an answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[DeltaCall] | None = None


class ChunkChoice(BaseModel):
    """The next part of one of the answers."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: Finish | None
    token_ids: list[int] | None = None


class Answer(BaseModel):
    """What answers and events have in common.

    `ignored_fields` names the request's fields that were not understood.
    """

    id: str
    created: int
    model: str
    system_fingerprint: str | None
    ignored_fields: list[str] = Field(default=[], exclude_if=operator.not_)


class Event(Answer):
    """An event of a streamed answer; the last of each choice has its timings."""

    usage: Usage | None = None
    timings: Timings | None = None
    prompt_progress: dict[str, float] | None = None


class ChatCompletion(Answer):
    """Answers to messages; `timings` are those of the first."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | None = None


class ChatChunk(Event):
    """An event of answers to messages."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    prompt_token_ids: list[int] | None = None


class Completion(Event):
    """Continuations of prompts, n for each; events of a stream have the same form."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class ModelEntry(BaseModel):
    """A model that requests can name; fields from `weights` on as in `ModelInfo`.

    `sampling` has the default options of a request; `max_model_len` is vLLM's name of
    `context_length`.
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    family: str
    context_length: int | None
    max_model_len: int | None
    is_instruct: bool
    weights: str
    rounded_bits: int | None
    activations: str
    kernels: str
    device: str
    sampling: dict[str, float]


class Models(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


class Segment(BaseModel):
    """The text between two timestamps of the model, or of a window if it has no timestamps.

    As in Whisper's own program, `seek` is the window's begin in steps of 10 ms, and the last four
    fields are the window's.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class AudioUsage(BaseModel):
    """The unit that transcriptions are counted in."""

    type: Literal["duration"]
    seconds: float


class Transcript(BaseModel):
    """A transcript; `task`, `language`, `duration` and `segments` only with "verbose_json"."""

    text: str
    usage: AudioUsage
    timings: Timings
    task: Literal["transcribe"] = "transcribe"
    language: str | None = None
    duration: float = 0.0
    segments: list[Segment] = []
    ignored_fields: list[str] = []


class Error(BaseModel):
    """The error."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """The answer to a request that cannot be served."""

    type: Literal["error"] = "error"
    error: Error


def generated(result: GenerationResult) -> int:
    """Number of generated tokens, including those after a stop string."""
    return result.new_tokens + result.cut_tokens


def usage(results: Sequence[GenerationResult], times: int) -> Usage:
    """The tokens of a request.

    Args:
        results: of all its runs, grouped by prompt.
        times: runs per prompt, whose tokens count once.
    """
    prompt_tokens = sum(result.prompt_tokens for result in results[::times])
    written = sum(map(generated, results))
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=written,
        total_tokens=prompt_tokens + written,
        prompt_tokens_details=TokenDetails(
            cached_tokens=sum(result.cached_tokens for result in results[::times])
        ),
        completion_tokens_details=AnswerDetails(
            reasoning_tokens=sum(result.thought_tokens for result in results)
        ),
    )


def timings(result: GenerationResult) -> Timings:
    """The times of a run."""
    timing, computed = result.timing, result.prompt_tokens - result.cached_tokens
    return Timings(
        prompt_n=computed,
        prompt_ms=_ms(timing.prefill_s),
        predicted_n=generated(result),
        predicted_ms=_ms(timing.decode_s),
        cache_n=result.cached_tokens,
        cache=result.cache.value,
        key=result.key.to_dict(),
        batch_size=result.batch_size,
        queue_ms=_ms(timing.queue_s),
        trace_ms=_ms(timing.trace_s),
        compile_ms=_ms(timing.compile_s),
        total_ms=_ms(timing.total_s),
        ttft_ms=None if result.ttft_s is None else _ms(result.ttft_s),
        tpot_ms=None if result.tpot_s is None else _ms(result.tpot_s),
        prompt_per_second=computed / timing.prefill_s if timing.prefill_s else None,
        predicted_per_second=1 / result.tpot_s if result.tpot_s else None,
        tokens_per_pass=result.tokens_per_pass,
        grammar=result.grammar,
        miss=result.miss.to_json() if result.miss else None,
        **cache_miss(result),
    )


def cache_miss(result: GenerationResult) -> dict[str, Any]:
    """The field that says why no more of a prompt was reused, if there is a reason."""
    return {"cache_miss": result.prefix_miss.to_json()} if result.prefix_miss else {}


def progress(text: str) -> dict[str, dict[str, float]]:
    """The event's field for the prompt's progress in a chunk, if it has any, as llama.cpp's: tokens
    and milliseconds."""
    if not isinstance(text, TextChunk) or (read := text.progress) is None:
        return {}
    counts = {"total": read.total, "cache": read.cached, "processed": read.processed}
    return {"prompt_progress": counts | {"time_ms": _ms(read.time_s)}}


def finish_reason(result: GenerationResult, has_called: bool = False) -> Finish:
    """Why a text ended; a complete call counts as a call even if the token limit ended it."""
    if has_called:
        return "tool_calls"
    return "length" if result.finish == "length" else "stop"


def chat_logprobs(tokens: Sequence[Token], most: int, tokenizer: Tokenizer | None) -> ChatLogprobs:
    """Tokens of an answer, each with its `most` most likely alternatives."""
    return ChatLogprobs(
        content=[
            TokenLogprob(
                **_token(token, tokenizer),
                top_logprobs=[
                    TopTokenLogprob(**_token(top, tokenizer)) for top in token.top_logprobs[:most]
                ],
            )
            for token in tokens
        ]
    )


class Offsets:
    """The offset of each token in a text.

    Not the sum of the tokens' own texts: characters may be split, and the text may lose its first
    space.
    """

    def __init__(self, tokenizer: Tokenizer | None, shown: Iterable[int] = ()) -> None:
        """`shown` special tokens are part of the text."""
        self._decoder = IncrementalDecoder(tokenizer, frozenset(shown)) if tokenizer else None
        self._length = 0

    def of(self, token: Token) -> int:
        """The offset of the next token."""
        before = self._length
        self._length += len(self._decoder.push([token.id]) if self._decoder else token.text)
        return before


def completion_logprobs(
    tokens: Sequence[Token], most: int, offsets: Offsets, prompt: Sequence[Token] = ()
) -> CompletionLogprobs:
    """Tokens of a prompt and a text, each with itself and its `most` most likely alternatives."""
    shown = [*prompt, *tokens]
    found = CompletionLogprobs(
        tokens=[token.text for token in shown],
        token_logprobs=[_logprob(token) for token in shown],
        top_logprobs=[
            # Parts of characters share one text: the first, most likely one is kept.
            {token.text: _logprob(token)}
            | {top.text: _logprob(top) for top in reversed(token.top_logprobs[:most])}
            for token in shown
        ],
        text_offset=list(map(offsets.of, shown)),
    )
    if prompt:
        found.token_logprobs[0] = found.top_logprobs[0] = None
    return found


def prompt_logprobs(tokens: Sequence[Token], most: int | None) -> PromptLogprobs | None:
    """Tokens of a prompt, each with its `most` most likely alternatives; None if not requested."""
    if most is None:
        return None
    found: PromptLogprobs = [None]
    for token in tokens[1:]:
        ranks = {top.id: place for place, top in enumerate(token.top_logprobs, 1)}
        shown: list[Token | TopLogprob] = [token, *token.top_logprobs[:most]]
        found.append(
            {
                str(each.id): PromptLogprob(
                    logprob=_logprob(each), rank=ranks.get(each.id), decoded_token=each.text
                )
                for each in shown
            }
        )
    return found


def written(result: GenerationResult) -> tuple[Token, ...]:
    """The tokens of the text, without the one that ended it."""
    return result.tokens[:-1] if result.finish == "eos" else result.tokens


def _token(token: Token | TopLogprob, tokenizer: Tokenizer | None) -> dict[str, Any]:
    spelled: bytes | None = token.text.encode()
    if "\ufffd" in token.text:  # a part of a character
        spelled = tokenizer.token_bytes(token.id) if tokenizer else None
    return {
        "token": token.text,
        "logprob": _logprob(token),
        "bytes": None if spelled is None else list(spelled),
    }


def _logprob(token: Token | TopLogprob) -> float:
    return max(token.logprob, MIN_LOGPROB)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
