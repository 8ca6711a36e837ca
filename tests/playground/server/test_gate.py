"""The gate: a password, bounds on what is sent, and a sentence for what nobody understands."""

import asyncio
import base64
import html
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from playground.server.gate import MAX_BODY_BYTES, MAX_UPLOAD_BYTES, Gate, most_bytes
from playground.server.password import TRIES, Password

SECRET = "correct horse"
PAGE = {"accept": "text/html,application/xhtml+xml"}


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Says how much came."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d bytes" % size})


def failing(error: Exception) -> Callable[..., Any]:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise error

    return fail


class Knocker:
    """A client of a gate that keeps its cookies."""

    def __init__(self, gate: Gate, url: str = "http://page", address: str = "10.0.0.1") -> None:
        self._transport = httpx.ASGITransport(gate, client=(address, 5))
        self._url = url
        self._cookies = httpx.Cookies()

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=self._transport, base_url=self._url, cookies=self._cookies
            ) as client:
                answer = await client.request(method, path, **options)
                self._cookies.update(client.cookies)
                return answer

        return asyncio.run(go())


@pytest.mark.parametrize(
    "path", ["/config", "/gradio_api/info", "/gradio_api/mcp/", "/gradio_api/queue/data", "/x"]
)
def test_without_the_password_nothing_is_had(path: str) -> None:
    answer = Knocker(Gate(echo, SECRET))("GET", path)
    assert answer.status_code == 401
    assert "Authorization: Bearer" in answer.json()["detail"]
    assert Knocker(Gate(echo))("GET", path).status_code == 200


@pytest.mark.parametrize("bound", ["MAX_HELD_BYTES", "MIN_FREE_BYTES"])
def test_uploads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        app = SimpleNamespace(uploaded_file_dir=str(tmp_path / "uploads"))
        await Gate(echo)({**scope, "app": app}, receive, send)

    visitor = Knocker(page)
    assert visitor("POST", "/gradio_api/upload", content=b"x").text == "1 bytes"
    (tmp_path / "uploads" / "one").mkdir(parents=True)
    (tmp_path / "uploads" / "one" / "a.wav").write_bytes(b"x" * 200_000)
    assert visitor("POST", "/gradio_api/upload", content=b"x").status_code == 200
    limit = 100_000 if bound == "MAX_HELD_BYTES" else 2**62
    monkeypatch.setattr(f"playground.server.gate.{bound}", limit)
    refused = visitor("POST", "/gradio_api/upload", content=b"x")
    assert refused.status_code == 507
    assert "no room for more recordings" in refused.json()["detail"]
    assert visitor("POST", "/gradio_api/run/predict", content=b"x").status_code == 200


def test_an_address_that_takes_a_post_says_so() -> None:
    answer = Knocker(Gate(echo))("GET", "/gradio_api/call/v2/generate")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "needs a POST" in answer.json()["detail"]
    assert Knocker(Gate(echo))("POST", "/gradio_api/call/v2/generate").status_code == 200


def test_a_browser_gets_a_form_and_then_the_page() -> None:
    visitor = Knocker(Gate(echo, SECRET))
    asked = "tab=chat&system=%22%3E&new=5"
    form = visitor("GET", f"/?{asked}", headers=PAGE)
    assert form.status_code == 401
    assert 'type="password"' in form.text
    sent_to = html.unescape(form.text.partition('action="')[2].partition('"')[0])
    assert sent_to == f"login?{asked}"
    wrong = visitor("POST", f"/{sent_to}", data={"password": "wrong"}, headers=PAGE)
    assert wrong.status_code == 401
    assert "not the password" in wrong.text
    assert html.escape(sent_to) in wrong.text
    right = visitor("POST", f"/{sent_to}", data={"password": SECRET}, headers=PAGE)
    assert (right.status_code, right.headers["location"]) == (303, f"./?{asked}")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert SECRET not in cookie
    assert visitor("GET", "/config").status_code == 200
    assert (
        Knocker(Gate(echo, SECRET))("GET", "/config", headers={"cookie": cookie}).status_code == 401
    )

    visitor = Knocker(Gate(echo, SECRET), url="https://page")
    cookie = visitor("POST", "/login", data={"password": SECRET}).headers["set-cookie"]
    assert "Secure" in cookie
    assert "SameSite=None" in cookie


