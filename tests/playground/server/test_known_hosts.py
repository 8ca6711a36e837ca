"""What other websites get from this page in a visitor's browser, by raw requests."""

from collections.abc import Iterator

import httpx
import pytest

from tests.playground.api_page import ApiPage, api_page

EVIL = "http://evil.example"
CHAT = "https://chat.example.com"
CALL = "/gradio_api/call/v2/generate"


@pytest.fixture(scope="module")
def open_page() -> Iterator[ApiPage]:
    with api_page(hosts=["playground.example.com", "*.demo.example.com"], cors=[CHAT]) as page:
        yield page


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("127.0.0.1:7860", True),
        ("localhost", True),
        ("app.localhost:80", True),
        ("[::1]:7860", True),
        ("192.168.1.5:7860", True),  # numbers are nobody's name
        ("host.docker.internal:7860", True),  # this machine's, for its containers
        ("mac.local", True),
        ("host.docker.internal.evil.example", False),
        ("playground:7860", True),  # a container's name, which no stranger can have
        ("playground.example.com", True),
        ("PLAYGROUND.example.com.:443", True),
        ("one.demo.example.com", True),
        ("evil.example", False),
        ("playground.example.com.evil.example", False),
        ("127.0.0.1.evil.example:7860", False),
        ("localhost@evil.example", False),
    ],
)
@pytest.mark.parametrize("path", ["/", "/config", "/v1/models", "/health", "/changes"])
def test_only_names_of_this_server_are_answered(
    open_page: ApiPage, host: str, is_known: bool, path: str
) -> None:
    answer = httpx.get(open_page.url + path, headers={"host": host})
    assert answer.status_code == (200 if is_known else 403)
    if not is_known:
        assert "--allowed-hosts" in answer.text


@pytest.mark.parametrize(
    ("host", "origin", "is_own"),
    [
        ("playground.example.com", "https://playground.example.com", True),
        ("playground.example.com", "https://playground.example.com:8443", True),  # a hidden port
        ("playground.example.com:443", "https://playground.example.com", True),
        ("127.0.0.1:7860", "https://playground.example.com", True),  # a proxy's name for us
        ("localhost:7860", "http://localhost:7860", True),
        ("[::1]:7860", "http://[::1]:7860", True),
        ("localhost:7860", "http://localhost:3000", False),  # another program's page
        ("127.0.0.1:7860", EVIL, False),
        ("playground.example.com", EVIL, False),
        ("playground.example.com", "null", False),
        ("playground.example.com", "", False),
        ("playground.example.com", CHAT, False),  # --cors is for /v1
        ("playground.example.com", "chrome-extension://abcdef", False),
    ],
)
def test_gradio_s_part_answers_no_other_website(
    open_page: ApiPage, host: str, origin: str, is_own: bool
) -> None:
    preflight = {"access-control-request-method": "POST"}
    for method, path, more in (
        ("GET", "/config", {}),
        ("GET", "/gradio_api/info", {}),
        ("POST", CALL, {"content-type": "text/plain"}),  # what a page may send without asking
        ("OPTIONS", CALL, preflight),
    ):
        headers = {"host": host, "origin": origin, **more}
        answer = httpx.request(method, open_page.url + path, headers=headers)
        assert (answer.status_code == 403) is not is_own, (method, path)
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        (CHAT, True),
        (EVIL, False),
        ("null", False),
        ("http://localhost:3000", False),
        ("chrome-extension://abcdef", None),  # asks no browser's permission; nothing is allowed
    ],
)
def test_the_api_answers_pages_that_cors_names(
    open_page: ApiPage, origin: str, is_allowed: bool | None
) -> None:
    asks = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-private-network": "true",
    }
    url = f"{open_page.api}/chat/completions"
    preflight = httpx.options(url, headers=asks).headers
    sent = httpx.get(f"{open_page.api}/models", headers={"origin": origin})
    assert sent.status_code == (403 if is_allowed is False else 200)
    if is_allowed:
        assert preflight["access-control-allow-origin"] == origin
        assert preflight["access-control-allow-private-network"] == "true"
        assert sent.headers["access-control-allow-origin"] == origin
    else:
        assert "access-control-allow-origin" not in {*preflight, *sent.headers}
    assert "access-control-allow-credentials" not in {*preflight, *sent.headers}


def test_any_name_and_any_page_where_that_was_chosen() -> None:
    with api_page(hosts=["*"], cors=["*"]) as page:
        headers = {"host": "anything.example", "origin": EVIL}
        assert httpx.get(f"{page.url}/", headers={"host": "anything.example"}).status_code == 200
        assert httpx.get(f"{page.api}/models", headers=headers).status_code == 200
        assert httpx.get(f"{page.url}/config", headers=headers).status_code == 403


def test_a_path_that_a_proxy_leaves_in_front_is_taken_away() -> None:
    with api_page(password="sesame", root_path="/llm") as page:
        for root, status in (("", 200), ("/llm", 200), ("/llmx", 404), ("/llm/llm", 404)):
            models = f"{page.url}{root}/v1/models"
            for key, expected in (("sesame", status), ("open", 401)):
                headers = {"authorization": f"Bearer {key}"}
                assert httpx.get(models, headers=headers).status_code == expected
        shown = httpx.get(f"{page.url}/llm/", auth=("any", "sesame")).text
        assert f"{page.url}/llm" in shown, "where the page's own requests go"
