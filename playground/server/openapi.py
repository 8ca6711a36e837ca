"""`/gradio_api/openapi.json` and `/v1/openapi.json`: one description of both APIs.

Knows the errors of `gate` and Gradio's endpoints, and which parameters are required, which Gradio's
description lacks. FastAPI describes the API at `/v1`.
"""

import json
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xla_backend.openai_api.outside import PATH as API_PATH

PATH = "/gradio_api/openapi.json"
PATHS = (PATH, f"{API_PATH}/openapi.json")
_SENTENCE = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
_ANY_DETAIL = {"type": "object", "properties": {"detail": {}}}
_EVERYWHERE = {
    "401": ("The page has a password, and it is missing or wrong.", _SENTENCE),
    "429": ("Too many wrong passwords.", _SENTENCE),
    "500": ("An unexpected error.", _SENTENCE),
}
_SENT = {
    "400": ("The request was not understood.", _SENTENCE),
    "413": ("The body is too large.", _SENTENCE),
    "422": ("The body is not a JSON object.", _ANY_DETAIL),
}
_FETCHED = {"404": ("There is no such request, or its answer was read already.", _SENTENCE)}


class WholeDescription:
    """Wraps an ASGI app and completes its description.

    FastAPI's own description has one route for all of Gradio's endpoints, `/call/v2/{api_name}`.
    """

    def __init__(self, app: ASGIApp, api: FastAPI) -> None:
        """`app` has Gradio's description; `api` is mounted in it."""
        self._app = app
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers requests for the description; passes on all others."""
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []

        async def collect(message: Message) -> None:
            messages.append(message)

        await self._app({**scope, "path": PATH, "raw_path": PATH.encode()}, receive, collect)
        start, body = messages[0], b"".join(each.get("body", b"") for each in messages)
        if start["status"] == 200:
            description = json.loads(body)
            complete(description, scope["app"].get_blocks().get_api_info()["named_endpoints"])
            add(description, self._api.openapi())
            body = json.dumps(description).encode()
        headers = [pair for pair in start["headers"] if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({**start, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def add(description: dict[str, Any], of_api: dict[str, Any]) -> None:
    """Adds FastAPI's description of the API at `/v1`."""
    description["info"] = of_api["info"]
    description["openapi"] = of_api["openapi"]  # 3.1, where null is a type; Gradio's is 3.0
    description["paths"] |= {API_PATH + path: each for path, each in of_api["paths"].items()}
    schemas = description.setdefault("components", {}).setdefault("schemas", {})
    schemas |= of_api["components"]["schemas"]


def complete(description: dict[str, Any], endpoints: dict[str, Any]) -> None:
    """Adds all answers, and which parameters are required.

    Args:
        description: Gradio's OpenAPI document.
        endpoints: Gradio's description of each endpoint, by its name with a slash.
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
