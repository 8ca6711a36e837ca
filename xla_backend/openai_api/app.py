"""`create_api`: the API as an app of its own, which a server mounts at `/v1`.

Knows paths, and how an answer is sent: whole or in events. Must not know who may ask, what a
request holds or what an answer looks like.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import logging
import time
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Form, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from xla_backend import __version__
from xla_backend.checkpoints.prompts import check_prompt
from xla_backend.interface.errors import BackendError, ModelUnavailable
from xla_backend.interface.results import (
    GenerationResult,
    ModelInfo,
    TranscribedWindow,
    Transcription,
)
from xla_backend.openai_api.answers import (
    ChatCompletion,
    Completion,
    ErrorAnswer,
    Model,
    Models,
    Transcript,
)
from xla_backend.openai_api.errors import describe, describe_fields, error_body, error_response
from xla_backend.openai_api.host import Host
from xla_backend.openai_api.outside import PATH
from xla_backend.openai_api.requests import ChatRequest, CompletionRequest, Generation
from xla_backend.openai_api.running import Runs
from xla_backend.openai_api.transcription import TranscriptionForm, kept
from xla_backend.openai_api.writers import ChatWriter, CompletionWriter, Writer, event

WHOLE_TOKENS = 64
"""A text of so many tokens is written at once where it is not streamed: were its client to leave,
it would be over nearly as soon as it could be stopped."""
DONE = "data: [DONE]\n\n"
_EVENTS = "text/event-stream"
_JSON = "application/json"
_UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_LEFT = 499
_COMMENT = ": nothing yet\n\n"
FIRST_WAIT_S = 0.5
"""How long a stream waits for its first token before it sends its headers."""
COMMENT_EVERY_S = 10.0
"""How often a stream says that it lives, before proxies that wait a minute give it up."""
_MEANINGS: dict[int | str, str] = {
    400: "The request is wrong, or asks for what is not supported.",
    401: "The page has a password, and it is missing or wrong.",
    404: "There is no such model.",
    405: "The address takes another method.",
    413: "More bytes than are taken.",
    429: "Too many requests wait already, or too many wrong passwords.",
    500: "Something went wrong that should not have.",
    503: "The engine stopped; the next request starts it again.",
    "default": "Any other mistake.",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": what} for status, what in _MEANINGS.items()
}

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The text, in the form that was asked for.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}

logger = logging.getLogger(__name__)
Value = TypeVar("Value")


class _ClientLeft(Exception):
    """Nobody reads the answer."""


def create_api(host: Host) -> FastAPI:
    """The app; mount it at `PATH`."""
    api = _Api(
        host,
        title="XLA Playground, OpenAI's protocol",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": PATH}],
        responses=_ERRORS,
    )
    threads = ThreadPoolExecutor(host.at_once, thread_name_prefix="v1")
    fingerprint = _Fingerprints(host)
    started = int(time.time())

    @api.get("/models")
    async def models() -> Models:
        """List the models that requests can name."""
        return Models(data=[_model(info, started) for info in host.models()])

    @api.get("/models/{name:path}")
    async def model(name: str) -> Model:
        """Say what is known of one model."""
        for info in host.models():
            if info.name == name:
                return _model(info, started)
        raise ModelUnavailable(f"There is no model {name[:80]!r} here; /v1/models lists them.")

    @api.post("/chat/completions", response_model=ChatCompletion, responses=_streamed("chunks"))
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        """Answer messages with an instruct model; with `stream`, in server-sent events."""
        return await complete(request, body, ChatWriter)

    @api.post("/completions", response_model=Completion, responses=_streamed("objects"))
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue texts; with `stream`, in server-sent events."""
        return await complete(request, body, CompletionWriter)

    @api.post("/audio/transcriptions", response_model=Transcript, responses=_TEXT)
    async def transcriptions(
        form: Annotated[TranscriptionForm, Form(media_type="multipart/form-data")],
        request: Request,
    ) -> Response:
        """Write down what is said in a recording: WAV, FLAC, OGG, MP3, M4A or WebM."""
        options = form.options()
        host.check(form.model, "", options)
        with kept(form.file) as path:
            opened = partial(
                host.backend.transcribe_windows,
                form.model,
                path,
                options,
                language=form.language or None,
                max_seconds=host.audio_s,
            )
            runs: Runs[TranscribedWindow, Transcription] = Runs(
                threads, host.enter(request, 1, alone=True), [opened]
            )
            try:
                [result] = await _while_there(request, runs.results())
            finally:
                runs.leave()
        if form.response_format == "text":
            return Response(result.text + "\n", media_type="text/plain")
        transcript = form.answer(result)
        return Response(transcript.model_dump_json(exclude_unset=True), media_type=_JSON)

    async def complete(request: Request, body: Generation, writer: Any) -> Response:
        info = next((info for info in host.models() if info.name == body.model), None)
        asked = body.runs(host.new_tokens)
        for prompt, options in asked:
            host.check(body.model, prompt, options)
            if info is not None:
                check_prompt(prompt, info)  # or it would be refused only at its turn
        opens = [
            partial(
                host.backend.stream,
                body.model,
                prompt,
                options,
                exact_key=bool(body.exact_key),
                cache_salt=_salt(host, request, body.cache_salt),
                in_chunks=bool(body.stream) or options.max_new_tokens > WHOLE_TOKENS,
            )
            for prompt, options in asked
        ]
        runs: Runs[str, GenerationResult] = Runs(threads, host.enter(request, len(asked)), opens)
        try:
            if body.stream:
                first = asyncio.ensure_future(anext(chunks := runs.chunks()))
                # An error that is there by then has a status of its own.
                await _while_there(request, asyncio.wait([first], timeout=FIRST_WAIT_S))
                if first.done():
                    first.result()
                write = writer(body, await fingerprint.of(body.model))
                events = _events(write, _alive(first, chunks), runs)
                return StreamingResponse(events, headers=_UNBUFFERED, media_type=_EVENTS)
            results = await _while_there(request, runs.results())
        except BaseException:
            runs.leave()
            raise
        answer = writer(body, await fingerprint.of(body.model)).whole(results)
        return Response(answer.model_dump_json(), media_type=_JSON)

    @api.exception_handler(RequestValidationError)
    async def wrong_fields(request: Request, error: RequestValidationError) -> Response:
        return error_response(*describe_fields(error.errors()))

    @api.exception_handler(BackendError)
    async def wrong_request(request: Request, error: BackendError) -> Response:
        return error_response(*describe(error))

    @api.exception_handler(HTTPException)
    async def wrong_address(request: Request, error: HTTPException) -> Response:
        sentence = {
            404: f"There is nothing at this address. {PATH}/models lists the models.",
            405: "This address takes another method.",
            400: "The body cannot be read. Send a JSON object, as application/json.",
        }.get(error.status_code, str(error.detail))
        answer = error_response(error.status_code, sentence)
        answer.headers.update(error.headers or {})
        return answer

    @api.exception_handler(_ClientLeft)
    async def left(request: Request, error: _ClientLeft) -> Response:
        return Response(status_code=_LEFT)

    @api.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        logger.error("A request failed unexpectedly", exc_info=error)
        return error_response(*describe(error))

    return api


