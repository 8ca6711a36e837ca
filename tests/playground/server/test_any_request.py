"""Whatever is sent to the running page, the answer is right or a sentence, and the engine lives."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import soundfile
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from playground.server.gate import MAX_BODY_BYTES
from tests.playground.api_page import ApiPage
from tests.playground.samples import INJECTIONS
from tests.playground.served import ROOT

API = "/gradio_api"
LEAKS = re.compile(r'Traceback|File "/|site-packages|\.py", line')


@pytest.fixture(scope="module")
def http(site: ApiPage) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url) as client:
        yield client


@pytest.fixture(autouse=True, scope="module")
def nothing_died(http: httpx.Client) -> Iterator[None]:
    """After all of it, a request is answered as before."""
    yield
    answer = ask(http, "generate", {"prompt": "Once", "max_new_tokens": 3})
    assert '"new_tokens": ' in answer, answer


def ask(http: httpx.Client, endpoint: str, values: Any) -> str:
    """What an endpoint says in the end, or why it does not begin."""
    begun = http.post(f"{API}/call/v2/{endpoint}", json=values)
    if begun.status_code != 200:
        return begun.text
    event = begun.json()["event_id"]
    return http.get(f"{API}/call/{endpoint}/{event}").text


def is_a_sentence(answer: httpx.Response) -> bool:
    """Whether a mistake is answered as one: no failure of the server, no inside of it."""
    return 400 <= answer.status_code < 500 and not LEAKS.search(answer.text)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    # JSON can say surrogates that no UTF-8 can; httpx cannot send them.
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=50) | st.sampled_from(INJECTIONS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=5,
)  # fmt: skip
some = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
PARAMETERS = (
    "prompt model max_new_tokens num_beams temperature top_k top_p repetition_penalty "
    "length_penalty early_stopping seed exact_key recording language"
).split()


@pytest.mark.parametrize("endpoint", ["predict", "generate", "transcribe"])
@given(values=st.dictionaries(st.sampled_from(PARAMETERS), ODD, max_size=4), prompt=ODD)
@some
def test_wrong_types_and_missing_fields(
    http: httpx.Client, endpoint: str, values: dict[str, Any], prompt: Any
) -> None:
    if endpoint == "generate":
        # Always at fault, so that nothing is compiled: a text without end, or none.
        values = {**values, "prompt": prompt, "max_new_tokens": 1 << 20}
    said = ask(http, endpoint, values)
    assert not LEAKS.search(said)
    if endpoint == "generate":
        assert "event: complete" not in said
    assert "data: null" not in said.replace("event: heartbeat\ndata: null", "")


@pytest.mark.parametrize(
    "path",
    [
        "call/generate",
        "call/v2/generate",
        "call/v2/no-such-endpoint",
        "call/no-such-endpoint",
        "run/generate",
        "run/no-such-endpoint",
        "api/predict",
        "queue/join",
        "reset",
        "cancel",
        "upload",
        "component_server",
        "stream/no-such-event",
        "process_recording",
        "vibe-edit",
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"data": "Once"}',
        b'{"data": [], "fn_index": -1, "session_hash": "a"}',
        b'{"data": [null], "fn_index": 10000000, "session_hash": "a"}',
        b'{"data": [1], "fn_index": "x", "session_hash": ["a"]}',
        b'{"event_id": 5}',
    ],
    ids=range(10),
)
def test_raw_requests(http: httpx.Client, path: str, body: bytes) -> None:
    answer = http.post(f"{API}/{path}", content=body, headers={"content-type": "application/json"})
    if answer.status_code == 200:  # Nothing to refuse: the reset of a run that is not there.
        assert path in ("reset", "cancel", "call/generate", "call/v2/generate", "queue/join")
    else:
        assert is_a_sentence(answer), (answer.status_code, answer.text[:300])


@pytest.mark.parametrize("endpoint", ["generate", "predict"])
def test_what_is_missing_or_unknown_is_named(http: httpx.Client, endpoint: str) -> None:
    assert '"prompt is missing: ' in ask(http, endpoint, {})
    assert '"There is no parameter promt: ' in ask(http, endpoint, {"promt": "Once"})


@pytest.mark.parametrize("number", ["no-such-event", "0", "%00", "a" * 5000])
def test_an_answer_to_no_request(http: httpx.Client, number: str) -> None:
    answer = http.get(f"{API}/call/generate/{number}")
    assert answer.status_code == 404
    assert "no request with this number" in answer.json()["detail"]


@pytest.mark.parametrize("is_right", [True, False], ids=["right", "refused"])
def test_an_answer_is_read_once(http: httpx.Client, is_right: bool) -> None:
    endpoint, data = ("models", []) if is_right else ("transcribe", ["a path"] + [None] * 4)
    number = http.post(f"{API}/call/{endpoint}", json={"data": data}).json()["event_id"]
    address = f"{API}/call/{endpoint}/{number}"
    assert ("complete" if is_right else "error") in http.get(address).text
    again = http.get(address)  # It was a stream in which nothing ever came.
    assert (again.status_code, "read already" in again.json()["detail"]) == (404, True)


@pytest.mark.parametrize("path", ["call/v2/generate", "queue/join", "run/predict", "cancel"])
@pytest.mark.parametrize("is_counted", [True, False])
def test_ten_megabytes_are_not_taken(http: httpx.Client, path: str, is_counted: bool) -> None:
    body = json.dumps({"prompt": "x" * 10_000_000}).encode()
    chunks = (body[i : i + 65_536] for i in range(0, len(body), 65_536))
    answer = http.post(
        f"{API}/{path}",
        content=body if is_counted else chunks,
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 413
    assert f"more than {MAX_BODY_BYTES:,} bytes" in answer.json()["detail"]


def test_a_long_prompt_is_refused_before_its_tokens_are_counted(http: httpx.Client) -> None:
    said = ask(http, "predict", {"prompt": "x" * 3_000_000})
    assert "The prompt has 3,000,000 bytes; at most 65,536 are allowed here" in said


def test_any_value_in_an_event_of_the_page_is_answered(http: httpx.Client) -> None:
    """Every event of the page, by number, with values that no component of it would send."""
    config = http.get("/config").json()
    quiet = [event for event in config["dependencies"] if event["queue"] is False]
    odd = random.Random(1)
    values = [None, True, -1, 1e300, "", "<b>", [], {}, ["x"], {"path": "/etc/passwd"}, "gpt2"]
    assert len(quiet) > 20
    for event in quiet:
        data = [odd.choice(values) for _ in event["inputs"]]
        answer = http.post(
            f"{API}/run/predict",
            json={"data": data, "fn_index": event["id"], "session_hash": "odd", "trigger_id": None},
        )
        assert not LEAKS.search(answer.text), answer.text[:500]
        assert answer.status_code in (200, 400, 500)
        if answer.status_code == 500:
            assert "An unexpected error" in answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "//etc/passwd",
        "../../../../etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "/proc/self/environ",
        "/proc/self/cmdline",
        str(ROOT / "app.py"),
        "app.py",
        "demo_models/gpt2-stories/model.safetensors",
        str(ROOT / "demo_models/gpt2-stories/config.json"),
        "~/.bashrc",
        "file:///etc/passwd",
        "http://127.0.0.1:9/secret",
        "https://example.com/",
        "\\\\server\\share",
        "C:\\Windows\\win.ini",
        "/etc/passwd%00.wav",
    ],
)
@pytest.mark.parametrize("route", [f"{API}/file=", "/file=", f"{API}/file/", f"{API}/proxy="])
def test_no_file_of_the_server_can_be_read(http: httpx.Client, route: str, path: str) -> None:
    answer = http.get(f"{route}{path}")
    assert answer.status_code in (400, 403, 404)
    assert "root:" not in answer.text
    assert not LEAKS.search(answer.text)


def test_an_uploaded_file_can_be_had_again_and_is_no_page(http: httpx.Client) -> None:
    page = b"<script>alert(1)</script>"
    [path] = http.post(f"{API}/upload", files={"files": ("../../x.html", page)}).json()
    assert ".." not in path
    answer = http.get(f"{API}/file={quote(path)}")
    assert answer.content == page
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert http.get(f"{API}/file={quote(path)}/../../../../../etc/passwd").status_code != 200


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [
        ("bytes=0-9", 206, b"0123456789"),
        ("bytes=5-", 206, b"56789"),
        ("bytes=0-10", 206, b"0123456789"),
        ("bytes=3-1000000", 206, b"3456789"),
        ("bytes=10-10", 416, None),
        ("bytes=-2", 206, b"89"),
        ("bytes=4-2", 206, b"2"),  # nonsense, to which the byte that it names last is an answer
    ],
)
def test_a_part_of_a_file_is_that_part_and_has_an_end(
    http: httpx.Client, asked: str, status: int, expected: bytes | None
) -> None:
    [path] = http.post(f"{API}/upload", files={"files": ("x.txt", b"0123456789")}).json()
    answer = http.get(f"{API}/file={path}", headers={"range": asked})
    assert answer.status_code == status
    if expected is not None:
        assert answer.content == expected


@pytest.mark.parametrize("is_meant_as_file", [True, False])
def test_only_an_uploaded_recording_is_opened(
    http: httpx.Client, tmp_path: Path, is_meant_as_file: bool
) -> None:
    outside = tmp_path / "secret.wav"
    soundfile.write(outside, [0.0] * 8000, 8000)
    meant = {"meta": {"_type": "gradio.FileData"}} if is_meant_as_file else {}
    for place in (
        {"path": str(outside)},
        {"path": "/etc/passwd"},
        {"path": "http://127.0.0.1:9/x.wav"},
        {"path": "x.wav", "url": f"file://{outside}"},
        {"path": "x.wav", "url": "http://127.0.0.1:9/x.wav"},
    ):
        said = ask(http, "transcribe", {"recording": {**place, **meant}})
        assert "event: error" in said, said
        assert re.search("uploaded file|A value cannot be used: a file", said), said
        assert "root:" not in said
        assert not LEAKS.search(said)


def test_routes_that_the_page_does_not_use_are_closed(http: httpx.Client) -> None:
    for path in (
        "/monitoring",
        "/monitoring/",
        "/monitoring/summary/",
        "/monitoring/x/dashboard",
        f"{API}/deep_link?session_hash=x",
        f"{API}/dev/reload",
        f"{API}/vibe-code",
        f"{API}/token",
        "/redoc",
    ):
        assert http.get(path).status_code == 404, path

    # A 404 there is a mistake in the browser's console of everybody who opens the panel.
    answer = http.get("/monitoring/summary")
    assert (answer.status_code, answer.json()) == (200, {"functions": {}})
    assert http.post("/monitoring/summary").status_code == 404
