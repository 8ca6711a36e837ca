"""`Outside`: what all requests to the API have in common.

Knows addresses, request ids, CORS, and what clients send in several ways. Must not know what is
asked. The outermost ASGI middleware: a browser asks about CORS before it sends a password.
"""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xla_backend.interface.requests import REQUEST_ID

PATH = "/v1"
"""The path of the API."""
_WITHOUT_V1 = re.compile(
    r"/((models|responses)(/.*)?|(chat/)?completions(/input_tokens)?|messages(/count_tokens)?|"
    r"embeddings?|rerank|decide|decisions|systemone|completion|infill|apply-template|"
    r"tokenize|detokenize|tokenizer_info|version|props|slots|health|docs|openapi\.json)"
)
"""Addresses that also work without `PATH`, as in llama.cpp."""
_PIECE = 2**16
"""Size in bytes of a decompressed piece of a body."""
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Outside:
    """Wraps an ASGI app; only requests for the API are touched."""

    def __init__(self, app: ASGIApp, origins: Sequence[str] = ()) -> None:
        """Wraps `app`; web pages of these `origins` may use the API, "*" for all."""
        self._app = app
        self._api: ASGIApp = self._answer
        if origins:
            self._api = CORSMiddleware(
                self._answer,
                allow_origins=origins,
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["*"],
                allow_private_network=True,  # a public page that calls a local server
                expose_headers=["x-request-id", "retry-after"],
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Gives each request an id: the client's, if it is valid."""
        if scope["type"] != "http" or not is_for_api(path := address(scope["path"])):
            await self._app(scope, receive, send)
            return
        scope = {**scope, "path": path, "raw_path": path.encode()}
        scope["headers"] = list(scope["headers"])
        headers = MutableHeaders(scope=scope)
        given = headers.get("x-request-id", "")
        name = given if _ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        if (
            key := headers.get("x-api-key")
        ) and "authorization" not in headers:  # Anthropic's header
            headers["authorization"] = f"Bearer {key}"
        is_form = headers.get("content-type", "").startswith("multipart/")
        # Clients often forget the type. Not for pages of other sites, which may send some types
        # without a CORS preflight.
        if scope["method"] == "POST" and "origin" not in headers and not is_form:
            headers["content-type"] = "application/json"
        if headers.get("content-encoding") in ("gzip", "deflate"):
            receive = inflated(receive)
            del headers["content-encoding"], headers["content-length"]
        if is_head := scope["method"] == "HEAD":
            scope["method"] = "GET"

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        REQUEST_ID.set(name)
        await self._api(scope, receive, send_named)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hides the origin from the app, whose own rules for other sites do not apply here."""
        headers = [pair for pair in scope["headers"] if pair[0] != b"origin"]
        await self._app({**scope, "headers": headers}, receive, send)


def is_for_api(path: str) -> bool:
    """Whether a path belongs to the API."""
    return path == PATH or path.startswith(f"{PATH}/")


def address(path: str) -> str:
    """The canonical path: with `PATH`, and without a trailing slash."""
    path = path.rstrip("/") or "/"
    if path == PATH:
        return f"{PATH}/"
    return PATH + path if _WITHOUT_V1.fullmatch(path) else path


def inflated(receive: Receive) -> Receive:
    """A `receive` that decompresses a body (gzip or deflate).

    In small pieces, so that a body that is too large is noticed early.
    """
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    def pieces(message: Message) -> Iterator[Message]:
        body, more = message.get("body", b""), message.get("more_body", False)
        with suppress(zlib.error):  # the body is truncated, and so not JSON
            while piece := stream.decompress(body, _PIECE):
                yield {**message, "body": piece, "more_body": True}
                body = stream.unconsumed_tail
        yield {**message, "body": b"", "more_body": more}

    waiting: Iterator[Message] = iter(())

    async def receive_inflated() -> Message:
        nonlocal waiting
        while (message := next(waiting, None)) is None:
            if (came := await receive())["type"] != "http.request":
                return came
            waiting = pieces(came)
        return message

    return receive_inflated
