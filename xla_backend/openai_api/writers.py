"""`ChatWriter` and `CompletionWriter`: a request's results as OpenAI's objects, whole or in events.

Knows what each object holds. Must not know how it is sent.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from xla_backend.interface.results import GenerationResult
from xla_backend.openai_api.answers import (
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChunkChoice,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    Delta,
    chat_logprobs,
    completion_logprobs,
    finish_reason,
    timings,
    usage,
)
from xla_backend.openai_api.requests import ChatRequest, CompletionRequest, Generation


class Writer(ABC):
    """Writes the answer to one request."""

    prefix: str

    def __init__(self, body: Generation, fingerprint: str | None) -> None:
        self._times = body.n or 1
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        # As OpenAI does: null in every event but the last, and only where it was asked for.
        self._no_usage: dict[str, Any] = {"usage": None} if wants_usage else {}
        self._common: dict[str, Any] = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": body.model,
            "system_fingerprint": fingerprint,
        }

    @abstractmethod
    def whole(self, results: Sequence[GenerationResult]) -> BaseModel:
        """The answer that is not streamed."""

    @abstractmethod
    def begin(self, number: int) -> Iterator[BaseModel]:
        """What is sent before a choice's first text."""

    @abstractmethod
    def more(self, number: int, text: str) -> BaseModel:
        """A chunk of a choice's text."""

    @abstractmethod
    def end(self, number: int, result: GenerationResult) -> BaseModel:
        """A choice's end."""

    def usage(self, results: Sequence[GenerationResult]) -> Iterator[BaseModel]:
        """The event behind all choices, where it was asked for."""
        if self._no_usage:
            yield self._event([], usage=usage(results, self._times))

    @abstractmethod
    def _event(self, choices: list[Any], **more: Any) -> BaseModel:
        """An event of the stream."""

    def _whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        return {
            **self._common,
            "usage": usage(results, self._times),
            "timings": timings(results[0]),
        }


class ChatWriter(Writer):
    """Of `ChatRequest`."""

    prefix = "chatcmpl"

    def __init__(self, body: ChatRequest, fingerprint: str | None) -> None:
        super().__init__(body, fingerprint)
        self._logprobs = (body.top_logprobs or 0) if body.logprobs else None

    def whole(self, results: Sequence[GenerationResult]) -> ChatCompletion:
        choices = [
            ChatChoice(
                index=number,
                message=AnswerMessage(content=result.text),
                logprobs=self._tokens(result),
                finish_reason=finish_reason(result),
            )
            for number, result in enumerate(results)
        ]
        return ChatCompletion(object="chat.completion", choices=choices, **self._whole(results))

    def begin(self, number: int) -> Iterator[ChatChunk]:
        delta = Delta(role="assistant", content="")
        yield self._event([ChunkChoice(index=number, delta=delta, finish_reason=None)])

    def more(self, number: int, text: str) -> ChatChunk:
        delta = Delta(content=text)
        return self._event([ChunkChoice(index=number, delta=delta, finish_reason=None)])

    def end(self, number: int, result: GenerationResult) -> ChatChunk:
        choice = ChunkChoice(
            index=number,
            delta=Delta(),
            logprobs=self._tokens(result),
            finish_reason=finish_reason(result),
        )
        return self._event([choice], timings=timings(result))

    def _event(self, choices: list[ChunkChoice], **more: Any) -> ChatChunk:
        values = self._common | self._no_usage | more
        return ChatChunk(object="chat.completion.chunk", choices=choices, **values)

    def _tokens(self, result: GenerationResult) -> ChatLogprobs | None:
        return None if self._logprobs is None else chat_logprobs(result, self._logprobs)


class CompletionWriter(Writer):
    """Of `CompletionRequest`."""

    prefix = "cmpl"

    def __init__(self, body: CompletionRequest, fingerprint: str | None) -> None:
        super().__init__(body, fingerprint)
        self._logprobs = body.logprobs

    def whole(self, results: Sequence[GenerationResult]) -> Completion:
        choices = [
            CompletionChoice(
                text=result.text,
                index=number,
                logprobs=self._tokens(result),
                finish_reason=finish_reason(result),
            )
            for number, result in enumerate(results)
        ]
        return Completion(object="text_completion", choices=choices, **self._whole(results))

    def begin(self, number: int) -> Iterator[Completion]:
        yield from ()

    def more(self, number: int, text: str) -> Completion:
        return self._event([CompletionChoice(text=text, index=number, finish_reason=None)])

    def end(self, number: int, result: GenerationResult) -> Completion:
        choice = CompletionChoice(
            text="",
            index=number,
            logprobs=self._tokens(result),
            finish_reason=finish_reason(result),
        )
        return self._event([choice], timings=timings(result))

    def _event(self, choices: list[CompletionChoice], **more: Any) -> Completion:
        values = self._common | self._no_usage | more
        return Completion(object="text_completion", choices=choices, **values)

    def _tokens(self, result: GenerationResult) -> CompletionLogprobs | None:
        return None if self._logprobs is None else completion_logprobs(result, self._logprobs)


def event(values: BaseModel) -> str:
    """A server-sent event; what was not set is left out."""
    return f"data: {values.model_dump_json(exclude_unset=True)}\n\n"
