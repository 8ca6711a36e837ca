"""Prompts: checks, and encoding to tokens.

Knows the rules for prompts and their error messages. Must not know TensorFlow: the engine and the
page's process give the same messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from xla_backend.interface.buckets import BucketRules, CacheKey, pool_key
from xla_backend.interface.errors import ContextLengthExceeded, InvalidRequest
from xla_backend.interface.prompt import Message, TokenIds

if TYPE_CHECKING:
    from xla_backend.checkpoints.tokenization import Tokenizer
    from xla_backend.interface.options import GenerationOptions
    from xla_backend.interface.prompt import Prompt
    from xla_backend.interface.requests import TextRequest
    from xla_backend.interface.results import ModelInfo

ROLES = ("system", "user", "assistant", "tool")

UNBOUNDED_PROMPT_TOKENS = 2048
"""Longest prompt of a model with relative positions (T5), which has no bound of its own: four times
the length of T5's training; attention over twice as much would take gigabytes."""


def encode_prompt(
    tokenizer: Tokenizer,
    prompt: Prompt,
    info: ModelInfo,
    tools: Sequence[dict[str, Any]] = (),
    template: Mapping[str, Any] = MappingProxyType({}),
) -> list[int]:
    """Checks and encodes a prompt; returns its token ids.

    Args:
        tokenizer: the model's.
        prompt: the text to continue, or messages.
        info: the model.
        tools: see `Tokenizer.encode`.
        template: see there.

    Raises:
        InvalidRequest: the prompt is empty, blank or not text, or it is a speech model.
        ContextLengthExceeded: it is too long.
    """
    check_prompt(prompt, info)
    token_ids = tokenizer.encode(prompt, tools=tools, template=template)
    check_length(len(token_ids), info)
    return token_ids


def check_prompt(prompt: Prompt, info: ModelInfo) -> None:
    """Checks a prompt before it is tokenized.

    Raises:
        InvalidRequest: it is empty, blank or not text, or the model takes no text; a message has an
            unknown role, or the last one is empty and not the assistant's.
    """
    if info.family == "speech":
        raise InvalidRequest(
            f"{info.name} is a speech model: give it a recording to transcribe, or choose another "
            "model to generate text."
        )
    if isinstance(prompt, tuple):
        _check_messages(prompt)
        return
    if isinstance(prompt, TokenIds):
        if not prompt.ids:
            raise InvalidRequest("The prompt is empty. Send at least one token id.")
        return
    if not isinstance(prompt, str):
        raise InvalidRequest(f"The prompt must be text, not {type(prompt).__name__}.")
    if not prompt.strip():
        raise _empty("answer" if info.family == "encoder-decoder" else "continue")


def _check_messages(messages: tuple[Message, ...]) -> None:
    for place, message in enumerate(messages):
        if not isinstance(message, Message) or message.role not in ROLES:
            raise InvalidRequest(
                f"Message {place + 1} must be a Message with one of the roles {', '.join(ROLES)}."
            )
        if not isinstance(message.content, str):
            raise InvalidRequest(f"Message {place + 1}, the {message.role}'s, is not text.")
    if not messages:
        raise InvalidRequest("There are no messages. Send at least one.")
    last = messages[-1]
    if last.tool_calls:
        raise InvalidRequest(
            "The last message has tool calls: send their results after it, with the role tool."
        )
    is_asked = last.role in ("assistant", "tool") or last.content.strip()
    if not is_asked or not any(message.content.strip() for message in messages):
        raise _empty("answer")


def _empty(do: str) -> InvalidRequest:
    return InvalidRequest(f"The prompt is empty. Write a few words for the model to {do}.")


def is_pooled(info: ModelInfo, request: TextRequest) -> bool:
    """Whether a request runs as a row of the model's pool."""
    options = request.options
    asks = bool(
        request.cache_salt
        or options.prompt_lookup_num_tokens
        or options.grammar
        or request.questions
    )
    is_possible = info.family == "decoder-only" and info.context_length is not None
    return asks and is_possible and options.num_beams == 1 and not request.exact_key


def check_drafts(info: ModelInfo, options: GenerationOptions) -> None:
    """Checks that a model can verify drafts, if there are any.

    Raises:
        InvalidRequest: it cannot.
    """
    if options.prompt_lookup_num_tokens and info.family != "decoder-only":
        raise InvalidRequest(
            f"prompt_lookup_num_tokens works with decoder-only models, and {info.name} is not one: "
            "leave it out."
        )


def key_for(
    rules: BucketRules,
    info: ModelInfo,
    prompt_tokens: int,
    request: TextRequest,
    has_pool: bool = True,
) -> CacheKey:
    """The exact cache key of a request; `has_pool` is whether the model can have one here.

    Raises:
        InvalidRequest: as for `check_drafts`, or no row can follow the requested grammar.
    """
    options = request.options
    check_drafts(info, options)
    if has_pool and is_pooled(info, request):
        assert info.context_length is not None, "is_pooled"
        return pool_key(info.context_length, options.prompt_lookup_num_tokens)
    if options.grammar or request.questions:
        what = "answer questions" if request.questions else "follow a grammar"
        raise InvalidRequest(
            f"{info.name} cannot {what} here: that needs a decoder-only model, one beam, no "
            "exact_key, and a processor that converts float16. Choose another model, or leave "
            f"the {'questions' if request.questions else 'grammar'} out."
        )
    return rules.key_for(
        prompt_tokens, options.num_beams, options.max_new_tokens, info.context_length
    )


def check_length(prompt_tokens: int, info: ModelInfo) -> None:
    """Checks the length of a prompt without padding.

    Raises:
        ContextLengthExceeded: it has too many tokens for the model.
    """
    context = info.context_length
    most = UNBOUNDED_PROMPT_TOKENS if context is None else context - 1
    if prompt_tokens <= most:
        return
    least = "" if context is None else f", including at least one of the text: {most} are left"
    raise ContextLengthExceeded(
        # LiteLLM knows the error by this beginning, which is OpenAI's.
        f"This model's maximum context length is {context or most} tokens{least}. The prompt has "
        f"{prompt_tokens}: shorten it by {prompt_tokens - most}."
    )


def with_room(request: TextRequest, prompt_tokens: int, info: ModelInfo) -> TextRequest:
    """The request with its new tokens limited to the room in the context."""
    if info.context_length is None:
        return request
    room = info.context_length - prompt_tokens
    if request.options.max_new_tokens <= room:
        return request
    options = request.options.replace(max_new_tokens=room)
    return dataclasses.replace(request, options=options)
