"""`Writer`: a request's results as the objects of a protocol, whole or in events.

Knows OpenAI's objects of chats and completions; others are in `responses` and `messages`. Must not
know how they are sent.
"""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import BaseModel

from xla_backend.answers.reader import AnswerReader, CallPart, Thought
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.prompt import Prompt, TokenIds, last_text
from xla_backend.interface.results import GenerationResult, TextChunk, Token
from xla_backend.openai_api.answers import (
    AnswerCall,
    AnswerDetails,
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
    DeltaCall,
    FunctionCall,
    Offsets,
    TokenDetails,
    Usage,
    chat_logprobs,
    completion_logprobs,
    finish_reason,
    generated,
    progress,
    prompt_logprobs,
    timings,
    usage,
    written,
)
from xla_backend.openai_api.requests import ChatRequest, CompletionRequest, OpenAiRequest

Values = BaseModel | dict[str, Any]
"""An answer, or an event of one. The `type` of a dict is the event's name."""


class Facts(NamedTuple):
    """What an answer contains besides the results.

    Attributes:
        fingerprint: of the model; None if it is not loaded yet.
        tokenizer: of the model; None likewise.
        runs: the prompts and options of the runs.
        prompt_ids: the tokens of each run's prompt; none for a model that is not loaded yet.
    """

    fingerprint: str | None
    tokenizer: Tokenizer | None
    runs: Sequence[tuple[Prompt, GenerationOptions]]
    prompt_ids: Sequence[Sequence[int]]

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts."""
        return sum(map(len, self.prompt_ids))


class Writer(ABC):
    """Writes the answer to one request.

    Attributes:
        done: the end of a stream.
    """

    done = "data: [DONE]\n\n"

    def __init__(self) -> None:
        self._sent_tokens: dict[int, int] = {}

    def new(self, number: int, text: str) -> tuple[Token, ...]:
        """The tokens of a choice's chunk, if they were requested."""
        tokens = text.tokens if isinstance(text, TextChunk) else ()
        self._sent_tokens[number] = self._sent_tokens.get(number, 0) + len(tokens)
        return tokens

    def rest(self, number: int, result: GenerationResult) -> tuple[Token, ...]:
        """The tokens of a choice that were in no chunk."""
        sent = self._sent_tokens.get(number, 0)
        self._sent_tokens[number] = generated(result)
        return written(result)[sent:]

    @abstractmethod
    def whole(self, results: Sequence[GenerationResult]) -> Values:
        """The answer without streaming."""

    def begin(self, number: int) -> Iterator[Values]:
        """The events before a choice's first text."""
        yield from ()

    @abstractmethod
    def more(self, number: int, text: str) -> Iterator[Values]:
        """The events of a chunk of a choice's text."""

    @abstractmethod
    def end(self, number: int, result: GenerationResult) -> Iterator[Values]:
        """The events at a choice's end."""

    def finish(self, results: Sequence[GenerationResult]) -> Iterator[Values]:
        """The events after all choices."""
        yield from ()

    def failed(self, error: dict[str, Any]) -> str:
        """The last event of a stream that failed."""
        return f"data: {json.dumps(error)}\n\n"


