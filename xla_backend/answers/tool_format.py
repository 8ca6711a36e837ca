"""`ToolFormat`: how a model writes a call of a tool.

Knows what chat templates make of tools and calls, by looking at what they render. Must not know
tokenizers, nor what is constrained.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from xla_backend.interface.prompt import Message, ToolCall

_NAME = "probed_function"
_PROBE = ToolCall("c81fD3k0Q", _NAME, '{"probe": 1}')  # Mistral's ids have nine characters
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "a",
        "parameters": {
            "type": "object",
            "properties": {"probe": {"type": "integer", "description": "a"}},
            "required": ["probe"],
        },
    },
}
_CALL = re.compile(rf'(.*?){_NAME}(.*?)\{{\s*"probe"\s*:\s*1\s*\}}(.*)', re.DOTALL)
_ID = re.compile(rf',?\s*"id"\s*:\s*"{_PROBE.id}"')
_MARKER = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")


class ToolFormat(NamedTuple):
    """What stands around the parts of a call.

    Attributes:
        opening: before the function's name. middle: between it and the arguments, a JSON object.
        closing: behind these.
        has_tools: whether the chat template tells the model which tools there are.
        has_calls: whether it writes calls that the model asked for before.
    """

    opening: str
    middle: str
    closing: str
    has_tools: bool = False
    has_calls: bool = False

    @property
    def marker(self) -> str:
        """What begins a call, also behind other text, as "<tool_call>"; empty where nothing does: a
        call is a whole answer then."""
        found = _MARKER.match(self.opening)
        return found[0] if found else ""

    @property
    def can_repeat(self) -> bool:
        """Whether one call may follow another: not where a list holds them."""
        in_list = self.opening[len(self.marker) :].lstrip()[:1] == "["
        return bool(self.marker) and not in_list and not self.in_channels

    @property
    def in_channels(self) -> bool:
        """Whether answers are messages in channels, see `channels`; a call ends one."""
        return self.marker == "<|channel|>"

    def write(self, call: ToolCall) -> str:
        return f"{self.opening}{call.name}{self.middle}{call.arguments}{self.closing}"


GENERIC = ToolFormat('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
"""That of Hermes and Qwen, also asked of models whose template knows no tools."""
CHANNELS = ToolFormat(
    "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>", True, True
)
"""That of GPT-OSS; its template writes calls in another way, which the model rarely does."""
_DESCRIBED = (ToolFormat('<|tool_call|>[{"name": "', '", "arguments": ', "}]"), GENERIC)
"""Formats of templates that describe them to the model, and never write one themselves (Granite 3,
SmolLM3)."""


def learn(
    template: str, render: Callable[[tuple[Message, ...], list[dict[str, Any]]], str]
) -> ToolFormat:
    """The format of a chat template: what it renders of a call, but not of another answer.

    Args:
        render: what it makes of messages and tools; may raise anything.

    Returns:
        `GENERIC` where it tells nothing of tools, or calls are not JSON there.
    """
    requested = Message("user", "a")
    try:
        plain, called = (
            render((requested, answer), [_PROBE_TOOL])
            for answer in (Message("assistant", "§"), Message("assistant", "", (_PROBE,)))
        )
    except Exception:  # a template is a program, and raises what programs do
        return GENERIC
    start, end = _common(plain, called), _common(plain[::-1], called[::-1])
    if _NAME not in called[:start]:
        return GENERIC
    stop = len(called) - end
    if (opening_at := called.rfind("<", 0, start)) > called.rfind(">", 0, start):
        start = opening_at  # a token as <|this|> is not cut
    if called.rfind("<", 0, stop) > called.rfind(">", 0, stop):
        stop = called.find(">", stop) + 1
    call = called[start:stop]
    if found := _CALL.fullmatch(_ID.sub("", call)):
        opening, middle, closing = found.groups()
        return ToolFormat(opening.lstrip(), middle, closing.rstrip(), True, True)
    if _NAME not in call:
        for described in _DESCRIBED:
            if described.marker in template:
                return described._replace(has_tools=True)
    return GENERIC


def _common(one: str, other: str) -> int:
    """The length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def as_text(
    messages: Sequence[Message], tools: Sequence[dict[str, Any]], form: ToolFormat
) -> tuple[Message, ...]:
    """Messages for a template, with tool data that it does not support written into their text."""
    described: list[Message] = []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        if message.tool_calls and not form.has_calls:
            calls = "\n".join(map(form.write, message.tool_calls))
            message = Message(message.role, f"{message.content}\n{calls}".lstrip("\n"))
        elif message.role == "tool" and not form.has_tools:
            name = names.get(message.tool_call_id, "The function")
            message = Message("user", f"{name} returned:\n{message.content}")
        described.append(message)
    if tools and not form.has_tools:
        first = described.pop(0).content if described[0].role == "system" else ""
        listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        call = form.write(ToolCall("", "NAME", "{...}"))
        instruction = (
            "You can call these functions, one JSON object a line with the JSON schema of its "
            f"parameters:\n<tools>\n{listed}\n</tools>\n\nTo call one, write its name and its "
            f"arguments in this form, and nothing more:\n{call}\nYou are then told what it "
            "returned. Answer in words where no call is needed."
        )
        described.insert(0, Message("system", f"{first}\n\n{instruction}".lstrip("\n")))
    return tuple(described)
