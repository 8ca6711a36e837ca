"""The service on a real local Ray: two replicas, each with a real engine in its own process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from gradio_client import Client

from tests.playground.served import serve as serve_page
from tests.waiting import wait_until
from tests.xla_backend.serving.conftest import ROOT, Cluster
from xla_backend import (
    Backend,
    CacheOutcome,
    EngineStopped,
    GenerationOptions,
    InvalidRequest,
    ModelUnavailable,
)

SHORT = GenerationOptions(max_new_tokens=12)
LONG = GenerationOptions(max_new_tokens=1000)
PROMPTS = ["Once upon a time", "The fox", "One morning the owl said"]
EXAMPLES = Path(__file__).resolve().parents[3] / "demo_models" / "whisper-commands" / "examples"


def post(cluster: Cluster, path: str, body: dict[str, Any] | bytes) -> tuple[int, Any]:
    """Status and JSON of an answer; of a stream, all its lines."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(cluster.url + path, data), timeout=120
        ) as answer:
            lines = [json.loads(line) for line in answer.read().splitlines()]
            return answer.status, lines if path == "/stream" else lines[0]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def get(cluster: Cluster, path: str) -> Any:
    with urllib.request.urlopen(cluster.url + path, timeout=60) as answer:
        return json.loads(answer.read())


def test_answers_are_those_of_the_engine_in_this_process(
    cluster: Cluster, backend: Backend
) -> None:
    for options in (SHORT, SHORT.replace(temperature=0.9, seed=3), SHORT.replace(num_beams=2)):
        for prompt in PROMPTS:
            # The session's engine may have a larger function, whose sums round otherwise.
            here = backend.generate(cluster.model, prompt, options, exact_key=True)
            there = cluster.backend.generate(cluster.model, prompt, options, exact_key=True)
            assert (there.text, there.tokens) == (here.text, here.tokens)
            assert (there.key, there.finish) == (here.key, here.finish)
            stream = cluster.backend.stream(cluster.model, prompt, options, exact_key=True)
            assert "".join(stream) == here.text
            assert stream.result.tokens == here.tokens


def test_a_prediction_comes_true_and_counts_every_replica(cluster: Cluster) -> None:
    options = GenerationOptions(max_new_tokens=100)
    predicted = cluster.backend.predict(cluster.model, PROMPTS[0], options, exact_key=True)
    assert predicted.outcome is CacheOutcome.MISS
    result = cluster.backend.generate(cluster.model, PROMPTS[0], options, exact_key=True)
    assert (result.cache, result.key) == (CacheOutcome.MISS, predicted.key)
    again = cluster.backend.predict(cluster.model, PROMPTS[0], options, exact_key=True)
    assert again.outcome is CacheOutcome.HIT
    entries = [entry for entry in cluster.backend.cached_functions() if entry.key == result.key]
    assert len(entries) == 1
    timing = result.timing.to_dict()
    total = timing.pop("total_s")
    assert sum(timing.values()) == pytest.approx(total, rel=1e-6)


def test_a_key_s_second_request_hits(cluster: Cluster) -> None:
    """Whoever sends it: the client here and the ingress route by themselves."""
    keys = [(length, new) for length in (20, 40) for new in (16, 32, 64)]
    requests = [("fox " * length, new) for length, new in keys]

    def first(request: tuple[str, int]) -> None:
        options = GenerationOptions(max_new_tokens=request[1])
        cluster.backend.generate(cluster.model, request[0], options, exact_key=True)

    for request in requests:
        first(request)
    requests *= 4
    random.Random(1).shuffle(requests)
    outcomes = []
    for prompt, new in requests:
        body = {"model": cluster.model, "prompt": prompt, "max_new_tokens": new, "exact_key": True}
        status, answer = post(cluster, "/generate", body)
        assert status == 200, answer
        outcomes.append(answer["cache"])
    assert outcomes.count("hit") >= 0.9 * len(outcomes)
    # And not because one replica has everything.
    assert all(one.entries for one in cluster.backend.replicas())


