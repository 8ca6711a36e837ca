"""The service as docs/many-machines.md starts it: a Ray on this machine, two replicas, `/v1`."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.playground.served import ROOT, free_port
from tests.waiting import wait_until

MODEL = "SmolLM2-135M-Instruct"
RECORDING = ROOT / "demo_models" / "whisper-commands" / "examples" / "command-1.flac"
FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
NO_END = {"0": -100, "2": -100}  # the tokens that would end a text
LONG = 400

pytestmark = [pytest.mark.release, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of two replicas that take one request at a time each."""
    folder, port = tmp_path_factory.mktemp("service"), free_port()
    config = {
        "http_options": {"port": port},
        "applications": [
            {
                "name": "default",
                "import_path": "xla_backend.serve_app:app",
                "args": {
                    "models": f"{MODEL},whisper-commands",
                    "store": str(folder / "store"),
                    "min_replicas": 2,
                    "max_replicas": 2,
                    "max_ongoing": 1,
                },
            }
        ],
    }
    (folder / "service.yaml").write_text(json.dumps(config))  # which is YAML, too
    log = folder / "log"
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short,  # Ray's sockets are in it
        log.open("w") as output,
    ):
        process = subprocess.Popen(
            [Path(sys.executable).with_name("serve"), "run", folder / "service.yaml"],
            cwd=ROOT,
            env={
                **os.environ,
                "RAY_TMPDIR": short,
                "RAY_USAGE_STATS_ENABLED": "0",
                "TESTED_BY": str(os.getpid()),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: process.poll() is not None or answers(f"{url}/v1/models"), 600)
            assert process.poll() is None, log.read_text()
            yield url
        finally:
            process.terminate()
            process.wait(180)


def engines() -> set[int]:
    """The processes of this service's engines."""
    ours, found = f"TESTED_BY={os.getpid()}".encode(), set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if b"engine_process" in command and ours in (process / "environ").read_bytes():
                found.add(int(process.name))
    return found


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def test_two_replicas_answer_stream_and_let_go_of_a_client_who_leaves(service: str) -> None:
    client = openai.OpenAI(base_url=f"{service}/v1", api_key="none", max_retries=0, timeout=600)
    assert [model.id for model in client.models.list()] == [MODEL, "whisper-commands"]
    answer = client.chat.completions.create(model=MODEL, messages=FRANCE, temperature=0)
    assert "Paris" in answer.choices[0].message.content
    assert answer.system_fingerprint.startswith("fp_")
    events = client.chat.completions.create(
        model=MODEL, messages=FRANCE, temperature=0, stream=True
    )
    texts = [event.choices[0].delta.content or "" for event in events]
    assert "".join(texts) == answer.choices[0].message.content
    assert sum(map(bool, texts)) > 1
    with RECORDING.open("rb") as file:
        assert client.audio.transcriptions.create(model="whisper-commands", file=file).text
    with pytest.raises(openai.NotFoundError, match="There is no model 'none'"):
        client.chat.completions.create(model="none", messages=FRANCE)

    # The first takes one replica until its end, so that the second has the other one. A third is
    # answered before that end only if the second, whose client leaves, is stopped.
    long = {"model": MODEL, "messages": FRANCE, "max_tokens": LONG, "logit_bias": NO_END}
    first = client.chat.completions.create(**long, stream=True)
    next(first)
    with ThreadPoolExecutor(1) as reader:
        rest = reader.submit(lambda: list(first))
        second = client.chat.completions.create(**long, stream=True)
        next(second)
        assert not rest.done()
        second.close()
        client.chat.completions.create(**{**long, "max_tokens": 4})
        assert not rest.done()
    assert rest.result()[-1].timings["predicted_n"] == LONG


def test_a_body_has_an_end_also_where_it_comes_in_chunks(service: str) -> None:
    piece = b" " * 2**20
    answer = httpx.post(
        f"{service}/v1/chat/completions",
        content=(piece for _ in range(5)),
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 413
    assert answer.json()["error"]["message"].startswith("The request has more than 4,194,304 bytes")


def test_choices_prompts_and_questions_are_spread_over_replicas(service: str) -> None:
    """Of several calls of one HTTP request all but one hung in Ray Serve's router."""
    client = openai.OpenAI(base_url=f"{service}/v1", api_key="none", max_retries=0, timeout=120)

    def choices(n: int, **more: Any) -> int:
        asked = {"model": MODEL, "messages": FRANCE, "max_tokens": 8, **more}
        return len(client.chat.completions.create(**asked, n=n).choices)

    for n in (2, 4, 8):
        assert choices(n) == n
    with ThreadPoolExecutor(8) as clients:
        assert [*clients.map(choices, [4] * 8)] == [4] * 8
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    assert choices(2, tools=[tool], tool_choice="required") == 2
    texts = client.completions.create(model=MODEL, prompt=["One", "Two", "Three"], max_tokens=4)
    assert [choice.index for choice in texts.choices] == [0, 1, 2]
    question = {"type": "yes_no", "instructions": "Is it blue?"}
    asked = {"model": MODEL, "state": "The sky is blue.", "questions": {"a": question}}
    decided = httpx.post(f"{service}/v1/decide", json=asked, timeout=120)
    assert 0 <= decided.json()["answers"]["a"]["yes_no"] <= 1


def test_an_engine_that_was_killed_delays_nobody(service: str) -> None:
    client = openai.OpenAI(base_url=f"{service}/v1", api_key="none", max_retries=0, timeout=600)

    def ask(session: str, within_s: float) -> None:
        more = {"timeout": within_s, "extra_body": {"cache_salt": session}}
        client.chat.completions.create(model=MODEL, messages=FRANCE, max_tokens=4, **more)

    sessions = "abcd"  # of both replicas
    for session in sessions:
        ask(session, within_s=600)
    before = engines()
    [one, _] = before
    os.kill(one, signal.SIGKILL)
    for session in sessions:
        ask(session, within_s=20)
    wait_until(lambda: len(engines() - before) == 1, 120)