@pytest.mark.parametrize(
    "value",
    [
        f"Bearer {SECRET}",
        f"bearer  {SECRET}",
        "Basic " + base64.b64encode(f"anybody:{SECRET}".encode()).decode(),
    ],
)
def test_a_program_sends_it_along(value: str) -> None:
    visitor = Knocker(Gate(echo, SECRET))
    assert visitor("GET", "/x", headers={"authorization": value}).status_code == 200


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", f"Digest {SECRET}", "Basic !", "Basic /////w==", "Bearer ü"]
)
def test_anything_else_is_no_password(value: str) -> None:
    visitor = Knocker(Gate(echo, SECRET))
    sent = {"authorization": value.encode(), "cookie": b'xla-playground="; \xff'}
    assert visitor("GET", "/x", headers=sent).status_code == 401


def test_too_many_guesses_make_the_guesser_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(echo, SECRET)
    guesser = Knocker(gate)
    for _ in range(TRIES):
        assert guesser("POST", "/login", data={"password": "guess"}).status_code in (401, 429)
    assert guesser("POST", "/login", data={"password": SECRET}).status_code == 429
    bearer = {"authorization": f"Bearer {SECRET}"}
    assert guesser("GET", "/x", headers=bearer).status_code == 429
    assert Knocker(gate, address="10.0.0.2")("GET", "/x", headers=bearer).status_code == 200

    password, now = Password(SECRET), [100.0]
    monkeypatch.setattr("playground.server.password.time.monotonic", lambda: now[0])
    for _ in range(TRIES):
        password.is_right("guess", "a")
    assert not password.is_right(SECRET, "a")
    now[0] += 61
    assert password.is_right(SECRET, "a")


@pytest.mark.parametrize("path", ["/v1/health", "/robots.txt", "/gradio_api/startup-events"])
def test_routes_that_tell_nothing_need_no_password(path: str) -> None:
    assert Knocker(Gate(echo, SECRET))("GET", path).status_code == 200


@pytest.mark.parametrize("path", ["/x", "/gradio_api/upload"])
def test_a_body_has_an_end(path: str) -> None:
    visitor = Knocker(Gate(echo))
    most = most_bytes(path)
    assert visitor("POST", path, content=b"x" * 100).text == "100 bytes"
    answer = visitor("POST", path, content=b"", headers={"content-length": str(most + 1)})
    assert answer.status_code == 413
    assert f"{most:,} bytes" in answer.json()["detail"]
    assert MAX_BODY_BYTES < MAX_UPLOAD_BYTES


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyError("x"), 400), (TypeError("their text"), 400), (OSError("disk"), 500)],
)
def test_a_failure_is_told_in_one_sentence_and_logged_without_the_visitor_s_text(
    error: Exception, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = Knocker(Gate(failing(error)))("GET", "/x")
    assert answer.status_code == status
    assert answer.json()["detail"].endswith(".")
    assert "Traceback" not in answer.text
    assert "their text" not in caplog.text


def test_the_password_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        visitor = Knocker(Gate(failing(ValueError(SECRET)), SECRET))
        visitor("GET", "/x", headers={"authorization": f"Bearer {SECRET}"})
        visitor("POST", "/login", data={"password": SECRET})
        visitor("POST", "/login", data={"password": SECRET + "?"})
    ours = [
        record.getMessage() for record in caplog.records if record.name.startswith("playground")
    ]
    assert ours
    assert not [line for line in ours if SECRET in line]
