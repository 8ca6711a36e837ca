"""`/v1/messages`: Anthropic's requests, as chats, and their answers and events.

Knows the fields of both. Must not know HTTP, nor how a chat is run.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ConfigDict, Field

from xla_backend.interface.results import GenerationResult
from xla_backend.openai_api.answers import generated, timings
from xla_backend.openai_api.errors import NotSupported
from xla_backend.openai_api.requests import ChatMessage, ChatRequest, Fields, TextPart, Tokens
from xla_backend.openai_api.writers import Facts, Writer, event


class MessagesRequest(Fields):
    """What to answer. Fields of chats that are not named here, as `temperature`, hold too."""

    model_config = ConfigDict(extra="allow")

    messages: list[dict[str, Any]]
    system: str | list[TextPart] | None = Field(None, description="how to answer")
    max_tokens: Tokens | None = Field(None, description="most tokens")
    stop_sequences: list[str] | None = Field(None, description="what ends the text")
    tool_choice: dict[str, Any] | None = Field(None, description="none, or auto")
    output_config: dict[str, Any] | None = Field(
        None, description="format: a JSON schema to follow"
    )
    output_format: dict[str, Any] | None = Field(None, description="the format, of older clients")

    def chat(self) -> ChatRequest:
        """The chat that this is.

        Raises:
            NotSupported: it asks for what there is not.
        """
        extra = dict(self.model_extra or {})
        if extra.get("n") not in (None, 1):
            raise NotSupported("n", "n is not supported here: a message is one text.")
        own = {
            "messages": self.messages,
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "response_format": (self.output_config or {}).get("format") or self.output_format,
            "tool_choice": (self.tool_choice or {}).get("type"),
        }
        chat = ChatRequest.model_validate(extra | {k: v for k, v in own.items() if v is not None})
        system = self.system
        if isinstance(system, list):
            system = "\n\n".join(part.text for part in system)
        if system:  # only now: an error tells the place of a message as it was sent
            chat.messages = [ChatMessage(role="system", content=system), *chat.messages]
        return chat


class MessageWriter(Writer):
    """Of `MessagesRequest`."""

    done = ""

    def __init__(self, chat: ChatRequest, facts: Facts, prompt_tokens: int = 0) -> None:
        """Writes the answer to a request that was asked as `chat`; only streams need the tokens."""
        super().__init__()
        self._model = chat.model
        self._prompt_tokens = prompt_tokens
        self._id = f"msg_{uuid.uuid4().hex}"

    def whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        [result] = results
        content = [{"type": "text", "text": result.text}]
        end = _end(result)
        return self._message(content, _usage(result), **end) | {
            "timings": timings(result).model_dump()
        }

    def begin(self, number: int) -> Iterator[dict[str, Any]]:
        counted = {"input_tokens": self._prompt_tokens, "output_tokens": 0}
        yield {"type": "message_start", "message": self._message([], counted)}
        block = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": 0, "content_block": block}

    def more(self, number: int, text: str) -> dict[str, Any]:
        delta = {"type": "text_delta", "text": text}
        return {"type": "content_block_delta", "index": 0, "delta": delta}

    def end(self, number: int, result: GenerationResult) -> Iterator[dict[str, Any]]:
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta", "delta": _end(result), "usage": _usage(result)}
        yield {"type": "message_stop"}

    def failed(self, error: dict[str, Any]) -> str:
        return event(error)

    def _message(self, content: list[Any], usage: dict[str, int], **end: Any) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
            **end,
        }


def _end(result: GenerationResult) -> dict[str, Any]:
    reasons = {"length": "max_tokens", "stop": "stop_sequence"}
    reason = reasons.get(result.finish, "end_turn")
    return {"stop_reason": reason, "stop_sequence": result.stop_string or None}


def _usage(result: GenerationResult) -> dict[str, int]:
    """Tokens of the prompt are counted once: as read from the cache, or as input."""
    return {
        "input_tokens": result.prompt_tokens - result.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": result.cached_tokens,
        "output_tokens": generated(result),
    }
