"""`/v1/responses`: OpenAI's newer requests as chats, and their answers and events.

Knows the fields of both. Must not know HTTP, nor how a chat is run.
"""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from xla_backend.answers.reader import CallPart, Thought
from xla_backend.interface.prompt import Message
from xla_backend.interface.results import GenerationResult, Token
from xla_backend.openai_api.answers import (
    cache_miss,
    chat_logprobs,
    progress,
    timings,
    usage,
    written,
)
from xla_backend.openai_api.errors import NotSupported
from xla_backend.openai_api.history import text_of
from xla_backend.openai_api.requests import ChatMessage, ChatRequest, OtherChat, Tokens
from xla_backend.openai_api.writers import Facts, Writer, event

MAX_STORED = 1000
"""Bound on the stored answers, of all callers together."""
MAX_STORED_CHARACTERS = 2**24
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_ITEMS = ("message", *_CALLS, *_RESULTS, "reasoning")
_LOGPROBS = "message.output_text.logprobs"


class ResponseRequest(OtherChat):
    """A request."""

    input: str | list[dict[str, Any]] = Field(description="a text, or messages")
    instructions: str | None = Field(None, description="how to answer; of this request alone")
    max_output_tokens: Tokens | None = Field(None, description="most tokens")
    previous_response_id: str | None = Field(None, description="goes on after that answer")
    store: bool | None = Field(None, description="false: later requests cannot go on after this")
    metadata: dict[str, str] | None = None
    text: dict[str, Any] | None = Field(None, description="its format, as of a chat")
    include: list[str] | None = None
    reasoning: dict[str, Any] | None = Field(None, description="effort: reasoning_effort of a chat")
    tools: list[dict[str, Any]] | None = Field(None, description="functions that may be called")
    tool_choice: str | dict[str, Any] | None = Field(None, description="as of a chat")

    def fill_in(self, find: Callable[[str], dict[str, Any]]) -> None:
        """Replaces references to items of earlier answers, as npm's `ai` sends them."""
        if isinstance(self.input, list):
            self.input = [
                find(str(item.get("id"))) if item.get("type") == "item_reference" else item
                for item in self.input
            ]

    def messages(self) -> list[dict[str, Any]]:
        """The input's messages in the form of chats."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        messages: list[dict[str, Any]] = []
        for item in self.input:
            kind, last = item.get("type") or "message", messages[-1] if messages else {}
            if kind not in _ITEMS:  # of another model, such as a search
                item = {"role": "assistant", "content": [item]}
                kind = "message"
            if kind == "message":
                message = {"role": item.get("role"), "content": item.get("content")}
                if message["role"] == last.get("role") == "assistant" and last["content"] is None:
                    last |= message  # behind its thoughts
                else:
                    messages.append(message)
            elif kind in _CALLS:
                call = {"id": item.get("call_id"), "function": item}
                if last.get("role") != "assistant":
                    messages.append({"role": "assistant", "content": ""})
                messages[-1].setdefault("tool_calls", []).append(call)
            elif kind in _RESULTS:
                output = {"tool_call_id": item.get("call_id"), "content": item.get("output")}
                messages.append({"role": "tool", **output})
            else:
                thought = {"reasoning_content": text_of(item.get("content"))}
                messages.append({"role": "assistant", "content": None, **thought})
        return messages

    def chat(self, before: Sequence[Message] = ()) -> ChatRequest:
        """The equivalent chat.

        Args:
            before: messages of the conversation so far.
        """
        more = self.model_extra or {}
        for name in ("background", "conversation", "prompt"):
            if more.pop(name, None):
                raise NotSupported(name, f"{name} is not supported. Leave it out.")
        choice = self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "function":
            choice = {"function": choice}
        own = {
            "messages": self.messages(),
            "tools": self.tools and list(map(_tool, self.tools)),
            "tool_choice": choice,
            "max_completion_tokens": self.max_output_tokens,
            "response_format": (self.text or {}).get("format"),
            "reasoning_effort": (self.reasoning or {}).get("effort"),
            "logprobs": _LOGPROBS in (self.include or ()) or bool(more.get("top_logprobs")),
        }
        system = [Message("system", self.instructions)] if self.instructions else []
        messages = [ChatMessage(**each.to_dict()) for each in (*system, *before)]
        read = {"text": ("format",), "reasoning": ("effort",), "include": (_LOGPROBS,)}
        return self.as_chat(own, messages, read)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool in the form of chats, whose function is an object inside."""
    return {"type": tool.get("type"), "function": tool}