def test_pieces_come_one_by_one_and_a_stop_keeps_them(cluster: Cluster) -> None:
    cluster.backend.generate(cluster.slow, PROMPTS[0], LONG)
    stream = cluster.backend.stream(cluster.slow, PROMPTS[0], LONG)
    text = next(stream)
    stream.stop()
    text += "".join(stream)
    assert stream.result.finish == "stopped"
    assert stream.result.text == text
    assert 0 < stream.result.new_tokens < 1000
    dropped = cluster.backend.stream(cluster.slow, PROMPTS[0], LONG)
    next(dropped)
    dropped.close()
    begun = time.perf_counter()
    cluster.backend.generate(cluster.slow, PROMPTS[0], SHORT)  # REUSED: on the same replica
    assert time.perf_counter() - begun < 60


def test_http_speaks_as_the_command_line_does(cluster: Cluster) -> None:
    here = cluster.backend.generate(cluster.model, PROMPTS[0], SHORT)
    body = {"model": cluster.model, "prompt": PROMPTS[0], "max_new_tokens": 12}
    status, answer = post(cluster, "/generate", dict(body))
    assert status == 200
    assert answer["text"] == here.text
    assert set(answer) == set(here.to_json())
    status, lines = post(cluster, "/stream", dict(body))
    assert lines[-1]["text"] == here.text
    assert all(here.text.startswith(line["text"]) for line in lines)
    assert len(lines) >= 2
    status, predicted = post(cluster, "/predict", dict(body))
    assert predicted["cache"] == "hit"
    assert {info["name"] for info in get(cluster, "/models")} >= {"gpt2-stories"}
    assert any(entry["model"] == cluster.model for entry in get(cluster, "/entries"))
    assert len(get(cluster, "/status")["replicas"]) == 2


def test_openai_s_client_is_answered_too(cluster: Cluster) -> None:
    here = cluster.backend.generate(cluster.model, PROMPTS[0], SHORT)
    client = openai.OpenAI(base_url=f"{cluster.url}/v1", api_key="none", max_retries=0, timeout=120)
    assert "gpt2-stories" in {model.id for model in client.models.list()}
    asked = {"model": cluster.model, "prompt": PROMPTS[0], "max_tokens": 12, "temperature": 0}
    answer = client.completions.create(**asked)
    assert answer.choices[0].text == here.text
    assert answer.timings["key"] == here.key.to_dict()
    assert answer.system_fingerprint.startswith("fp_")
    events = list(client.completions.create(**asked, stream=True))
    assert "".join(event.choices[0].text for event in events) == here.text
    assert len(events) >= 2
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(**{**asked, "model": "none"})
    assert caught.value.request_id
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.completions.create(**{**asked, "max_tokens": 5000})


def test_http_refuses_in_a_sentence_and_ends_what_takes_too_long(cluster: Cluster) -> None:
    model = {"model": cluster.model, "prompt": "x"}
    for code, path, body in (
        (400, "/generate", {"prompt": ""}),
        (400, "/generate", b"no json"),
        (400, "/generate", model | {"temperature": "hot"}),
        (400, "/stream", model | {"num_beams": 99}),
        (400, "/generate", model | {"timeout_s": 0}),
        (400, "/transcribe", b"no sound"),
        (404, "/generate", {"model": "openai-community/gpt2", "prompt": "x"}),
        (404, "/elsewhere", {}),
    ):
        status, answer = post(cluster, path, body)
        assert (status, list(answer)) == (code, ["error"]), (path, body)
        assert answer["error"].endswith(".") and "Traceback" not in answer["error"]
    late = {"model": cluster.slow, "prompt": "x", "max_new_tokens": 1000, "timeout_s": 0.05}
    status, answer = post(cluster, "/generate", late)
    assert (status, "was stopped" in answer["error"]) == (504, True)
    with pytest.raises(InvalidRequest):
        cluster.backend.generate(cluster.model, " ")
    with pytest.raises(ModelUnavailable):
        cluster.backend.generate("no-such-model", "x")


def test_speech_over_http(cluster: Cluster) -> None:
    recording = sorted(EXAMPLES.glob("*.flac"))[0]
    status, answer = post(cluster, "/transcribe?max_new_tokens=32", recording.read_bytes())
    assert status == 200, answer
    there = cluster.backend.transcribe(
        "whisper-commands", recording, GenerationOptions(max_new_tokens=32)
    )
    assert there.text == answer["text"] != ""
    assert there.cache is CacheOutcome.HIT


