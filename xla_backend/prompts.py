"""Prompts, from text to the tokens that a model reads, with every check that they must pass.

Knows the rules for prompts and their sentences. Must not know TensorFlow: the engine and the page's
process refuse the same prompts, in the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xla_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from xla_backend.results import ModelInfo
    from xla_backend.tokenization import Tokenizer

UNBOUNDED_PROMPT_TOKENS = 2048
"""Longest prompt of a model with relative positions (T5), which by itself bounds nothing: four
times what T5 was trained on, and at twice as much attention would take gigabytes."""


def encode_prompt(
    tokenizer: Tokenizer, prompt: str, max_new_tokens: int, info: ModelInfo
) -> list[int]:
    """The prompt's tokens.

    Args:
        tokenizer: the model's.
        prompt: the text to continue.
        max_new_tokens: how many tokens shall follow, at most.
        info: the model.

    Raises:
        InvalidRequest: it is empty, blank, not text, too long for the model, or the model wants
            no text.
    """
    if info.family == "speech":
        raise InvalidRequest(
            f"{info.name} writes down speech: give it a recording to transcribe, or choose another "
            "model to generate text."
        )
    if not isinstance(prompt, str):
        raise InvalidRequest(f"The prompt must be text, not {type(prompt).__name__}.")
    if not prompt.strip():
        do = "answer" if info.family == "encoder-decoder" else "continue"
        raise InvalidRequest(f"The prompt is empty. Write a few words for the model to {do}.")
    token_ids = tokenizer.encode(prompt)
    if info.context_length is not None:
        _check_length(len(token_ids), max_new_tokens, info.name, info.context_length)
    elif (over := len(token_ids) - UNBOUNDED_PROMPT_TOKENS) > 0:
        raise InvalidRequest(
            f"The prompt is {over} token{'s' * (over != 1)} too long: it has {len(token_ids)}, and "
            f"at most {UNBOUNDED_PROMPT_TOKENS} are taken. Shorten the prompt."
        )
    return token_ids


def _check_length(prompt_tokens: int, max_new_tokens: int, model: str, context: int) -> None:
    if max_new_tokens >= context:
        raise InvalidRequest(
            f"max_new_tokens is {max_new_tokens}, but {model} reads at most {context} tokens, "
            f"prompt included. Ask for at most {context - 1}."
        )
    room = context - max_new_tokens
    if prompt_tokens > room:
        over = prompt_tokens - room
        raise InvalidRequest(
            f"The prompt is {over} token{'s' * (over != 1)} too long: it has {prompt_tokens}, and "
            f"{model} has room for {room} beside {max_new_tokens} new tokens (its context is "
            f"{context}). Shorten the prompt or lower max_new_tokens."
        )
