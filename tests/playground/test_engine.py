"""The app as it is started, with a real engine in its process: what only the two together can show.

The API's own rules are tested with an engine that is made up, in `api/`.
"""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from playground.tabs.speech.examples import FOLDER
from playground.ui.word_differences import word_pairs
from tests import checkpoints
from tests.holding import Hold
from tests.playground.served import Served, children, serve
from tests.waiting import wait_until

RECORDING = FOLDER / "command-1.flac"


@dataclass
class App:
    """A running app."""

    served: Served
    hold: Hold
    talker: str  # a model that answers messages; the first of its models
    log: Path  # the file with a line about each request

    def health(self) -> tuple[int, dict[str, Any]]:
        """Status and object."""
        answer = httpx.get(f"{self.served.url}/health")
        return answer.status_code, answer.json()

    def log_lines(self) -> list[dict[str, Any]]:
        """What the log says of the requests that have ended."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """Its engine is not there yet."""
    folder, hold = tmp_path_factory.mktemp("app"), Hold(tmp_path_factory.mktemp("hold"))
    talker = str(checkpoints.instruct(folder / "talker"))
    log = folder / "requests.jsonl"
    options = ["--no-store", "--metrics", "--log-requests", str(log)]
    options += ["--memory-limit", "3GB", "--kv-memory", "2MB"]
    with ExitStack() as ends:
        with hold.at("starting"):
            served = serve(
                "--models", f"{talker},whisper-commands", *options, PYTHONPATH=str(hold.folder)
            )
            ends.callback(served.process.kill)
            running = App(served, hold, talker, log)
            status, report = running.health()
            assert (status, report["status"]) == (503, "starting")
            assert "XLA Playground" in served.first_page
        yield running


@pytest.fixture(scope="module")
def client(app: App) -> Client:
    return Client(app.served.url, verbose=False)


@pytest.fixture(scope="module")
def of_openai(app: App) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{app.served.url}/v1", api_key="none", max_retries=0)


def test_health_says_what_runs(app: App) -> None:
    """The page did not wait for its engine (`app`), which is there some seconds later."""
    wait_until(lambda: app.health()[1]["engine"].get("kv_memory") is not None)
    wait_until(lambda: app.health()[0] == 200)
    report = app.health()[1]
    assert report["engine"]["memory_limit_bytes"] == 3_000_000_000
    assert report["engine"]["resident_bytes"] > 100_000_000
    assert report["engine"]["restarts"] == {}
    assert report["engine"]["kv_memory"]["used_bytes"] == 0
    assert report["waiting"] == report["running"] == 0
    assert report["page"]["resident_bytes"] > 50_000_000


def test_both_apis_chat_alike(app: App, client: Client, of_openai: openai.OpenAI) -> None:
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}]
    asked: dict[str, Any] = {"model": app.talker, "messages": talk, "max_tokens": 12}
    options = {"temperature": 0.8, "seed": 5}
    whole: Any = of_openai.chat.completions.create(**asked, **options)
    streamed = of_openai.chat.completions.create(**asked, **options, stream=True)
    other = client.predict(
        prompt="Where is it?",
        system="Be brief.",
        chat=True,
        model=app.talker,
        max_new_tokens=12,
        top_k=0,
        **options,
        api_name="/generate",
    )
    text = "".join(event.choices[0].delta.content or "" for event in streamed)
    assert whole.choices[0].message.content == text == other["text"] != ""
    assert whole.usage.prompt_tokens == other["prompt_tokens"]
    assert whole.timings["key"]["is_pooled"] and "is_pooled" not in other["key"]


def test_both_apis_hear_alike(client: Client, of_openai: openai.OpenAI) -> None:
    with RECORDING.open("rb") as file:
        reported: Any = of_openai.audio.transcriptions.create(model="whisper-commands", file=file)
    other = client.predict(recording=handle_file(RECORDING), api_name="/transcribe")
    assert reported.text == other["text"]
    said = json.loads((FOLDER / "texts.json").read_text())[RECORDING.name]
    errors = sum(not pair.is_same for pair in word_pairs(said, other["text"]))
    assert errors <= 2, f"{other['text']!r} instead of {said!r}"


def test_a_recording_that_cannot_be_heard_is_refused(client: Client, tmp_path: Path) -> None:
    (tmp_path / "recording.wav").write_bytes(b"this is no sound")
    for recording, language, sentence in (
        (tmp_path / "recording.wav", "", "cannot be read as audio"),
        (RECORDING, "de", "does not know the language 'de'"),
    ):
        with pytest.raises(AppError, match=sentence):
            client.predict(
                recording=handle_file(recording), language=language, api_name="/transcribe"
            )


def test_a_prediction_comes_true_and_is_logged(app: App, client: Client) -> None:
    before = app.log_lines()
    asked = {"prompt": "zebra pear", "max_new_tokens": 20, "num_beams": 2}
    predicted = [client.predict(**asked, api_name="/predict")]
    answers = [client.predict(**asked, api_name="/generate") for _ in range(2)]
    predicted.append(client.predict(**asked, api_name="/predict"))
    assert [each["cache"] for each in predicted] == [each["cache"] for each in answers]
    assert [each["cache"] for each in answers] == ["miss", "hit"]
    assert answers[1]["timing"]["compile_s"] == 0.0
    assert predicted[0]["key"] == answers[0]["key"]
    assert predicted[1]["expected_s"] > 0
    wait_until(lambda: len(app.log_lines()) == len(before) + 2)
    assert [line["cache"] for line in app.log_lines()[-2:]] == ["miss", "hit"]
    assert "zebra" not in app.log.read_text()
    assert 'xla_requests_total{cache="hit"' in httpx.get(f"{app.served.url}/metrics").text


def test_an_end_in_the_middle_of_a_request_is_clean(app: App, client: Client) -> None:
    [engine] = children(app.served.process.pid)
    with app.hold.at("compiling"):
        job = client.submit(prompt="Once", num_beams=4, api_name="/generate")
        wait_until(lambda: app.health()[1]["engine"]["state"] == "compiling")
        app.served.process.send_signal(signal.SIGTERM)
        assert app.served.process.wait() == 0
    assert job.exception() is not None, "the visitor is told, too"
    # On a busy machine the page leaves at its deadline, and the engine follows.
    wait_until(lambda: not Path(f"/proc/{engine}").exists())
    assert "Traceback" not in "\n".join(app.served.output)