class Stored(NamedTuple):
    """An answer as JSON, and the conversation that it ends."""

    answer: str
    messages: tuple[Message, ...]

    def characters(self) -> int:
        """Its approximate size."""
        characters = sum(len(str(message)) for message in self.messages)
        return 1000 + len(self.answer) + characters


def _missing(what: str, id: str, param: str) -> NotSupported:
    status = 404 if param == "id" else 400
    return NotSupported(
        param,
        f"There is no {what} {id[:80]!r}: it had store false, is another caller's or too old. "
        "Send the whole conversation as input.",
        "previous_response_not_found",
        status,
    )


class ResponseStore:
    """Answers by caller and id, in memory; the oldest are dropped."""

    def __init__(self) -> None:
        self._stored: OrderedDict[tuple[str, str], Stored] = OrderedDict()
        self._characters = 0

    def put(self, owner: str, id: str, stored: Stored) -> None:
        """Stores an answer."""
        self._stored[owner, id] = stored
        self._characters += stored.characters()
        while len(self._stored) > MAX_STORED or self._characters > MAX_STORED_CHARACTERS:
            self._characters -= self._stored.popitem(last=False)[1].characters()

    def get(self, owner: str, id: str, param: str = "id") -> Stored:
        """An answer of this caller.

        Raises:
            NotSupported: it does not exist, or not any more.
        """
        if (owner, id) not in self._stored:
            raise _missing("response", id, param)
        return self._stored[owner, id]

    def item(self, owner: str, id: str) -> dict[str, Any]:
        """An item of an answer, whose id ends like the answer's; errors as for `get`."""
        stored = self._stored.get((owner, f"resp_{id.rpartition('_')[2]}"))
        for item in json.loads(stored.answer)["output"] if stored else ():
            if item["id"] == id:
                return item
        raise _missing("item", id, "input")

    def remove(self, owner: str, id: str) -> None:
        """Removes an answer; errors as for `get`."""
        self._characters -= self.get(owner, id).characters()
        del self._stored[owner, id]


