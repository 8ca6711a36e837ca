"""Bodies that are too large, whether they say so or come in chunks."""

import asyncio
import json
from typing import Any

import pytest

from xla_backend.openai_api.body_size import MAX_BODY_BYTES, MAX_UPLOAD_BYTES, BodySize

PIECE = bytes(2**20)


async def count(scope: Any, receive: Any, send: Any) -> None:
    """Says how much came."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % size})


def sent(path: str, pieces: int, content_length: int | None = None) -> tuple[int, Any]:
    """Status and JSON of the answer to a body in pieces."""
    left, answer = pieces, []

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": PIECE, "more_body": left > 0}

    async def send(message: dict[str, Any]) -> None:
        answer.append(message)

    said = [] if content_length is None else [(b"content-length", b"%d" % content_length)]
    scope = {"type": "http", "path": path, "headers": said}
    asyncio.run(BodySize(count)(scope, receive, send))
    return answer[0]["status"], json.loads(answer[1]["body"])


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/v1/chat/completions", MAX_BODY_BYTES),
        ("/v1/audio/transcriptions", MAX_UPLOAD_BYTES),
        ("/v1/audio/transcriptions/", MAX_UPLOAD_BYTES),
    ],
)
def test_a_body_has_an_end(path: str, most: int) -> None:
    pieces = most // len(PIECE)
    assert sent(path, pieces) == (200, most)
    for refused in (sent(path, pieces + 1), sent(path, 1, content_length=most + 1)):
        status, body = refused
        assert status == 413
        assert f"more than {most:,} bytes" in body["error"]["message"]
