"""`Completer`: runs text requests at the host's engine, and sends the answers of a writer.

Knows how an answer is sent: whole or in events. Must not know paths, nor the form of requests and
answers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import importlib.metadata
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from xla_backend import __version__
from xla_backend.checkpoints.prompts import check_prompt
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.backend import Chunk, EventStream, Result
from xla_backend.interface.errors import BackendError, ModelUnavailable
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.request_queue import SOURCE, Source
from xla_backend.interface.requests import Prepared, TextRequest
from xla_backend.interface.results import GenerationResult, ModelInfo, TextChunk
from xla_backend.openai_api.errors import describe, error_object
from xla_backend.openai_api.host import Host, meant, public_name, without_paths
from xla_backend.openai_api.requests import ChatRequest, GenerationRequest
from xla_backend.openai_api.running import Runs
from xla_backend.openai_api.writers import Facts, Writer, event

WHOLE_TOKENS = 64
"""Texts of up to this many tokens run in one piece if not streamed: stopping one when its client
leaves would hardly be faster than finishing it."""
EVENTS = "text/event-stream"
JSON = "application/json"
_UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_COMMENT = ": nothing yet\n\n"
FIRST_WAIT_S = 0.5
"""Seconds for which a stream waits for its first token before it sends its headers."""
COMMENT_EVERY_S = 10.0
"""Interval of a silent stream's comments, because proxies cut it after a minute."""

logger = logging.getLogger(__name__)
Value = TypeVar("Value")


class ClientLeft(Exception):
    """The client has closed the connection."""


