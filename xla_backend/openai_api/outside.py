"""`Outside`: what every request to the API has in common, to whichever part of the server it goes.

Knows addresses, request ids and CORS, and what clients send in several ways. Must not know what is
asked. An ASGI middleware that stands before everything else: a browser asks about CORS before it
sends a password.
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
"""Where the API is."""
_WITHOUT_V1 = re.compile(
    r"/((models|responses)(/.*)?|(chat/)?completions|messages(/count_tokens)?|embeddings|rerank|"
    r"tokenize|detokenize|props|slots|health|docs|openapi\.json)"
)
"""Addresses that clients also ask for without `PATH`, as llama.cpp has them."""
_PIECE = 2**16
"""Bytes that a piece of a compressed body may become at a time."""
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Outside:
    """Wraps an ASGI app; only requests for the API are touched."""

    def __init__(self, app: ASGIApp, origins: Sequence[str] = ()) -> None:
        """Stands before an app.

        Args:
            app: what requests go to.
            origins: of pages in browsers that may use the API, "*" for all.
        """
        self._app = app
        self._api: ASGIApp = self._answer
        if origins:
            self._api = CORSMiddleware(
                self._answer,
                allow_origins=origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["x-request-id", "retry-after"],
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Gives each request an id, the client's own where it sent one that can be repeated."""
        if scope["type"] != "http" or not is_for_api(path := address(scope["path"])):
            await self._app(scope, receive, send)
            return
        scope = {**scope, "path": path, "raw_path": path.encode()}
        scope["headers"] = list(scope["headers"])
        headers = MutableHeaders(scope=scope)
        given = headers.get("x-request-id", "")
        name = given if _ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        if (key := headers.get("x-api-key")) and "authorization" not in headers:  # Anthropic's way
            headers["authorization"] = f"Bearer {key}"
        is_form = headers.get("content-type", "").startswith("multipart/")
        # A page of another site may send these types without asking; other clients forget theirs.
        if scope["method"] == "POST" and "origin" not in headers and not is_form:
            headers["content-type"] = "application/json"
        if headers.get("content-encoding") in ("gzip", "deflate"):
            receive = inflated(receive)
            del headers["content-encoding"], headers["content-length"]
        if is_head := scope["method"] == "HEAD":
            scope["method"] = "GET"

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        REQUEST_ID.set(name)
        await self._api(scope, receive, tell)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is said of other pages is said here: a server with rules of its own sees none."""
        headers = [pair for pair in scope["headers"] if pair[0] != b"origin"]
        await self._app({**scope, "headers": headers}, receive, send)


def is_for_api(path: str) -> bool:
    """Whether an address is one of the API's."""
    return path == PATH or path.startswith(f"{PATH}/")


def address(path: str) -> str:
    """The address that is meant: with `PATH`, and without a slash at its end."""
    path = path.rstrip("/") or "/"
    return PATH + path if _WITHOUT_V1.fullmatch(path) else path


def inflated(receive: Receive) -> Receive:
    """`receive` of a body that comes compressed with gzip or deflate.

    It comes in small pieces, so that what counts them sees early that it is too large.
    """
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    def pieces(message: Message) -> Iterator[Message]:
        body, more = message.get("body", b""), message.get("more_body", False)
        with suppress(zlib.error):  # then the body is cut, and is no JSON
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
