"""`Outside`: what every answer of the API carries, those that other parts of the server give too.

Knows request ids and CORS. Must not know what is asked. An ASGI middleware that stands before
everything else: a browser asks about CORS before it sends a password.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xla_backend.interface.request_id import REQUEST_ID

PATH = "/v1"
"""Where the API is."""
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
        if scope["type"] != "http" or not is_for_api(scope["path"]):
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        name = given if _ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
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
