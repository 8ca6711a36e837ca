"""The gate before the app: checks for every request, whatever Gradio does with it.

Knows paths, sizes, the password, and that every error is a sentence. An ASGI middleware, so that it
also covers Gradio's own routes and the tools for agents.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from gradio.route_utils import FnIndexInferError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from playground.context.address import address_of
from playground.context.runs import UNEXPECTED
from playground.server.login_page import login_page
from playground.server.password import TRIES_S, Password
from xla_backend.openai_api.body_size import MAX_BODY_BYTES, MAX_UPLOAD_BYTES, TooLarge, counted
from xla_backend.openai_api.errors import error_body
from xla_backend.openai_api.outside import PATH, is_for_api

logger = logging.getLogger(__name__)

MAX_HELD_BYTES = 4 * 2**30
"""Bound on all uploads together, which are deleted after a day."""
MIN_FREE_BYTES = 2**29
"""Disk space that uploads leave free."""
_API = "/gradio_api"
_OPEN = re.compile(rf"/(login/?|v1/health|robots\.txt|favicon\.ico|{_API[1:]}/startup-events)")
"""Paths that need no password."""
_CLOSED = re.compile(
    rf"(/monitoring\b|/svelte/|/logout|{_API}/("
    r"deep_link|dev/|proxy=|custom_component/|stream/|component_server|process_recording|"
    r"profiling/|vibe-|undo-vibe-|token|file=\s*[a-z]+:/|file/))",
    re.IGNORECASE,
)
"""Gradio's routes that this page does not use: saved states of visitors, a proxy, redirections."""
_SUMMARY = "/monitoring/summary"
"""Gradio's API panel requests it. It answers that nothing was counted: an error would show in every
visitor's console."""
_ANSWER = re.compile(rf"{_API}/call/(?:v2/)?[^/]+/([^/]+)")
_CALL = re.compile(rf"{_API}/call/v2/[^/]+")
_TO_BE_SENT = "This address needs a POST, whose answer says where to get the result."
_NO_REQUEST = (
    "There is no request with this number, or its answer was read already. POST to the endpoint "
    "first; it answers with the number."
)
_NOT_THERE = "There is nothing at this address. /gradio_api/info lists the endpoints."
_WHAT_THERE_IS = "/gradio_api/info says what each endpoint takes."
_NOT_UNDERSTOOD = (
    f"The request was not understood: look at its address and its JSON. {_WHAT_THERE_IS}"
)
_NO_SPACE = (
    "The server has no room for more recordings. Try again later, or choose one of the examples."
)
_NO_PASSWORD = (
    "This page has a password. Send it as the header “Authorization: Bearer PASSWORD”, or open the "
    "page in a browser."
)
_NOT_USABLE = (
    "A value cannot be used: a file, for example, that was not uploaded to this page, or an "
    "address that it may not open."
)
_NAMELESS_ERROR = b'event: error\ndata: {"error": null'
"""Gradio's answer where it could not use a value."""
_WAIT = "Too many wrong passwords. Wait a minute, then try again."

_NOT_UNDERSTOOD_ERRORS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    FnIndexInferError,
)


