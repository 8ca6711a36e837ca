"""`KnownHosts`: refuses requests that other websites make in a visitor's browser.

Knows this server's names and which origins are its own. A name that somebody else owns may lead to
this machine (DNS rebinding), so that the browser takes the stranger's page for ours; an address of
numbers or a name without a dot cannot be had by strangers. What other origins may do with the API
at `/v1` is `Outside`'s, except that web pages without a permission are refused here.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from xla_backend.openai_api.errors import error_response
from xla_backend.openai_api.outside import address, is_for_api

_DEFAULT_PORTS = {"http": 80, "https": 443, "": None}
_RESERVED = ("*.localhost", "*.local", "*.internal", "*.home.arpa")
"""Names below which nobody can have one in the Internet, such as host.docker.internal."""


class KnownHosts:
    """Wraps an ASGI app."""

    def __init__(self, app: ASGIApp, names: Sequence[str] = (), cors: Sequence[str] = ()) -> None:
        """Wraps an app.

        Args:
            app: the app.
            names: under which this server may be reached beside local ones; "*.example.com" for
                all below a name, "*" for any.
            cors: origins of other web pages that may use the API at /v1, "*" for all.
        """
        self._app = app
        self._names = [name.lower() for name in names]
        self._owned = [name for name in self._names if name != "*"]
        self._cors = cors
        self._local = (socket.gethostname().lower(), *_RESERVED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers what is refused; hides the origin from Gradio, which would permit any."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = MutableHeaders(scope={**scope, "headers": list(scope["headers"])})
        is_api = is_for_api(address(scope["path"]))
        if sentence := self._problem(headers, is_api):
            refusal = error_response(403, sentence)
            if not is_api:
                refusal = JSONResponse({"detail": sentence}, 403)
            await refusal(scope, receive, send)
            return
        if not is_api:
            del headers["origin"]
        await self._app({**scope, "headers": headers.raw}, receive, send)

    def _problem(self, headers: Headers, is_api: bool) -> str:
        """Why a request is refused; empty if it is not."""
        host, _ = _name_and_port(f"//{headers.get('host', '')}")
        if host and not self._is_known(host):
            return (
                f"This server does not know the name {host[:80]}. If it is its own, start it with "
                f"--allowed-hosts {host[:80]} (PLAYGROUND_ALLOWED_HOSTS)."
            )
        origin = headers.get("origin")
        if origin is None or self._is_own(origin, headers):
            return ""
        if not is_api:
            return "Other websites may not use this page. --cors lets them use the API at /v1."
        is_page = origin == "null" or origin.startswith(("http:", "https:"))
        if is_page and "*" not in self._cors and origin not in self._cors:
            return f"Web pages of {origin[:80]} may use this API only if --cors names them."
        return ""

    def _is_known(self, name: str) -> bool:
        return "." not in name or _is_numeric(name) or _matches(name, (*self._local, *self._names))

    def _is_own(self, origin: str, headers: Headers) -> bool:
        """Whether a page of this server sent it, also if a proxy hides port, scheme or name."""
        name, port = _name_and_port(origin)
        if _matches(name, self._owned):
            return True
        hosts = (headers.get("host", ""), headers.get("x-forwarded-host", ""))
        return bool(name) and any(
            host == name and seen in (port, None)
            for host, seen in (_name_and_port(f"//{each}") for each in hosts)
        )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_numeric(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _name_and_port(url: str) -> tuple[str, int | None]:
    """The host's name in lower case, and its port; empty and None if there is none."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
        return (parts.hostname or "").rstrip("."), port
    except ValueError:
        return "?.", None  # no name that anybody has