class ResponseWriter(Writer):
    """The writer for `ResponseRequest`."""

    done = ""

    def __init__(
        self,
        body: ResponseRequest,
        chat: ChatRequest,
        store: ResponseStore,
        owner: str,
        facts: Facts,
    ) -> None:
        """`chat` is the chat that is equivalent to `body`; `owner` is the caller."""
        super().__init__()
        self._body = body
        self._chat = chat
        self._store = store
        self._owner = owner
        self._facts = facts
        self._name = uuid.uuid4().hex
        self._id = f"resp_{self._name}"
        self._created = int(time.time())
        self._numbers = itertools.count()
        self._reader = chat.reader()
        self._output: list[dict[str, Any]] = []
        self._pending: tuple[Token, ...] = ()

    def whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        [result] = results
        for _ in (*self.more(0, result.text), *self._close(result)):
            pass  # runs the steps of a stream
        return self._answer(result)

    def _answer(self, result: GenerationResult) -> dict[str, Any]:
        is_cut = self._is_cut(result)
        counted = usage([result], 1)
        answer = self._response("incomplete" if is_cut else "completed") | {
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": self._output,
            "usage": {
                "input_tokens": counted.prompt_tokens,
                "input_tokens_details": counted.prompt_tokens_details.model_dump()
                | {"cache_write_tokens": 0},
                "output_tokens": counted.completion_tokens,
                "output_tokens_details": counted.completion_tokens_details.model_dump(),
                "total_tokens": counted.total_tokens,
                **cache_miss(result),
            },
            "timings": timings(result).model_dump(),
        }
        if self._body.store is not False:
            conversation = self._chat.prompts()[0]
            assert isinstance(conversation, tuple)
            before = conversation[1:] if self._body.instructions else conversation
            text = "".join(
                part["text"]
                for item in self._output
                for part in item.get("content", ())
                if item["type"] == "message"
            )
            calls = tuple(self._reader.calls) if self._reader.has_called else ()
            answered = Message("assistant", text, calls, thoughts=self._reader.thoughts)
            stored = Stored(json.dumps(answer), (*before, answered))
            self._store.put(self._owner, self._id, stored)
        return answer

    def _is_cut(self, result: GenerationResult) -> bool:
        return result.finish == "length" and not self._reader.has_called

    def begin(self, number: int) -> Iterator[dict[str, Any]]:
        for kind in ("created", "in_progress"):
            yield self._event(kind, response=self._response("in_progress"))

    def more(self, number: int, text: str) -> Iterator[dict[str, Any]]:
        self._pending += self.new(number, text)
        if reading := progress(text):
            response = self._response("in_progress")
            yield self._event("in_progress", response=response, **reading)
        yield from self._parts(self._reader.push(text))

    def _parts(self, parts: Iterable[str | CallPart]) -> Iterator[dict[str, Any]]:
        for part in parts:
            if isinstance(part, str):
                kind = "reasoning" if isinstance(part, Thought) else "message"
                if not (self._output and self._output[-1]["type"] == kind):
                    yield from self._begin_text(kind)
                self._output[-1]["content"][0]["text"] += part
                logprobs, self._pending = self._logprobs(self._pending), ()
                more = {"logprobs": logprobs} if kind == "message" else {}
                what = f"{self._output[-1]['content'][0]['type']}.delta"
                yield self._event(what, **self._place(), content_index=0, delta=part, **more)
            elif part.name:
                call = {"call_id": part.id, "name": part.name, "arguments": ""}
                yield from self._begin_item("function_call", "fc", call)
            else:
                self._output[-1]["arguments"] += part.arguments
                kind = "function_call_arguments.delta"
                yield self._event(kind, **self._place(), delta=part.arguments)

    def _begin_text(self, kind: str) -> Iterator[dict[str, Any]]:
        part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        if kind == "reasoning":
            yield from self._begin_item(kind, "rs", {"summary": [], "content": []})
        else:
            yield from self._begin_item(kind, "msg", {"role": "assistant", "content": []})
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield self._event("content_part.added", **self._place(), content_index=0, part=part)
        self._output[-1]["content"] = [part]

    def _begin_item(
        self, kind: str, prefix: str, values: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        yield from self._end_item("completed")
        place = len(self._output)
        name = f"{prefix}_{place}_{self._name}"
        self._output.append({"id": name, "type": kind, "status": "in_progress", **values})
        yield self._event("output_item.added", output_index=place, item=self._output[-1])

    def _end_item(self, status: str) -> Iterator[dict[str, Any]]:
        if not self._output:
            return
        item = self._output[-1]
        item["status"] = status
        if item["type"] != "function_call":
            [part] = item["content"]
            values = {key: part[key] for key in ("text", "logprobs") if key in part}
            yield self._event(f"{part['type']}.done", **self._place(), content_index=0, **values)
            yield self._event("content_part.done", **self._place(), content_index=0, part=part)
        else:
            values = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("function_call_arguments.done", **self._place(), **values)
        yield self._event("output_item.done", output_index=len(self._output) - 1, item=item)

    def _close(self, result: GenerationResult) -> Iterator[dict[str, Any]]:
        yield from self._parts(self._reader.finish())
        if not self._output:
            yield from self._begin_text("message")
        if self._output[-1]["type"] == "message":
            self._output[-1]["content"][0]["logprobs"] = self._logprobs(written(result))
        yield from self._end_item("incomplete" if self._is_cut(result) else "completed")

    def end(self, number: int, result: GenerationResult) -> Iterator[dict[str, Any]]:
        yield from self._close(result)
        answer = self._answer(result)
        yield self._event(answer["status"], response=answer)

    def failed(self, error: dict[str, Any]) -> str:
        # Flat as in OpenAI's events, and nested as everywhere else here.
        return event({"sequence_number": next(self._numbers), **error["error"], **error})

    def _event(self, kind: str, **values: Any) -> dict[str, Any]:
        return {"sequence_number": next(self._numbers), **values, "type": f"response.{kind}"}

    def _place(self) -> dict[str, Any]:
        """The fields that name the last item."""
        return {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}

    def _logprobs(self, tokens: Sequence[Token]) -> list[dict[str, Any]]:
        if not self._chat.logprobs:
            return []
        found = chat_logprobs(tokens, self._chat.top_logprobs or 0, self._facts.tokenizer)
        return [token.model_dump() for token in found.content]

    def _response(self, status: str) -> dict[str, Any]:
        body, [(_, options)] = self._body, self._facts.runs
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self._chat.model,
            "output": [],
            "parallel_tool_calls": self._chat.parallel_tool_calls is True,
            "previous_response_id": body.previous_response_id,
            "store": body.store is not False,
            "temperature": options.temperature,
            "text": {"format": self._chat.response_format or {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": options.top_p,
            "truncation": "disabled",
            "usage": None,
            **self._chat.ignored,
        }
