"""Many clients at `/v1` for minutes, over many shapes, with a low memory limit.

Every request is first answered alone; then each client sends random ones of them without a pause.
It fails if a request failed, a text differs from the one alone, or the engine exceeded its limit.
An engine near its limit is replaced between two requests; the new one restores functions.
"""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from openai import APIError

from benchmarks.client import Answer, Client
from benchmarks.harness import MeasureFailed, Row, note
from benchmarks.servers import health, this_app

OPTIONS = {"clients": 50, "seconds": 300.0, "model": "gpt2-stories", "memory_limit": "1500MB"}
SAMPLE_S = 0.5
PROMPTS = (
    "Once upon a time",
    "The little fox went home",
    "One day a boy found a red ball in the garden and showed it to his friend. " * 2,
    "It was raining and the children stayed inside. " * 5,
)
CHOICES: tuple[dict[str, Any], ...] = (
    {"max_tokens": 16, "temperature": 0.0},
    {"max_tokens": 30, "temperature": 0.8, "seed": 1},
    {"max_tokens": 30, "temperature": 0.8, "seed": 2},
    {"max_tokens": 48, "extra_body": {"num_beams": 2}},
    {"max_tokens": 16, "extra_body": {"num_beams": 4, "repetition_penalty": 1.3}},
)
Ask = Callable[[], Answer]


@dataclass(frozen=True)
class Visit:
    """A request of a client: its answer, or what was wrong."""

    client: int
    answer: Answer | None
    problem: str = ""


@dataclass(frozen=True)
class Sample:
    """Bytes of the page's process, of the engine's and of its limit; engines replaced so far."""

    page: int
    engine: int
    limit: int
    replaced: int

    @classmethod
    def of(cls, url: str) -> Sample | None:
        """From `/health`; None while there is no engine."""
        report = health(url)
        engine = report["engine"]
        if not engine.get("resident_bytes"):
            return None
        limit, restarts = engine["memory_limit_bytes"], engine["restarts"]
        page = report["page"]["resident_bytes"]
        return cls(page, engine["resident_bytes"], limit, restarts.get("memory", 0))


def measure(options: Namespace) -> Iterator[Row]:
    """A row for each count."""
    limit = f"--memory-limit={options.memory_limit}"
    with this_app("--models", options.model, limit) as url:
        client = Client(url, options.model)
        cases = [partial(client.complete, prompt, **more)
                 for prompt, more in itertools.product(PROMPTS, CHOICES)]  # fmt: skip
        alone = [case().text for case in cases]
        note(f"  {len(cases)} requests were answered alone")
        visits, samples = _visit(url, cases, alone, options.clients, options.seconds)
    yield from summary(visits, samples, options.clients, options.seconds)
    problems = Counter(each.problem for each in visits if each.problem)
    if problems:
        raise MeasureFailed("\n".join(f"{count} times: {p}" for p, count in problems.most_common()))
    if any(sample.engine > sample.limit for sample in samples):
        raise MeasureFailed("the engine outgrew its limit")


def _visit(
    url: str, cases: Sequence[Ask], alone: Sequence[str], clients: int, seconds: float
) -> tuple[list[Visit], list[Sample]]:
    """All requests of the clients in this time, and samples of `/health` meanwhile."""
    end, is_over, samples = time.monotonic() + seconds, threading.Event(), []

    def visit(client: int) -> list[Visit]:
        choose, visits = random.Random(client), []
        while time.monotonic() < end:
            case = choose.randrange(len(cases))
            try:
                answer = cases[case]()
            except APIError as error:
                visits.append(Visit(client, None, f"failed: {error}"))
                continue
            problem = "" if answer.text == alone[case] else "another text than alone"
            visits.append(Visit(client, answer, problem))
        return visits

    def watch() -> None:
        while not is_over.wait(SAMPLE_S):
            if sample := Sample.of(url):
                samples.append(sample)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(clients) as threads:
            visits = [one for each in threads.map(visit, range(clients)) for one in each]
    finally:
        is_over.set()
        watcher.join()
    return visits, samples


def summary(
    visits: Sequence[Visit], samples: Sequence[Sample], clients: int, seconds: float
) -> Iterator[Row]:
    """The result of the requests and samples."""
    answers = [each.answer for each in visits if each.answer]
    counts = Counter(each.client for each in visits if each.answer)
    caches = Counter(answer.cache for answer in answers)
    yield {"what": "answers, a second", "": f"{len(answers):,}, {len(answers) / seconds:.1f}"}
    yield {"what": "failed", "": len(visits) - len(answers)}
    yield {"what": "another text than alone", "": sum("another" in each.problem for each in visits)}
    fewest = min(counts[client] for client in range(clients))
    yield {"what": "answers to each client", "": f"{fewest} to {max(counts.values(), default=0)}"}
    yield {"what": "functions", "": ", ".join(f"{name} {n:,}" for name, n in caches.items())}
    for name, values in (
        ("whole answer", [answer.last - answer.sent for answer in answers]),
        ("first token", [answer.ttft_s for answer in answers]),
    ):
        marks = ", ".join(f"{value:.2f}" for value in np.quantile(values, (0.5, 0.95, 0.99, 1)))
        yield {"what": f"{name}: p50, p95, p99, longest, s", "": marks}
    largest = max(sample.engine for sample in samples)
    of = f"{largest / 1e6:,.0f} of {samples[-1].limit / 1e6:,.0f}"
    yield {"what": "engine, the most of its limit, MB", "": of}
    yield {"what": "engines replaced", "": samples[-1].replaced}
    yield {"what": "page, growth since a third of the time", "": f"{growth(samples):+.1%}"}


def growth(samples: Sequence[Sample]) -> float:
    """The page's relative growth from a third of the time to the end, between medians."""
    third, part = len(samples) // 3, max(1, len(samples) // 6)
    before, after = (
        statistics.median(sample.page for sample in some)
        for some in (samples[third : third + part], samples[-part:])
    )
    return after / before - 1
