"""`/v1/messages`: Anthropic's requests as chats, and their answers and events.

Knows the fields of both. Must not know HTTP, nor how a chat is run.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import Field

from xla_backend.answers.reader import CallPart, Thought
from xla_backend.interface.results import GenerationResult
from xla_backend.openai_api.answers import cache_miss, generated, timings
from xla_backend.openai_api.history import text_of
from xla_backend.openai_api.requests import ChatMessage, ChatRequest, OtherChat, Tokens
from xla_backend.openai_api.writers import Facts, Writer, event


class MessagesRequest(OtherChat):
    """A request."""

    messages: list[dict[str, Any]]
    system: str | list[Any] | None = Field(None, description="how to answer")
    max_tokens: Tokens | None = Field(None, description="most tokens")
    stop_sequences: list[str] | None = Field(None, description="what ends the text")
    tools: list[dict[str, Any]] | None = Field(None, description="functions that may be called")
    tool_choice: dict[str, Any] | None = Field(None, description="none, auto, any or tool")
    output_config: dict[str, Any] | None = Field(
        None, description="format: a JSON schema to follow"
    )
    output_format: dict[str, Any] | None = Field(None, description="the format, of older clients")

    def chat(self) -> ChatRequest:
        """The equivalent chat.

        Raises:
            NotSupported: it asks for something that is not supported.
        """
        choice = self.tool_choice or {}
        kind: Any = choice.get("type")
        if kind == "tool":
            kind = {"function": choice}
        own = {
            "messages": [each for message in self.messages for each in _as_chat(message)],
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "response_format": (self.output_config or {}).get("format") or self.output_format,
            "reasoning_effort": (self.output_config or {}).get("effort"),
            "tools": self.tools and list(map(_tool, self.tools)),
            "tool_choice": "required" if kind == "any" else kind,
            "parallel_tool_calls": True
            if choice.get("disable_parallel_tool_use") is False
            else None,
        }
        system = self.system
        if isinstance(system, list):
            system = "\n\n".join(map(text_of, system))
        before = [ChatMessage(role="system", content=system)] if system else []
        return self.as_chat(own, before, {"output_config": ("format", "effort")})


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool in the form of chats; Anthropic's own server tools stay unchanged."""
    if tool.get("type", "custom") != "custom":
        return tool
    return {"type": "function", "function": {**tool, "parameters": tool.get("input_schema")}}


def _as_chat(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message in the form of chats, where results of tools are separate messages."""
    if not isinstance(message.get("content"), list):
        return [message]
    results, calls, rest, thoughts = [], [], [], []
    for block in message["content"]:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result":
            result = {"tool_call_id": block.get("tool_use_id"), "content": block.get("content")}
            results.append({"role": "tool", **result})
        elif kind == "tool_use":
            calls.append(block)
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind != "redacted_thinking":
            rest.append(block)
    if calls or rest or not results:
        thought = {"reasoning_content": "\n".join(thoughts)}
        results.append({**message, "content": rest, "tool_calls": calls, **thought})
    return results


class MessageWriter(Writer):
    """The writer for `MessagesRequest`."""

    done = ""

    def __init__(self, chat: ChatRequest, facts: Facts) -> None:
        """`chat` is the equivalent chat."""
        super().__init__()
        self._chat = chat
        self._reader = chat.reader()
        self._blocks = 0
        self._open = ""  # the type of the open block; empty without one
        self._prompt_tokens = facts.prompt_tokens
        self._id = f"msg_{uuid.uuid4().hex}"

    def whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        [result] = results
        text = self._reader.read_whole(result.text)
        content: list[dict[str, Any]] = []
        if thoughts := self._reader.thoughts:
            content.append(_THINKING | {"thinking": thoughts})
        if text or not (self._reader.calls or thoughts):
            content.append({"type": "text", "text": text})
        for id, name, arguments in self._reader.calls:
            content.append(_call(id, name) | {"input": _object(arguments)})
        return self._message(content, _usage(result), **self._end(result)) | {
            "timings": timings(result).model_dump()
        }

    def begin(self, number: int) -> Iterator[dict[str, Any]]:
        counted = {"input_tokens": self._prompt_tokens, "output_tokens": 0}
        yield {"type": "message_start", "message": self._message([], counted)}

    def more(self, number: int, text: str) -> Iterator[dict[str, Any]]:
        yield from self._deltas(self._reader.push(text))

    def end(self, number: int, result: GenerationResult) -> Iterator[dict[str, Any]]:
        yield from self._deltas(self._reader.finish())
        if not (self._blocks or self._open):
            yield from self._start({"type": "text", "text": ""})
        yield from self._stop()
        yield {"type": "message_delta", "delta": self._end(result), "usage": _usage(result)}
        yield {"type": "message_stop"}

    def failed(self, error: dict[str, Any]) -> str:
        return event(error)

    def _deltas(self, parts: Iterable[str | CallPart]) -> Iterator[dict[str, Any]]:
        for part in parts:
            if isinstance(part, Thought):
                if self._open != "thinking":
                    yield from self._start(_THINKING)
                yield self._delta({"type": "thinking_delta", "thinking": part})
            elif isinstance(part, str):
                if self._open != "text":
                    yield from self._start({"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": part})
            elif part.name:
                yield from self._start(_call(part.id, part.name))
            else:
                yield self._delta({"type": "input_json_delta", "partial_json": part.arguments})

    def _start(self, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self._stop()
        self._open = block["type"]
        yield {"type": "content_block_start", "index": self._blocks, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._blocks, "delta": delta}

    def _stop(self) -> Iterator[dict[str, Any]]:
        if self._open:
            yield {"type": "content_block_stop", "index": self._blocks}
            self._blocks += 1
            self._open = ""

    def _end(self, result: GenerationResult) -> dict[str, Any]:
        reasons = {"length": "max_tokens", "stop": "stop_sequence"}
        reason = reasons.get(result.finish, "end_turn")
        if self._reader.has_called:
            reason = "tool_use"
        return {"stop_reason": reason, "stop_sequence": result.stop_string or None}

    def _message(self, content: list[Any], usage: dict[str, Any], **end: Any) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._chat.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
            **self._chat.ignored,
            **end,
        }


_THINKING = {"type": "thinking", "thinking": "", "signature": ""}


def _call(id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def _object(arguments: str) -> Any:
    """The arguments as an object; empty if the token limit has cut them."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}


def _usage(result: GenerationResult) -> dict[str, Any]:
    """Prompt tokens count once: as read from the cache, or as input."""
    return {
        "input_tokens": result.prompt_tokens - result.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": result.cached_tokens,
        "output_tokens": generated(result),
        **cache_miss(result),
    }
