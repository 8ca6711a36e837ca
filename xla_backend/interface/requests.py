"""`TextRequest`, `SpeechRequest`: requests as their callers make them; `Prepared`: a text request
with what its model makes of it; `REQUEST_ID`: the server's id of the current HTTP request.

Knows their fields and what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from xla_backend.interface.decisions import Question, QuestionTokens
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import (
    DEFAULT_MAX_SECONDS,
    DEFAULT_OPTIONS,
    AudioInput,
    GenerationOptions,
)
from xla_backend.interface.prompt import Prompt

if TYPE_CHECKING:
    from xla_backend.interface.buckets import CacheKey
    from xla_backend.interface.results import ModelInfo

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""For logs; empty where nobody has named it."""


Mode = Literal["rows", "padded"]
"""How a text is generated: as a row of the model's pool, whose functions serve every length, or by
functions for the request's own padded sizes."""


@dataclass(frozen=True)
class TextRequest:
    """A request for a text.

    Attributes:
        model: a name that `Backend.models` lists, or a folder if the registry allows folders.
        prompt: the text to continue, or the messages of a conversation for an instruct model.
        options: of the generation.
        mode: "rows" needs a decoder-only model and one beam; "padded" cannot follow a grammar,
            answer questions, or give the log-probabilities of a prompt. None: rows where the model
            and the options (one beam, no `exact_key`) allow them, else padded.
        cache_salt: a row may reuse the prefixes of requests with the same salt. Timings tell a
            caller that knows a salt what others wrote, so give it only to those who may know.
            Empty: nothing is reused or shared.
        shares_salt: whether callers who do not know each other have this salt: then no result
            shows the text of an earlier request.
        tools: that the model may call, in OpenAI's form; with messages.
        template: variables of the chat template, as JSON values.
        in_chunks: False if only the result is wanted: no text is sent before it.
        with_tokens: chunks have their tokens, see `TextChunk`.
        with_progress: an empty chunk reports each part of the prompt that a row of the pool reads.
        with_prompt_logprobs: the result has the prompt's tokens with their log-probabilities. All
            of it is read, because cached prefixes have none.
        questions: about the prompt, which is a text. With them nothing is generated: the result is
            `Decisions`, and rows of the pool read the prompt once for all of them.
    """

    model: str
    prompt: Prompt
    options: GenerationOptions = DEFAULT_OPTIONS
    mode: Mode | None = None
    cache_salt: str = ""
    shares_salt: bool = False
    tools: tuple[dict[str, Any], ...] = ()
    template: Mapping[str, Any] = field(default_factory=dict)
    in_chunks: bool = True
    with_tokens: bool = False
    with_progress: bool = False
    with_prompt_logprobs: bool = False
    questions: tuple[Question, ...] = ()

    def mode_with(self, info: ModelInfo) -> Mode:
        """The mode in which a model serves it.

        Raises:
            InvalidRequest: its fields contradict each other, or the model cannot serve it.
        """
        options = self.options
        if options.prompt_lookup_num_tokens and info.family != "decoder-only":
            raise InvalidRequest(
                f"prompt_lookup_num_tokens works with decoder-only models, and {info.name} is not "
                "one: leave it out."
            )
        is_possible = (
            info.family == "decoder-only"
            and info.context_length is not None
            and options.num_beams == 1
        )
        is_padded = self.mode == "padded" or options.exact_key
        if self.mode == "rows" and (options.exact_key or not is_possible):
            raise InvalidRequest(
                "mode rows needs a decoder-only model, one beam and no exact_key, and this "
                f"request for {info.name} lacks one of them: leave mode out."
            )
        only_rows = {
            "follow a grammar": options.grammar,
            "answer questions": self.questions,
            "give the log-probabilities of a prompt": self.with_prompt_logprobs,
        }
        for what, is_requested in only_rows.items():
            if is_requested and (is_padded or not is_possible):
                raise InvalidRequest(
                    f"{info.name} cannot {what} here: that needs a decoder-only model, one beam "
                    "and no exact_key. Choose another model, or do not ask for it."
                )
        return "rows" if is_possible and not is_padded else "padded"


@dataclass(frozen=True)
class Prepared:
    """A text request with everything that its model's tokenizer and description make of it.

    Made once, by `AnyBackend.prepare` in the caller's process; the engine checks and computes none
    of it again.

    Attributes:
        request: as its caller made it.
        options: with the new tokens limited to the room in the context, and a grammar with what
            the model writes before its text.
        key: the exact cache key.
        token_ids: of the prompt, without padding; with questions, all that is read.
        shown: special tokens that are part of the text, because they are stop strings.
        questions: tokens of the questions; None without.
        tokenize_s: seconds that this took.
        opening: what the prompt has begun of an answer's text: the mark of thoughts, or nothing.
    """

    request: TextRequest
    options: GenerationOptions
    key: CacheKey
    token_ids: tuple[int, ...]
    shown: frozenset[int]
    questions: QuestionTokens | None
    tokenize_s: float
    opening: str = ""

    @property
    def model(self) -> str:
        return self.request.model

    @property
    def in_chunks(self) -> bool:
        return self.request.in_chunks


@dataclass(frozen=True)
class SpeechRequest:
    """A request to transcribe a recording.

    Attributes:
        model: a speech model.
        recording: a file's path, or (rate in Hz, samples) with samples of shape (n,) or
            (n, channels). It is cut into windows of the model's length, which all run on one
            compiled function; silent windows are skipped, except the first if all are silent.
        options: of each window's generation; `max_new_tokens` is cut to the model's positions.
            None for the most likely text, at most `options.WINDOW_TOKENS`.
        language: of the speech ("en", "German"); None to detect it, or for a model with a single
            language.
        max_seconds: longer recordings are refused.
        has_times: windows have segments with times, if the model has timestamps.
        in_chunks: as for a text.
    """

    model: str
    recording: AudioInput
    options: GenerationOptions | None = None
    language: str | None = None
    max_seconds: float = DEFAULT_MAX_SECONDS
    has_times: bool = False
    in_chunks: bool = True