class Completer:
    """Runs requests at the host's engine."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._fingerprints: dict[str, str] = {}
        self._tokenizers: dict[str, Tokenizer] = {}

    def model(self, name: str | None, is_chat: bool) -> str:
        """The text model of a request; see `meant`."""

        def fits(info: ModelInfo) -> bool:
            return info.is_instruct if is_chat else info.family != "speech"

        return meant(name, self.host.models(), fits)

    def info(self, name: str | None) -> ModelInfo:
        """The entry of a request's model.

        Raises:
            ModelUnavailable: it is not in the list.
        """
        model = self.model(name, is_chat=True)
        for info in self.host.models():
            if info.name == model:
                return info
        raise ModelUnavailable(f"There is no model {model[:80]!r} here; /v1/models lists them.")

    def name(self, model: str) -> str:
        """What callers call a model."""
        models = self.host.models()
        return next((public_name(info, models) for info in models if info.name == model), model)

    async def complete(
        self,
        request: Request,
        body: GenerationRequest,
        writer: Callable[..., Writer],
    ) -> Response:
        """The answer to a request; with `stream`, in server-sent events.

        Args:
            request: the HTTP request.
            body: its contents.
            writer: makes the answer's writer from `body` and `facts`.
        """
        host = self.host
        await body.check_grammar()
        model = self.model(body.model, isinstance(body, ChatRequest))
        body.model = self.name(model)
        if body.needs_tokenizer:
            await asyncio.to_thread(body.resolve, await self._loaded_tokenizer(request, body))
        tools: tuple[dict[str, Any], ...] = ()
        template: Mapping[str, Any] = {}
        if isinstance(body, ChatRequest) and (body.listed_tools or body.template):
            tokenizer = await self._loaded_tokenizer(request, body)
            if body.listed_tools:
                await asyncio.to_thread(lambda: body.call_as(tokenizer.tool_format))
            tools, template = tuple(body.listed_tools), body.template
        info = next((info for info in host.models() if info.name == model), None)
        requested = body.runs(host.new_tokens, info.sampling if info else {})
        for prompt, options in requested:
            host.check(model, prompt, options)
        prepared = [
            await self._prepared(
                TextRequest(
                    model,
                    prompt,
                    options,
                    cache_salt=salt(host, request, body.cache_salt),
                    shares_salt=not body.cache_salt,
                    tools=tools,
                    template=template,
                    in_chunks=bool(body.stream) or options.max_new_tokens > WHOLE_TOKENS,
                    with_tokens=bool(body.stream) and body.with_tokens,
                    with_progress=bool(body.stream and body.return_progress),
                    with_prompt_logprobs=body.with_prompt_logprobs,
                )
            )
            for prompt, options in requested
        ]
        opens = [partial(host.backend.submit, each) for each in prepared]
        prompt_ids = [each.token_ids if isinstance(each, Prepared) else () for each in prepared]

        async def write() -> Writer:
            fingerprint, tokenizer = await self._known(model)
            return writer(body, facts=Facts(fingerprint, tokenizer, requested, prompt_ids))

        reads_only = body.requested_tokens() == 0
        if not body.stream:
            results = await self.results(request, opens)
            results = [*map(_without_text, results)] if reads_only else results
            answer = (await write()).whole(results)
            if isinstance(answer, BaseModel):
                return Response(answer.model_dump_json(), media_type=JSON)
            return Response(json.dumps(answer), media_type=JSON)
        SOURCE.set(_source(host, request))
        runs = Runs(opens)
        try:
            first = asyncio.ensure_future(anext(chunks := runs.chunks()))
            # An error that comes before then gets its own status.
            await while_there(request, asyncio.wait([first], timeout=FIRST_WAIT_S))
            if first.done():
                first.result()
            arriving = _alive(first, chunks)
            events = _events(
                await write(), _results_of(arriving) if reads_only else arriving, runs, host
            )
            return StreamingResponse(events, headers=_UNBUFFERED, media_type=EVENTS)
        except BaseException:
            runs.leave()
            raise

    async def results(
        self,
        request: Request,
        opens: Sequence[Callable[[], EventStream[Chunk, Result]]],
    ) -> list[Result]:
        """The results of runs that are not streamed; ends them if the client leaves.

        Args:
            request: the HTTP request.
            opens: for each run, the function that sends it to the engine.
        """
        SOURCE.set(_source(self.host, request))
        runs = Runs(opens)
        try:
            return await while_there(request, runs.results())
        finally:
            runs.leave()

    async def _prepared(self, request: TextRequest) -> Prepared | TextRequest:
        """The request with its tokens; as it is if its model is not loaded: the engine prepares it.

        Raises:
            InvalidRequest: the prompt or an option is wrong.
        """
        try:
            return await asyncio.to_thread(self.host.backend.prepare, request)
        except ModelUnavailable:
            return request

    async def encoded(self, chat: ChatRequest) -> tuple[Tokenizer, list[int]]:
        """A chat's tokens, and the tokenizer.

        Raises:
            InvalidRequest: the messages are wrong.
        """
        info, [prompt] = self.info(chat.model), chat.prompts()
        self.host.check(info.name, prompt)
        check_prompt(prompt, info)
        tokenizer = await self.tokenizer(info.name)
        encode = partial(tokenizer.encode, tools=chat.listed_tools, template=chat.template)
        return tokenizer, await asyncio.to_thread(encode, prompt)

    async def _loaded_tokenizer(self, request: Request, body: GenerationRequest) -> Tokenizer:
        """The tokenizer of a request's model, which is loaded first if it is not downloaded yet.

        Raises:
            ModelUnavailable: the model is not offered.
        """
        model = self.info(body.model).name
        try:
            return await self.tokenizer(model)
        except ModelUnavailable:
            host, options = self.host, GenerationOptions(max_new_tokens=1)
            host.check(model, "a", options)
            requested = TextRequest(model, "a", options, in_chunks=False)
            await self.results(request, [partial(host.backend.submit, requested)])
            return await self.tokenizer(model)

    async def tokenizer(self, model: str) -> Tokenizer:
        """The tokenizer of a model.

        Raises:
            ModelUnavailable: the model is not offered, or of the Hub and not loaded yet.
        """
        self.host.check(model)
        if model not in self._tokenizers:
            tokenizer = await asyncio.to_thread(self.host.backend.tokenizer, model)
            self._tokenizers[model] = tokenizer
        return self._tokenizers[model]

    async def _known(self, model: str) -> tuple[str | None, Tokenizer | None]:
        """`system_fingerprint` (of a model's name, weights and versions) and the tokenizer.

        None for a model that is not loaded yet.
        """
        try:
            if model not in self._fingerprints:
                identity = await asyncio.to_thread(self.host.backend.identity, model)
                versions = [__version__, importlib.metadata.version("tensorflow")]
                digest = hashlib.sha256("\n".join([model, identity, *versions]).encode())
                self._fingerprints[model] = f"fp_{digest.hexdigest()[:12]}"
            return self._fingerprints[model], await self.tokenizer(model)
        except BackendError:
            return None, None


def salt(host: Host, request: Request, requested: str | None) -> str:
    """The engine's salt for a caller, never that of another caller or a visitor of the page.

    Callers without a `cache_salt` share prefixes with those of the same password and address. Both
    are mixed in, so that a salt which is easy to guess still protects against others. OpenAI's
    `prompt_cache_key` is not a secret, so it has no effect.
    """
    who = [request.headers.get("authorization", ""), host.address(request), requested or ""]
    return "v1 " + hashlib.sha256("\0".join(who).encode()).hexdigest()


def _source(host: Host, request: Request) -> Source:
    return Source(request.url.path, address=host.address(request))


def _without_text(result: GenerationResult) -> GenerationResult:
    """The result of a request for no token, whose run has one that nobody asked for."""
    return dataclasses.replace(result, text="", tokens=(), cut_tokens=0, finish="length")


async def _results_of(
    chunks: AsyncIterator[tuple[int, str | GenerationResult] | None],
) -> AsyncIterator[tuple[int, str | GenerationResult] | None]:
    """What arrives of requests for no token."""
    async for arrived in chunks:
        if arrived is None:
            yield None
        elif isinstance(result := arrived[1], GenerationResult):
            yield arrived[0], _without_text(result)
        elif isinstance(result, TextChunk) and result.progress is not None:
            yield arrived


async def _events(
    write: Writer,
    chunks: AsyncIterator[tuple[int, str | GenerationResult] | None],
    runs: Runs[str, GenerationResult],
    host: Host,
) -> AsyncIterator[str]:
    """The events of a stream; an error after the first is the last event."""
    started: set[int] = set()
    results: dict[int, GenerationResult] = {}
    try:
        async for arrived in chunks:
            if arrived is None:
                yield _COMMENT
                continue
            number, chunk = arrived
            if number not in started:
                started.add(number)
                for each in write.begin(number):
                    yield event(each)
            if isinstance(chunk, GenerationResult):
                results[number] = chunk
                for each in write.end(number, chunk):
                    yield event(each)
            else:
                for each in write.more(number, chunk):
                    yield event(each)
        for each in write.finish([results[number] for number in sorted(results)]):
            yield event(each)
        yield write.done
    except Exception as error:
        if not isinstance(error, BackendError):
            logger.exception("A stream failed unexpectedly")
        status, sentence, *rest = describe(error)
        yield write.failed(error_object(status, without_paths(sentence, host.models()), *rest))
    finally:
        runs.leave()  # stops the runs if the client has left


async def _alive(
    first: asyncio.Future[Any], rest: AsyncIterator[Value]
) -> AsyncIterator[Value | None]:
    """The values, and None whenever none came for a while, to keep proxies from cutting."""
    following = first
    try:
        while True:
            await asyncio.wait([following], timeout=COMMENT_EVERY_S)
            if not following.done():
                yield None
                continue
            try:
                yield following.result()
            except StopAsyncIteration:
                return
            following = asyncio.ensure_future(anext(rest))
    finally:
        following.cancel()


async def while_there(request: Request, work: Awaitable[Value]) -> Value:
    """The result of the work.

    Raises:
        ClientLeft: the client has closed the connection.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    """Returns once the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
