"""`Prompt`: what a model of texts is asked, a text to continue or the messages of a talk.

Knows their form. Must not know how a model wants messages written: `checkpoints.tokenization` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Message(NamedTuple):
    """One message of a talk.

    Attributes:
        role: "system" (how to answer; only the first), "user" or "assistant".
        content: its text.
    """

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class TokenIds:
    """A text to continue, as the ids of its tokens; the model's special tokens are not added."""

    ids: tuple[int, ...]


Prompt = str | tuple[Message, ...] | TokenIds
"""A text that the model continues, or messages, of which it writes the next. Any instruct model has
a chat template for these."""


def question(text: str, system: str = "") -> tuple[Message, ...]:
    """The messages of one question.

    Args:
        text: what the user asks.
        system: how the model is to answer; empty: as its chat template says.
    """
    return (*([Message("system", system)] if system else []), Message("user", text))


def last_text(prompt: Prompt) -> str:
    """What the user wrote last: the text to continue, or the last message's; none of token ids."""
    if isinstance(prompt, TokenIds):
        return ""
    return prompt if isinstance(prompt, str) else prompt[-1].content


def system_text(prompt: Prompt) -> str | None:
    """What the system's message says, empty where there is none; None for a text to continue."""
    if not isinstance(prompt, tuple):
        return None
    return prompt[0].content if prompt[0].role == "system" else ""