def _salt(host: Host, request: Request, asked: str | None) -> str:
    """The engine's salt for a caller: no other caller's, nor a visitor's of the page.

    Who names none shares prefixes with those of the same password and address. A salt is a secret
    of those who share it: mixed with both, one that is easy to guess is still none to others.
    OpenAI's `prompt_cache_key` is no secret, so it does nothing here.
    """
    who = [request.headers.get("authorization", ""), host.address(request), asked or ""]
    return "v1 " + hashlib.sha256("\0".join(who).encode()).hexdigest()


class _Api(FastAPI):
    """The app, whose description names the models that there are."""

    def __init__(self, host: Host, **settings: Any) -> None:
        super().__init__(**settings)
        self._host = host

    def openapi(self) -> dict[str, Any]:
        description = super().openapi()
        names = {
            is_speech: [
                info.name for info in self._host.models() if (info.family == "speech") == is_speech
            ]
            for is_speech in (False, True)
        }
        for name, schema in description["components"]["schemas"].items():
            if name in ("ChatRequest", "CompletionRequest", "TranscriptionForm"):
                schema["properties"]["model"]["enum"] = names[name == "TranscriptionForm"]
        return description


class _Fingerprints:
    """Names of models, their weights and the versions that run them: `system_fingerprint`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[str, str] = {}

    async def of(self, model: str) -> str | None:
        """Of a model that has answered; None where nothing can be told of it yet."""
        if model not in self._known:
            try:
                identity = await asyncio.to_thread(self._host.backend.identity, model)
            except BackendError:
                return None
            versions = [__version__, importlib.metadata.version("tensorflow")]
            digest = hashlib.sha256("\n".join([model, identity, *versions]).encode())
            self._known[model] = f"fp_{digest.hexdigest()[:12]}"
        return self._known[model]


def _model(info: ModelInfo, created: int) -> Model:
    return Model(
        id=info.name,
        created=created,
        owned_by=info.source,
        family=info.family,
        context_length=info.context_length,
        is_instruct=info.is_instruct,
        weights=info.weights,
        rounded_bits=info.rounded_bits,
    )


def _streamed(what: str) -> dict[int | str, dict[str, Any]]:
    content = {_EVENTS: {"schema": {"type": "string"}}}
    return {200: {"description": f"The answer, or {what} as events.", "content": content}}


async def _events(
    write: Writer,
    chunks: AsyncIterator[tuple[int, str | GenerationResult] | None],
    runs: Runs[str, GenerationResult],
) -> AsyncIterator[str]:
    """The events of a stream; an error after the first is the last event."""
    begun: set[int] = set()
    results: dict[int, GenerationResult] = {}
    try:
        async for arrived in chunks:
            if arrived is None:
                yield _COMMENT
                continue
            number, chunk = arrived
            if number not in begun:
                begun.add(number)
                for each in write.begin(number):
                    yield event(each)
            if isinstance(chunk, GenerationResult):
                results[number] = chunk
                yield event(write.end(number, chunk))
            else:
                yield event(write.more(number, chunk))
        for each in write.usage([results[number] for number in sorted(results)]):
            yield event(each)
        yield DONE
    except Exception as error:
        if not isinstance(error, BackendError):
            logger.exception("A stream failed unexpectedly")
        yield f"data: {error_body(*describe(error))}\n\n"
    finally:
        runs.leave()  # the client may have left


async def _alive(
    first: asyncio.Future[Any], rest: AsyncIterator[Value]
) -> AsyncIterator[Value | None]:
    """What comes, and None whenever nothing came for a while, so that proxies keep the line."""
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


async def _while_there(request: Request, work: Awaitable[Value]) -> Value:
    """What comes of the work.

    Raises:
        _ClientLeft: nobody waits for it any more.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _ClientLeft
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    """Returns once the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