def test_the_page_runs_on_the_cluster(cluster: Cluster, backend: Backend) -> None:
    page = serve_page("--backend", "ray", "--ray-address", cluster.address)
    try:
        client = Client(page.url, verbose=False)
        answer = client.predict(
            prompt=PROMPTS[0], model=cluster.model, max_new_tokens=12, api_name="/generate"
        )
        assert answer["text"] == backend.generate(cluster.model, PROMPTS[0], SHORT).text
        entries = client.predict(api_name="/entries")
        assert any(entry["model"] == cluster.model for entry in entries)
        assert page.end() == 0
    finally:
        page.process.kill()


def test_a_replica_dies_under_load(cluster: Cluster, backend: Backend) -> None:
    """No request is lost: it is answered, or told in one sentence that it can be sent again."""
    text = backend.generate(cluster.model, PROMPTS[0], SHORT).text
    before = {one.replica for one in cluster.backend.replicas()}
    victim = next(
        one
        for one in cluster.backend.replicas()
        if any(entry.model == cluster.model and entry.hits for entry in one.entries)
    )
    texts: list[str] = []
    refused: list[str] = []
    over = threading.Event()

    def visit(visitor: int) -> None:
        while not over.is_set():
            options = SHORT.replace(num_beams=1 + visitor % 2)
            try:
                result = cluster.backend.generate(cluster.model, PROMPTS[0], options)
            except EngineStopped as error:
                refused.append(str(error))
            else:
                if options.num_beams == 1:
                    texts.append(result.text)

    with ThreadPoolExecutor(6) as pool:
        visits = [pool.submit(visit, visitor) for visitor in range(6)]
        wait_until(lambda: len(texts) > 10)
        os.kill(victim.pid, signal.SIGKILL)
        done = len(texts)
        wait_until(lambda: len(texts) > done + 20)
        over.set()
    for one in visits:
        one.result()  # raises what no visitor should have met
    assert set(texts) == {text}
    assert all("Send the request again" in sentence for sentence in refused)
    assert len(refused) <= 6  # each visitor's own request, once
    wait_until(lambda: victim.replica not in {one.replica for one in cluster.backend.replicas()})
    cluster.wait_for(2)
    assert len({one.replica for one in cluster.backend.replicas()} - before) == 1


def test_two_replicas_become_one_when_idle_and_two_again_under_load(cluster: Cluster) -> None:
    cluster.scale(min_replicas=1)
    cluster.wait_for(1)
    over = threading.Event()

    def visit() -> None:
        while not over.is_set():
            cluster.backend.generate(cluster.slow, PROMPTS[0], LONG)

    with ThreadPoolExecutor(4) as pool:
        visits = [pool.submit(visit) for _ in range(4)]
        try:
            wait_until(lambda: len(cluster.backend.replicas()) == 2)
        finally:
            over.set()
    for one in visits:
        one.result()


def test_rays_own_client_is_refused_with_what_to_do_instead() -> None:
    # Not above: Ray reads its variables when it is imported, and `cluster` sets some.
    from xla_backend.serving.cluster_backend import ClusterBackend

    with pytest.raises(EngineStopped, match="cannot stream"):
        ClusterBackend.connect("ray://127.0.0.1:10001")


ENDS_RAY = """
import sys, threading
import ray
from xla_backend import GenerationOptions
from xla_backend.serving.cluster_backend import ClusterBackend

address, model = sys.argv[1:]
backend = ClusterBackend.connect(address)
print(len(backend.generate(model, "Once", GenerationOptions(max_new_tokens=4)).tokens))
backend.close()
print([thread.name for thread in threading.enumerate() if thread.name == "board"])
late = ClusterBackend.connect(address)
late._closed.set()  # with its thread ended: Ray may crash else
late._reader.join()
ray.shutdown()
late.close()
"""


def test_a_program_may_end_ray_after_it_has_closed_or_before(cluster: Cluster) -> None:
    """No thread waits for an answer of Ray then: one did when a test process crashed."""
    command = [sys.executable, "-c", ENDS_RAY, cluster.address, cluster.model]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-2:] == ["4", "[]"], ended.stderr