class Gate:
    """Wraps an ASGI app."""

    def __init__(self, app: Any, password: str = "", behind_proxy: bool = False) -> None:
        """Wraps an app.

        Args:
            app: the app.
            password: for visitors; empty for none.
            behind_proxy: whether X-Forwarded-For comes from a trusted proxy.
        """
        self._app = app
        self._password = Password(password) if password else None
        self._behind_proxy = behind_proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it to the app."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, receive, send)
        try:
            if not await self._is_answered(scope, receive, answer):
                most = most_bytes(scope["path"])
                await self._app(scope, counted(scope, receive, most), answer.pass_on)
        except TooLarge as error:
            await answer.refuse(413, str(error))
        except _NOT_UNDERSTOOD_ERRORS as error:
            # Gradio raises for many wrong inputs. The error's text may contain a visitor's.
            logger.warning("A request was not understood (%s)", type(error).__name__)
            await answer.refuse(400, _sentence(error))
        except Exception:
            logger.exception("A request failed unexpectedly")
            await answer.refuse(500, UNEXPECTED)

    async def _is_answered(self, scope: Scope, receive: Receive, answer: _Answer) -> bool:
        """Answers requests that do not reach the app; returns whether it did."""
        path = scope["path"]
        if self._password is not None and not _OPEN.fullmatch(path):
            address = address_of(Request(scope), self._behind_proxy)
            if not self._password.is_shown(Headers(scope=scope), address):
                if self._password.guesses_too_often(address):
                    await answer.refuse(429, _WAIT, {"retry-after": f"{TRIES_S:.0f}"})
                elif path == "/" and scope["method"] in ("GET", "HEAD"):
                    await answer.send(HTMLResponse(login_page(_query(scope)), 401))
                else:
                    await answer.refuse(401, _NO_PASSWORD)
                return True
        if self._password is not None and path.rstrip("/") == "/login":
            await self._log_in(scope, receive, answer)
            return True
        if path == _SUMMARY and scope["method"] == "GET":
            await answer.send(JSONResponse({"functions": {}}))
            return True
        if _CLOSED.match(path):
            await answer.refuse(404, _NOT_THERE)
            return True
        is_upload = takes_a_file(path) and "app" in scope
        if is_upload and not await run_in_threadpool(
            has_room, Path(scope["app"].uploaded_file_dir)
        ):
            await answer.refuse(507, _NO_SPACE)
            return True
        if scope["method"] == "GET" and _CALL.fullmatch(path):
            await answer.refuse(405, _TO_BE_SENT, {"allow": "POST"})
            return True
        polled = _ANSWER.fullmatch(path) if scope["method"] == "GET" else None
        if polled and "app" in scope and not _is_waited_for(scope["app"], polled[1]):
            await answer.refuse(404, _NO_REQUEST)  # Gradio would begin a stream and break it off
            return True
        return False

    async def _log_in(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Handles the form of `login_page`, or of `gradio_client`, which has the same names."""
        assert self._password is not None
        headers, address = Headers(scope=scope), address_of(Request(scope), self._behind_proxy)
        wants_page = "text/html" in headers.get("accept", "")
        if scope["method"] != "POST":
            await answer.send(HTMLResponse(login_page(_query(scope))))
            return
        sent = await Request(scope, counted(scope, receive, 10_000)).body()
        form = parse_qs(sent.decode("utf-8", "replace"))
        if self._password.is_right(form.get("password", [""])[0], address):
            scheme = headers.get("x-forwarded-proto", scope.get("scheme", ""))
            cookie = self._password.cookie(is_https=scheme == "https")
            opened: Response = JSONResponse({"success": True})
            if wants_page:
                opened = Response(status_code=303, headers={"location": f"./{_query(scope)}"})
            opened.headers["set-cookie"] = cookie
            await answer.send(opened)
            return
        too_often = self._password.guesses_too_often(address)
        problem = _WAIT if too_often else "This is not the password."
        status = 429 if too_often else 401
        if wants_page:
            await answer.send(HTMLResponse(login_page(_query(scope), problem), status))
        else:
            await answer.refuse(status, problem)


class _Answer:
    """The answer to one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._has_started = False
        self._is_run = scope["path"].startswith((f"{_API}/run/", f"{_API}/api/"))
        self._is_for_api = is_for_api(scope["path"])
        self._held: Message | None = None

    async def pass_on(self, message: Message) -> None:
        """Passes on the app's answer. A refusal with a sentence is not a server error."""
        if message["type"] == "http.response.start":
            if self._is_run and message["status"] == 500:
                self._held = message
                return
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-content-type-options", b"nosniff"),
            ]
        elif self._held is not None:
            self._held = None
            if b'"error":null' in message["body"]:
                await self.refuse(500, UNEXPECTED)
            else:
                await self.send(Response(message["body"], 400, media_type="application/json"))
            return
        elif message.get("body", b"").startswith(_NAMELESS_ERROR):
            named = _NAMELESS_ERROR.replace(b"null", json.dumps(_NOT_USABLE).encode())
            message["body"] = message["body"].replace(_NAMELESS_ERROR, named, 1)
        self._has_started = True
        await self._send(message)

    async def refuse(
        self, status: int, sentence: str, headers: dict[str, str] | None = None
    ) -> None:
        """Sends a sentence as JSON, in OpenAI's form for `/v1`.

        Sends nothing if the app has begun to answer.
        """
        if self._is_for_api:
            code = "invalid_api_key" if status == 401 else None
            body = error_body(status, sentence, code)
        else:
            body = json.dumps({"detail": sentence}, ensure_ascii=False)
        await self.send(Response(body, status, headers, "application/json"))

    async def send(self, response: Response) -> None:
        """Sends an answer that no cache may keep, unless the app has begun to answer."""
        if not self._has_started:
            response.headers["cache-control"] = "no-store"
            response.headers["x-content-type-options"] = "nosniff"
            self._has_started = True
            await response(self._scope, self._receive, self._send)


def _is_waited_for(app: Any, event: str) -> bool:
    """Whether a program's request with this id has an answer or will have one.

    An answer can be read once. Reading it again would wait forever, because Gradio keeps the empty
    message queue.
    """
    return bool(app.get_blocks()._queue.pending_event_ids_session.get(event))


def _sentence(error: Exception) -> str:
    """What is wrong with a request that Gradio refuses: by the parameter, if it names one."""
    if missing := re.match(r"No value provided for required argument: (\w+)", str(error)):
        return f"{missing[1]} is missing: {_WHAT_THERE_IS}"
    if unknown := re.match(r"Parameter `(.{1,60}?)` is not a valid", str(error)):
        return f"There is no parameter {unknown[1]}: {_WHAT_THERE_IS}"
    return _NOT_UNDERSTOOD


def most_bytes(path: str) -> int:
    """Bound on a request's body for this path."""
    return MAX_UPLOAD_BYTES if takes_a_file(path) else MAX_BODY_BYTES


def has_room(folder: Path) -> bool:
    """Whether the uploads' folder has room for another file."""
    if not folder.is_dir():
        return True
    held = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it was deleted just now
            held += path.stat().st_size
    return held < MAX_HELD_BYTES and shutil.disk_usage(folder).free > MIN_FREE_BYTES


def takes_a_file(path: str) -> bool:
    """Whether recordings are sent to this path."""
    return path.rstrip("/") in (f"{_API}/upload", f"{PATH}/audio/transcriptions")


def _query(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    return f"?{query.decode('latin-1')}" if query else ""
