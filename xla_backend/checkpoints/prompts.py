"""Prompts: checks with their messages, the same in the engine and the page, and encoding."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from xla_backend.interface.errors import ContextLengthExceeded, InvalidRequest
from xla_backend.interface.prompt import Message, TokenIds

if TYPE_CHECKING:
    from xla_backend.checkpoints.tokenization import Tokenizer
    from xla_backend.interface.options import GenerationOptions
    from xla_backend.interface.prompt import Prompt
    from xla_backend.interface.results import ModelInfo

ROLES = ("system", "user", "assistant", "tool")

UNBOUNDED_PROMPT_TOKENS = 2048
"""Longest prompt of a model with relative positions (T5), which has no bound of its own: four times
the length of T5's training; attention over twice as much would take gigabytes."""


def encode_prompt(
    tokenizer: Tokenizer,
    prompt: Prompt,
    info: ModelInfo,
    template: Mapping[str, Any] = MappingProxyType({}),
) -> list[int]:
    """Checks and encodes a prompt; returns its token ids.

    Args:
        prompt: the text to continue, or messages.
        template: see `Tokenizer.encode`.

    Raises:
        InvalidRequest: the prompt is empty, blank or not text, or it is a speech model.
        ContextLengthExceeded: it is too long.
    """
    check_prompt(prompt, info)
    token_ids = tokenizer.encode(prompt, template=template)
    check_length(len(token_ids), info)
    return token_ids


def check_prompt(prompt: Prompt, info: ModelInfo) -> None:
    """Checks a prompt before it is tokenized."""
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
    has_question = last.role in ("assistant", "tool") or last.content.strip()
    if not has_question or not any(message.content.strip() for message in messages):
        raise _empty("answer")


def _empty(do: str) -> InvalidRequest:
    return InvalidRequest(f"The prompt is empty. Write a few words for the model to {do}.")


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


def check_options(options: GenerationOptions, vocabulary_size: int, info: ModelInfo) -> None:
    """Checks the options that depend on the model's vocabulary."""
    biased = tuple(token_id for token_id, _ in options.logit_bias)
    for name, named in ("logit_bias", biased), ("stop_token_ids", options.stop_token_ids):
        if named and named[-1] >= vocabulary_size:
            raise InvalidRequest(
                f"{name} names token {named[-1]}, but {info.name} has the tokens 0 to "
                f"{vocabulary_size - 1}."
            )