class _OpenAiWriter(Writer):
    """The common part of chats and completions.

    Attributes:
        prefix: of the answer's id.
        forms: of a whole answer and of an event: its class and its name in the protocol.
    """

    prefix: str
    forms: tuple[tuple[type[BaseModel], str], tuple[type[BaseModel], str]]

    def __init__(self, body: OpenAiRequest, facts: Facts) -> None:
        super().__init__()
        self._prompt_logprobs = body.prompt_logprobs
        self._with_ids, self._by_ids = body.return_token_ids, body.return_tokens_as_token_ids
        self._times, self._number = body.times, body.n or 1
        self._prompt_ids = facts.prompt_ids[:: self._times]
        self._tokenizer = facts.tokenizer
        self._prompt_tokens = facts.prompt_tokens // self._times
        options = body.stream_options
        wants_usage = options is not None and options.include_usage
        self._counts = options is not None and wants_usage and options.continuous_usage_stats
        # As OpenAI does: null in every event but the last, and only if it was requested.
        self._no_usage: dict[str, Any] = {"usage": None} if wants_usage else {}
        self._common: dict[str, Any] = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": body.model,
            "system_fingerprint": facts.fingerprint,
        }
        self._ignored = body.ignored

    def finish(self, results: Sequence[GenerationResult]) -> Iterator[BaseModel]:
        if self._no_usage:
            yield self._event([], usage=usage(results, self._times))

    def whole(self, results: Sequence[GenerationResult]) -> BaseModel:
        choices = [
            self._choice(place, results[number])
            for place, number in enumerate(self._chosen(results))
        ]
        ends = {"usage": usage(results, self._times), **self._at_end(results[0])}
        form, name = self.forms[0]
        return form(object=name, choices=choices, **self._common, **ends)

    def _chosen(self, results: Sequence[GenerationResult]) -> Iterable[int]:
        """The places of the results that are returned."""
        return range(len(results))

    def _at_end(self, result: GenerationResult) -> dict[str, Any]:
        """The fields of a whole answer and of a choice's last event."""
        return {"timings": timings(result), **self._ignored}

    def _usage_so_far(self) -> Usage:
        """The tokens so far; how many were reused is known at the end."""
        sent = sum(self._sent_tokens.values())
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=sent,
            total_tokens=self._prompt_tokens + sent,
            prompt_tokens_details=TokenDetails(cached_tokens=0),
            completion_tokens_details=AnswerDetails(reasoning_tokens=0),
        )

    def _ids(
        self, tokens: Sequence[Token], ended: GenerationResult | None = None
    ) -> dict[str, Any]:
        """vLLM's field for a choice's tokens, also the one that `ended` it, if it was requested."""
        last = ended.tokens[len(written(ended)) :] if ended else ()
        return {"token_ids": [token.id for token in (*tokens, *last)]} if self._with_ids else {}

    def _ids_of_prompt(self, number: int) -> dict[str, Any]:
        ids = list(self._prompt_ids[number // self._number])
        return {"prompt_token_ids": ids} if self._with_ids else {}

    def _named(self, tokens: Sequence[Token]) -> Sequence[Token]:
        """Tokens, by their ids where that was requested."""
        if not self._by_ids:
            return tokens
        return [
            replace(
                token,
                text=f"token_id:{token.id}",
                top_logprobs=tuple(t._replace(text=f"token_id:{t.id}") for t in token.top_logprobs),
            )
            for token in tokens
        ]

    @abstractmethod
    def _choice(self, number: int, result: GenerationResult) -> BaseModel:
        """A choice of the whole answer."""

    def _event(self, choices: list[Any], **more: Any) -> BaseModel:
        """An event of the stream."""
        form, name = self.forms[1]
        if self._counts and "usage" not in more:
            more["usage"] = self._usage_so_far()
        return form(object=name, choices=choices, **self._common, **self._no_usage | more)


class ChatWriter(_OpenAiWriter):
    """The writer for `ChatRequest`."""

    prefix = "chatcmpl"
    forms = ((ChatCompletion, "chat.completion"), (ChatChunk, "chat.completion.chunk"))

    def __init__(self, body: ChatRequest, facts: Facts) -> None:
        super().__init__(body, facts)
        self._logprobs = (body.top_logprobs or 0) if body.logprobs else None
        self._hides_thoughts = body.include_reasoning is False
        self._readers: dict[int, AnswerReader] = defaultdict(body.reader)
        self._pending: dict[int, tuple[Token, ...]] = {}
        self._started: set[int] = set()

    def whole(self, results: Sequence[GenerationResult]) -> BaseModel:
        of_prompt = prompt_logprobs(results[0].prompt_logprobs, self._prompt_logprobs)
        update = {"prompt_logprobs": of_prompt, **self._ids_of_prompt(0)}
        return super().whole(results).model_copy(update=update)

    def _choice(self, number: int, result: GenerationResult) -> ChatChoice:
        reader = self._readers[number]
        content = reader.read_whole(result.text)
        calls = [
            AnswerCall(id=id, function=FunctionCall(name=name, arguments=arguments))
            for id, name, arguments in reader.calls
        ]
        return ChatChoice(
            index=number,
            message=AnswerMessage(
                content=content or (None if calls or reader.thoughts else ""),
                reasoning_content=None if self._hides_thoughts else reader.thoughts,
                tool_calls=calls,
            ),
            logprobs=self._logprobs_of(number, written(result)),
            finish_reason=finish_reason(result, reader.has_called),
            **self._ids(written(result), result),
        )

    def _begin(self, number: int, part: str | CallPart) -> Iterator[BaseModel]:
        """The event before the first part: as OpenAI's, with a text only if one follows."""
        if number not in self._started:
            self._started.add(number)
            delta = Delta(role="assistant", content="" if type(part) is str else None)
            choice = ChunkChoice(index=number, delta=delta, finish_reason=None)
            yield self._event([choice], **self._ids_of_prompt(number))

    def more(self, number: int, text: str) -> Iterator[BaseModel]:
        if reading := progress(text):
            choice = ChunkChoice(index=number, delta=Delta(), finish_reason=None)
            yield self._event([choice], **reading)
        parts = list(self._shown(self._readers[number].push(text)))
        if parts:
            yield from self._begin(number, parts[0])  # before its tokens are counted
        # Tokens of text that is held back come with the next chunk.
        tokens = self._pending.pop(number, ()) + self.new(number, text)
        for part in parts:
            yield self._event([self._chunk(number, part, tokens)])
            tokens = ()
        self._pending[number] = tokens

    def _shown(self, parts: Iterable[str | CallPart]) -> Iterator[str | CallPart]:
        return (p for p in parts if not (self._hides_thoughts and isinstance(p, Thought)))

    def _chunk(self, number: int, part: str | CallPart, tokens: Sequence[Token]) -> ChunkChoice:
        choice = ChunkChoice(index=number, delta=_delta(part), finish_reason=None)
        if tokens:
            choice.logprobs = self._logprobs_of(number, tokens)
            choice = choice.model_copy(update=self._ids(tokens))
        return choice

    def end(self, number: int, result: GenerationResult) -> Iterator[BaseModel]:
        reader = self._readers[number]
        for part in self._shown(reader.finish()):
            yield from self._begin(number, part)
            yield self._event([self._chunk(number, part, ())])
        yield from self._begin(number, "")
        tokens = self._pending.pop(number, ()) + self.rest(number, result)
        choice = ChunkChoice(
            index=number,
            delta=Delta(),
            logprobs=self._logprobs_of(number, tokens) if tokens else None,
            finish_reason=finish_reason(result, reader.has_called),
            **self._ids(tokens, result),
        )
        yield self._event([choice], **self._at_end(result))

    def _logprobs_of(self, number: int, tokens: Sequence[Token]) -> ChatLogprobs | None:
        if self._logprobs is None:
            return None
        return chat_logprobs(self._named(tokens), self._logprobs, self._tokenizer)


class CompletionWriter(_OpenAiWriter):
    """The writer for `CompletionRequest`."""

    prefix = "cmpl"
    forms = ((Completion, "text_completion"), (Completion, "text_completion"))

    def __init__(self, body: CompletionRequest, facts: Facts) -> None:
        super().__init__(body, facts)
        self._logprobs = body.logprobs
        self._offsets: dict[int, Offsets] = {}
        texts: Iterable[str] = ()
        if body.echo:
            prompts = [prompt for prompt, _ in facts.runs[:: self._times]]
            texts = [_text(each, facts.tokenizer) for each in prompts for _ in range(self._number)]
        self._echoes = dict(enumerate(texts))

    def _choice(self, number: int, result: GenerationResult) -> CompletionChoice:
        # With the prompt's tokens, the one that ended the text is there, too: evaluations count
        # the new tokens from the end.
        is_echoed = number in self._echoes
        return CompletionChoice(
            text=self._echoes.get(number, "") + result.text,
            index=number,
            logprobs=self._logprobs_of(
                number,
                result.tokens if is_echoed else written(result),
                result.prompt_logprobs if is_echoed else (),
            ),
            finish_reason=finish_reason(result),
            prompt_logprobs=prompt_logprobs(result.prompt_logprobs, self._prompt_logprobs),
            **self._ids_of_prompt(number),
            **self._ids(written(result), result),
        )

    def _chosen(self, results: Sequence[GenerationResult]) -> Iterable[int]:
        """Of each prompt's texts those with the most likely tokens, by the mean."""
        if self._times == self._number:
            return range(len(results))

        def likeliness(place: int) -> float:
            tokens = results[place].tokens
            return sum(token.logprob for token in tokens) / max(1, len(tokens))

        groups = [range(at, at + self._times) for at in range(0, len(results), self._times)]
        ordered = (sorted(group, key=likeliness, reverse=True) for group in groups)
        return [place for group in ordered for place in group[: self._number]]

    def begin(self, number: int) -> Iterator[BaseModel]:
        if number in self._echoes:
            yield from self.more(number, self._echoes[number])

    def more(self, number: int, text: str) -> Iterator[BaseModel]:
        more = {} if number in self._sent_tokens else self._ids_of_prompt(number)
        tokens = self.new(number, text)
        more |= self._ids(tokens)
        choice = CompletionChoice(text=text, index=number, finish_reason=None, **more)
        if tokens:
            choice.logprobs = self._logprobs_of(number, tokens)
        yield self._event([choice], **progress(text))

    def end(self, number: int, result: GenerationResult) -> Iterator[BaseModel]:
        tokens = self.rest(number, result)
        choice = CompletionChoice(
            text="",
            index=number,
            logprobs=self._logprobs_of(number, tokens),
            finish_reason=finish_reason(result),
            **self._ids(tokens, result),
        )
        yield self._event([choice], **self._at_end(result))

    def _logprobs_of(
        self, number: int, tokens: Sequence[Token], prompt: Sequence[Token] = ()
    ) -> CompletionLogprobs | None:
        if self._logprobs is None:
            return None
        shown = {token.id for token in prompt}
        offsets = self._offsets.setdefault(number, Offsets(self._tokenizer, shown))
        named = self._named(tokens), self._named(prompt)
        return completion_logprobs(named[0], self._logprobs, offsets, named[1])


def _delta(part: str | CallPart) -> Delta:
    if isinstance(part, Thought):
        return Delta(reasoning_content=part)
    if isinstance(part, str):
        return Delta(content=part)
    first: dict[str, Any] = {"id": part.id, "type": "function"} if part.name else {}
    name = {"name": part.name} if part.name else {}
    function = FunctionCall(**name, arguments=part.arguments)
    return Delta(tool_calls=[DeltaCall(index=part.number, **first, function=function)])


def event(values: Values) -> str:
    """A server-sent event; unset fields of OpenAI's objects are left out."""
    # In ASCII: some clients end lines as Python does, at characters that JSON need not escape.
    if isinstance(values, BaseModel):
        return f"data: {values.model_dump_json(exclude_unset=True, ensure_ascii=True)}\n\n"
    name = f"event: {values['type']}\n" if "type" in values else ""
    return f"{name}data: {json.dumps(values)}\n\n"


def _text(prompt: Prompt, tokenizer: Tokenizer | None) -> str:
    if isinstance(prompt, TokenIds):
        return tokenizer.decode(prompt.ids, shown=prompt.ids) if tokenizer else ""
    return last_text(prompt)
