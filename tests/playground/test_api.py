"""The public API, called as a program calls it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.playground.served import Site

TIMES = (
    "queue_s",
    "tokenize_s",
    "trace_s",
    "compile_s",
    "first_token_s",
    "decode_s",
    "detokenize_s",
    "total_s",
)


@pytest.fixture(scope="module")
def client(site: Site) -> Client:
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


def test_the_answer_is_the_command_line_s_json(client: Client, site: Site) -> None:
    answer = client.predict(prompt="The wind", max_new_tokens=7, api_name="/generate")
    assert set(answer) == {
        "model",
        "text",
        "prompt_tokens",
        "new_tokens",
        "key",
        "cache",
        "timing",
    }
    assert answer["model"] == site.fast
    assert set(answer["timing"]) == set(TIMES)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": " \n\t "}, "prompt is empty"),
        ({"prompt": "Once " * 4000}, "tokens? too long"),
        ({"max_new_tokens": 0}, "max_new_tokens must be from 1 to 1024"),
        ({"max_new_tokens": 1_000_000}, "max_new_tokens must be from 1 to 1024"),
        ({"max_new_tokens": "many"}, "max_new_tokens must be a whole number"),
        ({"num_beams": -1}, "num_beams must be from 1 to 8"),
        ({"temperature": -0.5}, "temperature must be"),
        ({"top_p": 0}, "top_p must be above 0"),
        ({"early_stopping": "perhaps"}, "early_stopping must be"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"model": "no-such-model"}, "no model 'no-such-model'"),
        ({"model": "/etc"}, "no model '/etc'"),
        ({"prompt": 16}, "prompt must be text"),
    ],
)
def test_a_mistake_is_answered_with_its_sentence(
    client: Client, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AppError, match=sentence):
        client.predict(**{"prompt": "Once", **arguments}, api_name="/generate")


@pytest.mark.parametrize("prompt", ["🦊 naïve שלום", "a\0b", "\u202eabc"])
def test_any_text_is_answered(client: Client, prompt: str) -> None:
    answer = client.predict(prompt=prompt, max_new_tokens=7, api_name="/generate")
    assert answer["new_tokens"] >= 1


def test_generate_is_all_there_is_and_says_what_it_takes(client: Client) -> None:
    described = client.view_api(return_format="dict", print_info=False)
    assert list(described["named_endpoints"]) == ["/generate"]
    assert described["unnamed_endpoints"] == {}
    endpoint = described["named_endpoints"]["/generate"]
    assert endpoint["description"].startswith("Continue a prompt")
    names = [parameter["parameter_name"] for parameter in endpoint["parameters"]]
    assert names[:4] == ["prompt", "model", "max_new_tokens", "num_beams"]
    required = [
        p["parameter_name"] for p in endpoint["parameters"] if not p["parameter_has_default"]
    ]
    assert required == ["prompt"]


def over_http(site: Site, **parameters: Any) -> tuple[str, Any]:
    """As the README does it with curl: one call to ask, one to read the event and its data."""
    asking = urllib.request.Request(
        f"{site.url}/gradio_api/call/v2/generate",
        data=json.dumps(parameters).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asking, timeout=60) as answer:
        event = json.load(answer)["event_id"]
    with urllib.request.urlopen(
        f"{site.url}/gradio_api/call/generate/{event}", timeout=120
    ) as answer:
        lines = answer.read().decode().splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("event: "))
    data = json.loads(lines[last + 1].removeprefix("data: "))
    return lines[last].removeprefix("event: "), data


def test_named_parameters_over_plain_http(site: Site) -> None:
    event, data = over_http(site, prompt="The wind", max_new_tokens=7)
    assert event == "complete"
    assert data[0]["new_tokens"] >= 1


def test_lone_surrogates_are_no_accident(site: Site) -> None:
    event, data = over_http(site, prompt="a \ud800 b", max_new_tokens=7)
    assert event == "complete" or "prompt" in json.dumps(data).lower()


def test_a_megabyte_of_text_is_refused_in_words(site: Site) -> None:
    event, data = over_http(site, prompt="word " * 210_000, max_new_tokens=7)
    assert event == "error"
    assert "too long" in json.dumps(data)
