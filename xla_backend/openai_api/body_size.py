"""`BodySize`: the bound on a request's bytes, with a Content-Length or in chunks.

Knows paths and bytes. Must not know what the bytes mean. An ASGI middleware for servers without
their own gate; others use `counted`.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xla_backend.openai_api.errors import error_response

MAX_BODY_BYTES = 4 * 2**20
"""For everything but files. A visitor's whole history comes with each run: half a million
characters, each up to six bytes as JSON."""
MAX_UPLOAD_BYTES = 210 * 2**20
"""For one upload: the largest recording, and the form around it."""
_READ_ANYWAY = 32 * 2**20  # otherwise the connection breaks before the answer is read


class TooLarge(BaseException):
    """Too many bytes came. Not an `Exception`, which FastAPI would report as a broken body."""

    def __init__(self, most: int) -> None:
        super().__init__(f"The request has more than {most:,} bytes, which is the limit.")


class BodySize:
    """Wraps the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the app, or answers that the body is too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_file = scope["path"].rstrip("/").endswith("/audio/transcriptions")
        most = MAX_UPLOAD_BYTES if has_file else MAX_BODY_BYTES
        try:
            await self._app(scope, counted(scope, receive, most), send)
        except TooLarge as error:  # while the body is read: the app has not begun to answer
            await error_response(413, str(error))(scope, receive, send)


def counted(scope: Scope, receive: Receive, most: int) -> Receive:
    """A `receive` that raises `TooLarge` beyond `most` bytes."""
    came = 0
    declared = Headers(scope=scope).get("content-length", "0")
    is_too_large = declared.isdecimal() and int(declared) > most

    async def receive_counted() -> Message:
        nonlocal came
        while True:
            message = await receive()
            came += len(message.get("body", b""))
            if came > most or is_too_large:
                if message.get("more_body") and came < _READ_ANYWAY:
                    continue
                raise TooLarge(most)
            return message

    return receive_counted
