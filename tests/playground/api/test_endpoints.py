"""The public API, called as a program calls it; the engine is made up."""

import dataclasses
import json
import re
from typing import Any

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from playground.tabs.speech.examples import FOLDER
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import MODELS
from xla_backend.interface.options import OPTIONS

TIMES = (
    "queue_s",
    "tokenize_s",
    "trace_s",
    "compile_s",
    "prefill_s",
    "decode_s",
    "detokenize_s",
    "total_s",
)
ENDPOINTS = ("generate", "predict", "transcribe", "models")
GENERATED = (
    *("model", "options", "text", "prompt_tokens", "new_tokens", "finish_reason", "key", "cache"),
    *("batch_size", "cached_tokens", "timing", "ttft_s", "tpot_s"),
)
RECORDING = FOLDER / "command-1.flac"


@pytest.fixture(scope="module")
def client(site: ApiPage) -> Client:
    return Client(site.url, verbose=False)


def test_the_first_call_misses_and_the_second_hits(client: Client) -> None:
    # Four beams: no larger function is there that could serve instead.
    first = client.predict(prompt="The wind", max_new_tokens=20, num_beams=4, api_name="/generate")
    second = client.predict(
        prompt="A rabbit",
        max_new_tokens=25,
        num_beams=4,
        repetition_penalty=1.2,
        api_name="/generate",
    )
    assert first["key"] == {"padded_length": 16, "num_beams": 4, "max_new_tokens": 32}
    assert first["cache"] == "miss"
    assert second["key"] == first["key"]
    assert second["cache"] == "hit"
    assert second["new_tokens"] <= 25
    assert second["timing"]["compile_s"] == 0.0

    answer = client.predict(prompt="The wind", max_new_tokens=7, api_name="/generate")
    assert set(answer) == set(GENERATED)
    assert answer["model"] == "gpt2-stories"
    assert set(answer["timing"]) == set(TIMES)

    listed = {model["name"]: model for model in client.predict(api_name="/models")}
    assert listed == {info.name: dataclasses.asdict(info) for info in MODELS}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": " \n\t "}, "prompt is empty"),
        ({"max_new_tokens": 0}, "max_new_tokens must be from 1 to 8192"),
        ({"max_new_tokens": 1_000_000}, "max_new_tokens must be from 1 to 8192"),
        ({"max_new_tokens": "many"}, "max_new_tokens must be a whole number"),
        ({"num_beams": -1}, "num_beams must be from 1 to 8"),
        ({"temperature": -0.5}, "temperature must be"),
        ({"top_p": 2}, "top_p must be from 0 to 1"),
        ({"early_stopping": "perhaps"}, "early_stopping must be"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"logit_bias": {"the": 1}}, "a token id of logit_bias must be a whole number"),
        ({"stop": list(map(str, range(65)))}, "stop can have at most 64 strings"),
        ({"model": "no-such-model"}, "no model 'no-such-model'"),
        ({"model": "/etc"}, "no model '/etc'"),
    ],
)
def test_a_mistake_has_a_sentence(client: Client, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AppError, match=sentence):
        client.predict(**{"prompt": "Once", **arguments}, api_name="/generate")


def test_the_endpoints_say_what_they_take_and_are_described(client: Client) -> None:
    described = client.view_api(return_format="dict", print_info=False)
    assert set(described["named_endpoints"]) == {f"/{name}" for name in ENDPOINTS}
    assert described["unnamed_endpoints"] == {}
    endpoint = described["named_endpoints"]["/generate"]
    assert endpoint["description"].startswith("Continue or answer a prompt")
    names = [parameter["parameter_name"] for parameter in endpoint["parameters"]]
    # As they were when some callers began to send values without names; new ones come after them.
    assert (
        names[:19]
        == (
            "prompt model max_new_tokens num_beams temperature top_k top_p repetition_penalty "
            "length_penalty early_stopping seed exact_key min_p presence_penalty frequency_penalty "
            "logit_bias stop chat system"
        ).split()
    )
    assert set(names[19:]) == set(OPTIONS) - set(names[:19])
    required = [
        p["parameter_name"] for p in endpoint["parameters"] if not p["parameter_has_default"]
    ]
    assert required == ["prompt"]
    endpoint = described["named_endpoints"]["/transcribe"]
    assert endpoint["description"].startswith("Transcribe a recording")
    defaults = {
        p["parameter_name"]: p["parameter_default"]
        for p in endpoint["parameters"]
        if p["parameter_has_default"]
    }
    assert defaults == {
        "model": "openai/whisper-tiny",
        "max_new_tokens": 224,
        "num_beams": 1,
        "language": "",
    }

    described = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    for name, endpoint in described.items():
        assert len(endpoint["description"]) > 30, name
        assert [answer["type"] for answer in endpoint["returns"]] != [{}], name
        for parameter in endpoint["parameters"]:
            assert parameter["type"], (name, parameter)
    of_generate = described["/generate"]["parameters"]
    assert described["/predict"]["parameters"] == of_generate


