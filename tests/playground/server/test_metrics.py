"""`/metrics`, as Prometheus' own parser reads it, and the dashboard that is made for it."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from playground.server.metrics import Metrics
from tests.playground.api_page import api_page
from tests.playground.samples import miss, result, transcription
from xla_backend import InvalidRequest, Prompt, TokenIds, question
from xla_backend.interface.requests import SpeechRequest, TextRequest
from xla_backend.process.messages import EngineRequest
from xla_backend.process.request_log import FinishedRequest

DASHBOARD = Path(__file__).resolve().parents[3] / "docs" / "grafana.json"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Samples:
    """Every sample by its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum of the samples of this name that have these labels."""
    return sum(
        value
        for (called, named), value in samples.items()
        if called == name and labels.items() <= dict(named).items()
    )


def finished(
    kind: str = "result",
    value: Any = None,
    prompt: Prompt = "Once",
    model: str = "gpt2-stories",
) -> FinishedRequest:
    payload = EngineRequest(0, "generate", TextRequest(model, prompt))
    return FinishedRequest(payload, kind, value, wall_s=0.5, ahead=0)


@pytest.fixture
def samples() -> Samples:
    metrics = Metrics()
    requests = (
        finished(value=miss()),
        finished(value=result(), prompt=question("Where?")),
        finished(value=result(cut_tokens=2), prompt=TokenIds((1, 2))),
        finished("error", InvalidRequest("no")),
        finished("abandoned"),
        FinishedRequest(
            EngineRequest(0, "transcribe", SpeechRequest("whisper-commands", "")),
            "result",
            transcription(),
            0.2,
            0,
        ),
    )
    with api_page(metrics=metrics) as page:
        for each in requests:
            metrics.observe(each)
        answer = httpx.get(f"{page.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return read(answer.text)


def test_requests_times_tokens_and_the_engine_are_told(samples: Samples) -> None:
    counted = {
        cache: total(
            samples, "xla_requests_total", cache=cache, gen_ai_request_model="gpt2-stories"
        )
        for cache in ("miss", "hit", "disk")
    }
    assert counted == {"miss": 1, "hit": 2, "disk": 0}
    duration = "gen_ai_server_request_duration_seconds_count"
    operations = {
        name: total(samples, duration, gen_ai_operation_name=name, error_type="")
        for name in ("chat", "text_completion", "transcribe")
    }
    assert operations == {"chat": 1, "text_completion": 2, "transcribe": 1}
    assert total(samples, duration, error_type="InvalidRequest") == 1
    assert total(samples, duration, error_type="abandoned") == 1

    model = {"gen_ai_request_model": "gpt2-stories"}
    ttft = total(samples, "gen_ai_server_time_to_first_token_seconds_sum", **model)
    assert ttft == pytest.approx(miss().ttft_s + 2 * result().ttft_s)
    tpot = total(samples, "gen_ai_server_time_per_output_token_seconds_sum", **model)
    assert tpot == pytest.approx(0.05 + 0.04 + 0.02)
    tokens = "gen_ai_client_token_usage_sum"
    assert total(samples, tokens, gen_ai_token_type="input", **model) == 15
    assert total(samples, tokens, gen_ai_token_type="output", **model) == 11

    assert total(samples, "xla_engine_up") == 1
    assert total(samples, "xla_waiting") == total(samples, "xla_running") == 0
    assert total(samples, "xla_memory_bytes", process="page") > 10**7

    of_engine = {"xla_memory_limit_bytes", "xla_engine_replacements"}  # a process of its own has
    reported = {name for name, _ in samples} | of_engine
    board = json.loads(DASHBOARD.read_text("utf-8"))
    payload = set(
        re.findall(r"\b(?:gen_ai_(?:server|client)|xla)_\w+", json.dumps(board["panels"]))
    )
    assert payload <= reported
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in board["panels"]]
    assert len(set(places)) == len(places)


def test_names_that_callers_invent_are_one_label() -> None:
    metrics = Metrics()
    sizes = []
    with api_page(metrics=metrics) as page:
        for number in range(400):
            for model in ("gpt2-stories", f"invented-{number}"):
                metrics.observe(finished("error", InvalidRequest("no"), model=model))
            if number in (0, 399):
                sizes.append(len(httpx.get(f"{page.url}/metrics").text))
        samples = read(httpx.get(f"{page.url}/metrics").text)
    assert sizes[1] - sizes[0] < 1000
    duration = "gen_ai_server_request_duration_seconds_count"
    assert {
        name: total(samples, duration, gen_ai_request_model=name)
        for name in ("gpt2-stories", "unknown", "invented-0")
    } == {"gpt2-stories": 400, "unknown": 400, "invented-0": 0}


def test_it_is_not_there_by_default_and_not_without_the_password() -> None:
    with api_page() as page:
        assert httpx.get(f"{page.url}/metrics").status_code == 404
    with api_page(password="sesame", metrics=Metrics()) as page:
        assert httpx.get(f"{page.url}/metrics").status_code == 401
        key = {"authorization": "Bearer sesame"}
        assert httpx.get(f"{page.url}/metrics", headers=key).status_code == 200
