"""`Prompt`: the input of a text model, a text to continue or the messages of a conversation.

Knows their form. Must not know how messages are rendered: `checkpoints.tokenization` does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

THOUGHTS, THOUGHTS_END = "<think>", "</think>"
"""What thoughts in front of an answer stand between."""


class ToolCall(NamedTuple):
    """A call of a function that a model asks for.

    Attributes:
        id: identifies the call in the message with its result.
        name: of the function.
        arguments: a JSON object as text.
    """

    id: str
    name: str
    arguments: str


class Message(NamedTuple):
    """One message of a conversation.

    Attributes:
        role: "system" (how to answer; only the first), "user", "assistant" or "tool" (a result).
        content: its text.
        tool_calls: calls of the assistant.
        tool_call_id: id of the call whose result this is.
        thoughts: of the assistant, before its content.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    thoughts: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The form of chat templates and OpenAI's protocol, but with arguments as objects.

        Raises:
            ValueError: the arguments of a call are not JSON.
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
        if self.thoughts:  # under the names that templates have for them
            values["reasoning_content"] = values["thinking"] = self.thoughts
        return values


@dataclass(frozen=True)
class TokenIds:
    """A text to continue, as token ids; no special tokens are added."""

    ids: tuple[int, ...]


Prompt = str | tuple[Message, ...] | TokenIds
"""A text that the model continues, or messages, to which an instruct model writes the next one."""


def question(text: str, system: str = "") -> tuple[Message, ...]:
    """The messages of one question.

    Args:
        text: the user's question.
        system: the system prompt; if empty, the chat template's.
    """
    return (*([Message("system", system)] if system else []), Message("user", text))


def last_text(prompt: Prompt) -> str:
    """The text to continue, or the message to answer; empty for token ids."""
    if not isinstance(prompt, tuple):
        return prompt if isinstance(prompt, str) else ""
    return prompt[-2 if start_of_answer(prompt) and len(prompt) > 1 else -1].content


def start_of_answer(prompt: Prompt) -> str:
    """The beginning of the answer that the model continues; empty if there is none."""
    if isinstance(prompt, tuple) and prompt[-1].role == "assistant":
        return prompt[-1].content
    return ""


def system_text(prompt: Prompt) -> str | None:
    """The system prompt, empty if there is none; None for a text to continue."""
    if not isinstance(prompt, tuple):
        return None
    return prompt[0].content if prompt[0].role == "system" else ""
