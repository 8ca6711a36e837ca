"""`/gradio_api/openapi.json`: Gradio's description of the endpoints, and what it leaves out.

Knows which answers `gate` and the endpoints give to requests that are wrong, and which parameters
have to be there. Must not know what an endpoint does: that stands in its own docstring.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATH = "/gradio_api/openapi.json"
_SENTENCE = {
    "type": "object",
    "properties": {"detail": {"type": "string"}},
    "required": ["detail"],
}
_ANY_DETAIL = {"type": "object", "properties": {"detail": {}}}
_EVERYWHERE = {
    "401": ("The page has a password, and it is missing or wrong.", _SENTENCE),
    "429": ("Too many wrong passwords.", _SENTENCE),
    "500": ("Something went wrong that should not have.", _SENTENCE),
}
_SENT = {
    "400": ("The request was not understood.", _SENTENCE),
    "413": ("More bytes than are taken.", _SENTENCE),
    "422": ("The body is no JSON object.", _ANY_DETAIL),
}
_FETCHED = {"404": ("There is no such request, or its answer was read already.", _SENTENCE)}


class WholeDescription:
    """Wraps an ASGI app whose description it completes; all else passes.

    FastAPI's own would not do: to it all endpoints are one route, `/call/v2/{api_name}`.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Stands before the app that has the description."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers where the description is asked for."""
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("GET", PATH):
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, keep)
        start, body = messages[0], b"".join(each.get("body", b"") for each in messages)
        if start["status"] == 200:
            description = json.loads(body)
            complete(description, scope["app"].get_blocks().get_api_info()["named_endpoints"])
            body = json.dumps(description).encode()
        headers = [pair for pair in start["headers"] if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({**start, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def complete(description: dict[str, Any], endpoints: dict[str, Any]) -> None:
    """Adds every answer, and what is required.

    Args:
        description: Gradio's OpenAPI document.
        endpoints: what Gradio tells of each endpoint, by its name with a slash.
    """
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            more = _EVERYWHERE | (_SENT if method == "post" else _FETCHED)
            if path.endswith("/upload"):
                more |= {"507": ("The server has no room for more uploads.", _SENTENCE)}
            for status, (what, schema) in more.items():
                content = {"application/json": {"schema": schema}}
                operation["responses"][status] = {"description": what, "content": content}
        name = "/" + path.rpartition("/")[2]
        if "post" in operations and name in endpoints:
            needed = [
                parameter["parameter_name"]
                for parameter in endpoints[name]["parameters"]
                if not parameter["parameter_has_default"]
            ]
            if needed:
                body = operations["post"]["requestBody"]["content"]["application/json"]
                body["schema"]["required"] = needed
