"""`Prompt`: what a model of texts is asked, a text to continue or the messages of a talk.

Knows their form. Must not know how a model wants messages written: `checkpoints.tokenization` does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class ToolCall(NamedTuple):
    """A call of a function that a model asks for.

    Attributes:
        id: names the call in the message with its result.
        name: of the function.
        arguments: a JSON object as text.
    """

    id: str
    name: str
    arguments: str


class Message(NamedTuple):
    """One message of a talk.

    Attributes:
        role: "system" (how to answer; only the first), "user", "assistant" or "tool" (a result).
        content: its text.
        tool_calls: what the assistant asks for.
        tool_call_id: of the call whose result this is.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As chat templates and OpenAI's protocol have it, but for arguments, which are objects.

        Raises:
            ValueError: the arguments of a call are no JSON.
        """
        values: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            values["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.loads(call.arguments)},
                }
                for call in self.tool_calls
            ]
        if self.tool_call_id:
            values["tool_call_id"] = self.tool_call_id
        return values


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
