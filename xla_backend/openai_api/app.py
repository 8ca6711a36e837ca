"""`create_api`: the API as an app that a server mounts at `/v1`.

Knows paths, and the request and answer of each. Must not know who may ask, what a request holds or
how an answer is sent.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Form, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from xla_backend import __version__
from xla_backend.interface.decisions import Decisions
from xla_backend.interface.errors import BackendError
from xla_backend.interface.requests import SpeechRequest, TextRequest
from xla_backend.interface.results import ModelInfo
from xla_backend.openai_api.addresses import NOT_OFFERED, nothing_at
from xla_backend.openai_api.answers import (
    ChatCompletion,
    Completion,
    ErrorAnswer,
    ModelEntry,
    Models,
    Transcript,
)
from xla_backend.openai_api.completing import EVENTS, JSON, ClientLeft, Completer, salt
from xla_backend.openai_api.errors import describe, describe_fields, error_response
from xla_backend.openai_api.host import Host, meant, public_name, without_paths
from xla_backend.openai_api.outside import PATH
from xla_backend.openai_api.protocols.decisions import DecideRequest, DecisionsRequest
from xla_backend.openai_api.protocols.llama_cpp import add_llama_cpp
from xla_backend.openai_api.protocols.messages import MessagesRequest, MessageWriter
from xla_backend.openai_api.protocols.responses import (
    ResponseRequest,
    ResponseStore,
    ResponseWriter,
)
from xla_backend.openai_api.protocols.transcription import TranscriptionForm, saved
from xla_backend.openai_api.requests import ChatRequest, CompletionRequest
from xla_backend.openai_api.writers import ChatWriter, CompletionWriter

_LEFT = 499
_MEANINGS: dict[int | str, str] = {
    400: "The request is wrong, or asks for what is not supported.",
    401: "The page has a password, and it is missing or wrong.",
    404: "There is no such model.",
    405: "This address needs another method.",
    413: "The body is too large.",
    429: "Too many requests wait already, or too many wrong passwords.",
    500: "Something went wrong that should not have.",
    503: "The engine stopped; the next request starts it again.",
    "default": "Any other error.",
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


def create_api(host: Host) -> FastAPI:
    """The app; mount it at `PATH`, behind `Outside`."""
    api = FastAPI(
        title="XLA Playground, OpenAI's protocol",
        version=__version__,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": PATH}],
        responses=_ERRORS,
    )
    completer, stored = Completer(host), ResponseStore()
    started = int(time.time())

    @api.get("/models")
    async def models() -> Models:
        """List the models that requests can name."""
        known = host.models()
        return Models(data=[_model(info, public_name(info, known), started) for info in known])

    @api.get("/models/{name:path}")
    async def model(name: str) -> ModelEntry:
        """Describe one model."""
        info = completer.info(name)
        return _model(info, public_name(info, host.models()), started)

    @api.post("/chat/completions", response_model=ChatCompletion, responses=_streamed("chunks"))
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        """Answer messages with an instruct model; with `stream`, in server-sent events."""
        return await completer.complete(request, body, ChatWriter)

    @api.post("/completions", response_model=Completion, responses=_streamed("objects"))
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue texts; with `stream`, in server-sent events."""
        return await completer.complete(request, body, CompletionWriter)

    @api.post("/responses", responses=_streamed("its events"))
    async def responses(body: ResponseRequest, request: Request) -> Response:
        """OpenAI's newer form of a chat; with `stream`, in server-sent events."""
        chat, owner = full_chat(body, request), salt(host, request, None)
        return await completer.complete(
            request, chat, partial(ResponseWriter, body, store=stored, owner=owner)
        )

    def full_chat(body: ResponseRequest, request: Request) -> ChatRequest:
        owner, previous = salt(host, request, None), body.previous_response_id
        field = "previous_response_id"
        before = stored.get(owner, previous, field).messages if previous else ()
        body.fill_in(partial(stored.item, owner))
        return body.chat(before)

    @api.get("/responses/{id}")
    async def response(id: str, request: Request) -> Response:
        """Return an earlier answer that is still stored."""
        return Response(stored.get(salt(host, request, None), id).answer, media_type=JSON)

    @api.delete("/responses/{id}")
    async def forget_response(id: str, request: Request) -> dict[str, Any]:
        """Delete an answer."""
        stored.remove(salt(host, request, None), id)
        return {"id": id, "object": "response", "deleted": True}

    @api.post("/messages", responses=_streamed("its events"))
    async def messages(body: MessagesRequest, request: Request) -> Response:
        """Anthropic's form of a chat; with `stream`, in server-sent events."""
        chat = body.chat()
        return await completer.complete(request, chat, MessageWriter)

    @api.post("/messages/count_tokens")
    async def count_tokens(body: MessagesRequest) -> dict[str, int]:
        """Count the tokens of such a request."""
        return await counted(body.chat())

    @api.post("/responses/input_tokens")
    async def count_response_tokens(body: ResponseRequest, request: Request) -> dict[str, Any]:
        """Count the tokens of such a request."""
        return {"object": "response.input_tokens", **await counted(full_chat(body, request))}

    @api.post("/chat/completions/input_tokens")
    async def count_chat_tokens(body: ChatRequest) -> dict[str, int]:
        """Count the tokens of such a request."""
        return await counted(body)

    async def counted(chat: ChatRequest) -> dict[str, int]:
        _, ids = await completer.encoded(chat)
        return {"input_tokens": len(ids)}

    @api.post("/decide")
    async def decide(body: DecideRequest, request: Request) -> Response:
        """Tell how likely each allowed answer to some questions about a text is."""
        return await decided(body, request, completer.model(body.model, is_chat=True))

    @api.post("/systemone")
    async def system_one(body: DecideRequest, request: Request) -> Response:
        """The same, for clients that name a model of their maker: another one answers."""
        model = completer.model(body.model, is_chat=True)
        if model not in {info.name for info in host.models()}:
            model = completer.model(None, is_chat=True)
        return await decided(body, request, model)

    @api.post("/decisions")
    async def decisions(body: DecisionsRequest, request: Request) -> Response:
        """The same in OpenAI's form."""
        return await decided(body, request, completer.model(body.model, is_chat=True))

    async def decided(
        body: DecideRequest | DecisionsRequest, request: Request, model: str
    ) -> Response:
        text = body.text
        host.check(model, text)
        job = TextRequest(
            model,
            text,
            cache_salt=salt(host, request, body.cache_salt),
            in_chunks=False,
            questions=body.all_questions(),
        )
        [result] = await completer.results(request, [partial(host.backend.submit, job)])
        assert isinstance(result, Decisions)
        return JSONResponse(body.answer(result, completer.name(model)))

    @api.post("/audio/transcriptions", response_model=Transcript, responses=_TEXT)
    async def transcriptions(
        form: Annotated[TranscriptionForm, Form(media_type="multipart/form-data")],
        request: Request,
    ) -> Response:
        """Transcribe a recording: WAV, FLAC, OGG, MP3, M4A or WebM."""
        options = form.options()
        model = meant(form.model, host.models(), lambda info: info.family == "speech")
        host.check(model, "", options)
        with ExitStack() as stack:  # a long recording takes a while to copy
            path = await asyncio.to_thread(stack.enter_context, saved(form.file))
            job = SpeechRequest(
                model,
                path,
                options,
                form.language or None,
                max_seconds=host.audio_s,
                has_times=form.has_times,
            )
            opened = partial(host.backend.submit_speech, job)
            [result] = await completer.results(request, [opened])
        if (text := form.text(result)) is not None:
            kind = "text/vtt" if form.response_format == "vtt" else "text/plain"
            return Response(text, media_type=kind)
        transcript = form.answer(result)
        return Response(transcript.model_dump_json(exclude_unset=True), media_type=JSON)

    @api.exception_handler(RequestValidationError)
    async def wrong_fields(request: Request, error: RequestValidationError) -> Response:
        is_form = request.headers.get("content-type", "").startswith("multipart/")
        status, sentence, *rest = describe_fields(error.errors(), is_form)
        return error_response(_unprocessable(request, status), sentence, *rest)

    @api.exception_handler(ValidationError)
    async def wrong_chat(request: Request, error: ValidationError) -> Response:
        """Wrong fields of the chat that another protocol's request becomes."""
        errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        return error_response(*describe_fields(errors))

    @api.exception_handler(BackendError)
    async def wrong_request(request: Request, error: BackendError) -> Response:
        status, sentence, *rest = describe(error)
        status = _unprocessable(request, status)
        return error_response(status, without_paths(sentence, host.models()), *rest)

    @api.exception_handler(HTTPException)
    async def wrong_address(request: Request, error: HTTPException) -> Response:
        path, status = request.url.path, error.status_code
        if status == 404 or (status == 405 and path.rpartition("/")[2] in NOT_OFFERED):
            status, sentence = 404, nothing_at(path, api)
        elif status == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            sentence = f"This address takes {allowed}, not {request.method}."
        elif status == 400 and path.endswith("/transcriptions"):
            sentence = (
                "The form cannot be read. Send multipart/form-data with a boundary, and the "
                "recording in the field file."
            )
        elif status == 400:
            sentence = "The body cannot be read. Send a JSON object, as application/json."
        else:
            sentence = str(error.detail)
        answer = error_response(status, sentence)
        answer.headers.update(error.headers or {})
        return answer

    add_llama_cpp(api, completer)

    @api.exception_handler(ClientLeft)
    async def left(request: Request, error: ClientLeft) -> Response:
        return Response(status_code=_LEFT)

    @api.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        logger.error("A request failed unexpectedly", exc_info=error)
        return error_response(*describe(error))

    return api


def _model(info: ModelInfo, name: str, created: int) -> ModelEntry:
    own = {"id": name, "owned_by": info.source, "max_model_len": info.context_length}
    return ModelEntry.model_validate(dataclasses.asdict(info) | own | {"created": created})


def _unprocessable(request: Request, status: int) -> int:
    """The status of a wrong request, which is another one for clients of `/systemone`."""
    return 422 if status == 400 and request.url.path.endswith("/systemone") else status


def _streamed(what: str) -> dict[int | str, dict[str, Any]]:
    content = {EVENTS: {"schema": {"type": "string"}}}
    return {200: {"description": f"The answer, or {what} as events.", "content": content}}
