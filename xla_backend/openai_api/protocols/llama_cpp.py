"""Endpoints for llama.cpp's web page and tools: tokens, properties and slots.

Knows their fields, and vLLM's for tokens. Must not know how requests are run.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from xla_backend import __version__
from xla_backend.interface.prompt import Prompt, TokenIds
from xla_backend.interface.request_queue import AT_ONCE
from xla_backend.openai_api.completing import Completer
from xla_backend.openai_api.errors import RETRY_S, NotSupported
from xla_backend.openai_api.fields import Fields
from xla_backend.openai_api.protocols.completion import (
    InfillRequest,
    OwnCompletionRequest,
    OwnCompletionWriter,
)
from xla_backend.openai_api.requests import ChatMessage, ChatRequest


class TokenizeRequest(Fields):
    """A text (llama.cpp's `content`, vLLM's `prompt`) or messages."""

    model: str | None = None
    content: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special: bool = False
    add_special_tokens: bool = True
    with_pieces: bool = False
    return_token_strs: bool | None = None


class DetokenizeRequest(Fields):
    """Tokens."""

    model: str | None = None
    tokens: list[int]


def add_llama_cpp(api: FastAPI, completer: Completer) -> None:
    """Adds the endpoints."""
    host = completer.host

    @api.post("/tokenize")
    async def tokenize(body: TokenizeRequest) -> dict[str, Any]:
        """The tokens of a text, or of messages as the model reads them."""
        info = completer.info(body.model)
        text = body.prompt if body.content is None else body.content
        special = body.add_special if body.content is not None else body.add_special_tokens
        if text is None and not body.messages:
            raise NotSupported("content", "content is missing: send the text as content.")
        messages = tuple(message.to_message() for message in body.messages or ())
        prompt: Prompt = messages if text is None else text
        host.check(info.name, prompt)
        tokenizer = await completer.tokenizer(info.name)

        def tokens() -> list[Any]:
            ids = tokenizer.encode(prompt, special=special)
            if not body.with_pieces:
                return ids
            return [{"id": each, "piece": tokenizer.token_text(each)} for each in ids]

        found = await asyncio.to_thread(tokens)
        answer = {"tokens": found, "count": len(found), "max_model_len": info.context_length}
        with_texts = body.return_token_strs and not body.with_pieces
        answer["token_strs"] = list(map(tokenizer.token_text, found)) if with_texts else None
        return answer | body.ignored

    @api.post("/completion")
    async def completion(body: OwnCompletionRequest, request: Request) -> Response:
        """Continue a text, in llama.cpp's own form."""
        return await completer.complete(request, body, OwnCompletionWriter)

    @api.post("/infill")
    async def infill(body: InfillRequest, request: Request) -> Response:
        """Write what is missing in the middle of a text, in llama.cpp's own form."""
        return await completer.complete(request, body, OwnCompletionWriter)

    @api.post("/apply-template")
    async def apply_template(body: ChatRequest) -> dict[str, Any]:
        """The text of messages as the model reads it."""
        tokenizer, ids = await completer.encoded(body)
        return {"prompt": tokenizer.decode(ids, shown=ids), **body.ignored}

    @api.post("/detokenize")
    async def detokenize(body: DetokenizeRequest) -> dict[str, Any]:
        """The text of tokens."""
        tokenizer = await completer.tokenizer(completer.info(body.model).name)

        def read() -> str:
            ids = tokenizer.encode(TokenIds(tuple(body.tokens)))
            return tokenizer.decode(ids, shown=ids)

        text = await asyncio.to_thread(read)
        return {"content": text, "prompt": text, **body.ignored}

    @api.get("/tokenizer_info")
    async def tokenizer_info(model: str | None = None) -> dict[str, Any]:
        """vLLM's description of a model's tokenizer."""
        info = completer.info(model)
        tokenizer = await completer.tokenizer(info.name)
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": tokenizer.chat_template,
            "model_max_length": info.context_length,
        }

    @api.get("/version")
    async def version() -> dict[str, str]:
        """This program's version."""
        return {"version": __version__}

    @api.get("/props")
    async def props(model: str | None = None) -> dict[str, Any]:
        """llama.cpp's properties of a model and the server."""
        info = completer.info(model)
        tokenizer = await completer.tokenizer(info.name)
        sampling = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | info.sampling
        settings = {"n_ctx": info.context_length or 0, "params": sampling}
        return {
            "default_generation_settings": settings,
            "total_slots": AT_ONCE,
            "model_alias": completer.name(info.name),
            "model_path": completer.name(info.name),
            "modalities": {"vision": False, "audio": False},
            "chat_template": tokenizer.chat_template,
            "build_info": f"xla-playground {__version__}",
            "kernels": info.kernels,
            "device": info.device,
        }

    @api.get("/slots")
    async def slots(model: str | None = None) -> list[dict[str, Any]]:
        """How many requests run, without saying which slot has which."""
        context, running = completer.info(model).context_length, host.running()
        return [
            {"id": place, "n_ctx": context or 0, "is_processing": place < running}
            for place in range(AT_ONCE)
        ]

    @api.get("/health")
    async def health() -> JSONResponse:
        """Whether a request would be served at once; needs no password."""
        report = host.health()
        if report["status"] == "ok":
            return JSONResponse(report)
        return JSONResponse(report, status_code=503, headers={"Retry-After": str(RETRY_S)})
