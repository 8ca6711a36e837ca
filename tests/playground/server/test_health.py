"""`/health`, the log of requests, two apps on one store, and an end in the middle of a request."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client

from tests.checkpoints import gpt2
from tests.playground.served import Served, Site, children, serve
from tests.waiting import wait_until

ENDS_WITHIN_S = 15.0  # half of what containers are given; on a busy machine, too


def health(url: str) -> tuple[int, dict[str, Any]]:
    """Status and object."""
    try:
        with urllib.request.urlopen(f"{url}/health") as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def wait_until_healthy(url: str) -> dict[str, Any]:
    deadline = time.monotonic() + 240
    while (found := health(url))[0] != 200:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found[1]


@dataclass
class Pair:
    """Two apps that share a store."""

    one: Served
    other: Served
    log: Path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    model = str(gpt2(folder / "model", seed=61, n_positions=1100))
    log = folder / "requests.jsonl"
    arguments = ("--models", model, "--store", str(folder / "store"))
    apps: list[Served] = []
    try:
        # Their code is optimised, whatever the tests around do, so that compiling takes a while.
        logs, optimised = ("--log-requests", str(log)), {"XLA_FLAGS": ""}
        apps.append(serve(*arguments, *logs, PLAYGROUND_MEMORY_LIMIT="50%", **optimised))
        apps.append(
            serve(*arguments, "--memory-limit", "3GB", "--prefix-cache", "2MB", **optimised)
        )
        yield Pair(*apps, log)
    finally:
        for app in apps:
            app.process.kill()


def test_the_page_does_not_wait_for_its_engine(tmp_path: Path) -> None:
    # The engine's process sleeps before it imports anything.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "if 'xla_backend.process.engine_process' in sys.orig_argv: time.sleep(600)\n"
    )
    served = serve("--models", "gpt2-stories", PYTHONPATH=str(tmp_path))
    try:
        status, report = health(served.url)
        assert (status, report["status"]) == (503, "starting")
        assert "Starting the engine" in served.first_page
    finally:
        assert served.end() == 0


def test_health_says_what_runs(pair: Pair) -> None:
    report = wait_until_healthy(pair.other.url)
    assert report["engine"]["memory_limit_bytes"] == 3_000_000_000
    assert report["engine"]["resident_bytes"] > 100_000_000
    assert report["engine"]["restarts"] == {}
    kept = {"prompts": 0, "tokens": 0, "held_bytes": 0, "limit_bytes": 2_000_000}
    assert report["engine"]["prefix_cache"] == kept
    assert report["waiting"] == report["running"] == 0
    assert report["page"]["resident_bytes"] > 50_000_000
    assert "rss" not in report


def test_two_apps_on_one_store_serve_each_other(pair: Pair) -> None:
    """At the same time, then one what the other has made."""
    clients = [Client(app.url, verbose=False) for app in (pair.one, pair.other)]
    ask = {"prompt": "Once", "max_new_tokens": 40, "num_beams": 2, "api_name": "/generate"}
    answers: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda client=client: answers.append(client.predict(**ask)))
        for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers[0]["text"] == answers[1]["text"]
    ask["num_beams"] = 3
    assert clients[0].predict(**ask)["cache"] == "miss"
    assert clients[1].predict(**ask)["cache"] == "disk"


def test_the_log_has_a_line_a_request_without_its_words(pair: Pair) -> None:
    client = Client(pair.one.url, verbose=False)
    client.predict(prompt="zebra pear", max_new_tokens=9, api_name="/generate")
    with pytest.raises(Exception, match="empty"):
        client.predict(prompt=" ", api_name="/generate")
    text = pair.log.read_text()
    assert "zebra" not in text
    *_, served, refused = map(json.loads, text.splitlines())
    assert (served["request"], served["end"], served["new_tokens"]) == ("generate", "result", 9)
    assert served["timing"]["total_s"] <= served["wall_s"]
    assert (refused["end"], refused["error"]) == ("error", "InvalidRequest")


def test_an_end_in_the_middle_of_a_compile_is_clean_and_soon(pair: Pair) -> None:
    pid = pair.one.process.pid
    started = children(pid)
    assert len(started) == 1, "the engine"
    client = Client(pair.one.url, verbose=False)
    job = client.submit(prompt="Once", max_new_tokens=900, num_beams=6, api_name="/generate")
    wait_until(lambda: health(pair.one.url)[1]["engine"]["state"] == "compiling")
    began = time.monotonic()
    pair.one.process.send_signal(signal.SIGTERM)
    assert pair.one.process.wait(4 * ENDS_WITHIN_S) == 0
    assert time.monotonic() - began < ENDS_WITHIN_S
    assert job.exception(30) is not None, "the visitor is told, too"
    for child in started:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    assert "Traceback" not in "\n".join(pair.one.output)
    assert health(pair.other.url)[0] == 200, "the other app goes on"


def test_waiting_in_the_line_is_part_of_the_total_and_no_work(site: Site) -> None:
    """Of some that are sent at once each waits for those before it: all say what a stopwatch says.

    Their functions are different ones, or they would run side by side.
    """
    wait_until_healthy(site.url)
    asks = [
        {"prompt": "Once", "max_new_tokens": 500, "num_beams": beams, "api_name": "/generate"}
        for beams in (2, 3, 4)
    ]
    clients = [Client(site.url, verbose=False) for _ in asks]
    for client, ask in zip(clients, asks, strict=True):
        client.predict(**ask)
    took: list[tuple[float, dict[str, float]]] = []

    def send(client: Client, ask: dict[str, Any]) -> None:
        began = time.perf_counter()
        timing = client.predict(**ask)["timing"]
        took.append((time.perf_counter() - began, timing))

    threads = [threading.Thread(target=send, args=each) for each in zip(clients, asks, strict=True)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - began
    # Texts are read and written beside what the engine does.
    worked = [timing["prefill_s"] + timing["decode_s"] for _, timing in took]
    assert sum(worked) <= wall_s
    _, last = took[-1]
    assert last["queue_s"] >= 0.5 * worked[0], "it waited for the one before it"
    for seconds, timing in took:
        assert timing["total_s"] <= seconds
        assert sum(timing.values()) == pytest.approx(2 * timing["total_s"], rel=0.02)