@pytest.mark.parametrize(("body", "status"), [("{}", 400), ("", 422), ("{", 422)])
def test_a_body_that_is_no_request_has_a_sentence(site: ApiPage, body: str, status: int) -> None:
    headers = {"content-type": "application/json"}
    url = f"{site.url}/gradio_api/call/v2/generate"
    reply = httpx.post(url, content=body, headers=headers)
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["detail"]


def test_a_prediction_comes_true(client: Client) -> None:
    asked = {"prompt": "The wind", "max_new_tokens": 20, "num_beams": 5}
    before = client.predict(**asked, api_name="/predict")
    answer = client.predict(**asked, api_name="/generate")
    after = client.predict(**asked, api_name="/predict")
    assert [before["cache"], answer["cache"], after["cache"]] == ["miss", "miss", "hit"]
    assert before["key"] == before["requested_key"] == answer["key"]
    assert before["prompt_tokens"] == answer["prompt_tokens"]
    assert after["expected_s"] > 0
    with pytest.raises(AppError, match="num_beams must be from 1 to 8"):
        client.predict(prompt="x", num_beams=9, api_name="/predict")


def test_a_recording_is_written_down(client: Client) -> None:
    first, second = (
        client.predict(recording=handle_file(RECORDING), num_beams=2, api_name="/transcribe")
        for _ in range(2)
    )
    assert (first["cache"], second["cache"]) == ("miss", "hit")
    assert set(first) == {*GENERATED, "audio_s", "real_time_factor"}
    assert set(first["timing"]) == set(TIMES)
    assert first["real_time_factor"] == pytest.approx(
        first["timing"]["total_s"] / first["audio_s"], rel=1e-6
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": "no-such-model"}, "no model 'no-such-model'"),
        ({"num_beams": 9}, "num_beams must be from 1 to 8"),
        ({"max_new_tokens": 0}, "max_new_tokens must be from 1 to 8192"),
    ],
)
def test_a_recording_s_mistakes(client: Client, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AppError, match=sentence):
        client.predict(recording=handle_file(RECORDING), **arguments, api_name="/transcribe")


@pytest.mark.parametrize(
    "recording", [str(RECORDING), {"path": str(RECORDING)}, {"path": "/etc/passwd"}, None, 5]
)
def test_files_of_the_server_itself_cannot_be_named(site: ApiPage, recording: Any) -> None:
    event, data = over_http(site, "transcribe", recording=recording)
    assert event == "error"
    assert "must be an uploaded file" in json.dumps(data)


def test_not_even_as_if_they_had_been_uploaded(site: ApiPage) -> None:
    recording = {"path": str(RECORDING), "meta": {"_type": "gradio.FileData"}}
    event, _ = over_http(site, "transcribe", recording=recording)
    assert event == "error"


def events(site: ApiPage, endpoint: str, **parameters: Any) -> list[tuple[str, Any]]:
    """As with curl: one call to ask, one to read the events and their data."""
    asked = httpx.post(
        f"{site.url}/gradio_api/call/v2/{endpoint}",
        content=json.dumps(parameters),  # httpx would refuse half a surrogate pair
        headers={"content-type": "application/json"},
    )
    event = asked.json()["event_id"]
    text = httpx.get(f"{site.url}/gradio_api/call/{endpoint}/{event}").text
    found = re.findall(r"^event: (\w+)\ndata: (.*)$", text, re.MULTILINE)
    return [(name, json.loads(data)) for name, data in found]


def over_http(site: ApiPage, endpoint: str, **parameters: Any) -> tuple[str, Any]:
    """The last event and its data."""
    return events(site, endpoint, **parameters)[-1]


def test_odd_requests_over_plain_http_are_answered(site: ApiPage) -> None:
    event, data = over_http(site, "generate", prompt="The wind", max_new_tokens=7)
    assert event == "complete"
    assert data[0]["new_tokens"] >= 1
    event, data = over_http(site, "generate", prompt="a \ud800 b", max_new_tokens=7)
    assert event == "complete" or "prompt" in json.dumps(data).lower()
    event, data = over_http(site, "generate", prompt="word " * 210_000, max_new_tokens=7)
    assert event == "error"
    assert "The prompt has 1,050,000 bytes; at most 65,536 are allowed" in json.dumps(data)
