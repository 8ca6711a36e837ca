"""Load test: many concurrent visitors must get their own results, in order, without errors.

Knows the app from outside: its queue over HTTP, and `/health`. Run as `make load`, or

    python -m benchmarks.load [--visitors 50] [--seconds 300] [--note TEXT]

Each request is first sent alone, to learn its text. Then every visitor sends random ones of these
requests, one after the other, through the queue that the page uses. The report is printed; a
full-length run, or --write, also writes it to `docs/load.md`. The exit status is 1 if a text was
wrong, a request failed, or a queue position was impossible.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from benchmarks import machine
from benchmarks.results import percentile
from benchmarks.served import served

PAGE = Path(__file__).resolve().parent.parent / "docs" / "load.md"
VISITORS, SECONDS = 50, 300
"""The published run."""
HEALTH_S = 2.0
_PATIENCE_S = 180
_STORIES = (
    "Once upon a time",
    "The little fox went home",
    "One day a boy found a red ball in the garden and showed it to his friend. " * 2,
    "It was raining and the children stayed inside. " * 5,
)
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"max_new_tokens": 16},
    {"max_new_tokens": 30, "temperature": 0.8, "seed": 1},
    {"max_new_tokens": 30, "temperature": 0.8, "seed": 2},
    {"max_new_tokens": 48, "num_beams": 2},
    {"max_new_tokens": 16, "num_beams": 4, "repetition_penalty": 1.3},
)
Case = dict[str, Any]
CASES: tuple[Case, ...] = tuple(
    {"prompt": prompt, **options} for prompt in _STORIES for options in _OPTIONS
)


@dataclass(frozen=True)
class Asked:
    """One request, timed by the visitor.

    Attributes:
        visitor: its number.
        case: index in the list of cases.
        took_s: seconds from the click to the whole text.
        ran_s: seconds that the engine reports, without waiting.
        cache: where its function came from.
        places: the reported numbers of requests ahead of it, in order.
        problem: what was wrong; empty if nothing was.
    """

    visitor: int
    case: int
    took_s: float
    ran_s: float = 0.0
    cache: str = ""
    places: tuple[int, ...] = ()
    problem: str = ""


@dataclass
class Load:
    """The result of a run.

    Attributes:
        memory: (seconds since the start, bytes of the page's process, bytes of the engine's).
    """

    visitors: int
    seconds: float
    asked: list[Asked] = field(default_factory=list)
    memory: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def problems(self) -> Counter[str]:
        """The problems and their counts."""
        return Counter(each.problem for each in self.asked if each.problem)

    @property
    def by_visitor(self) -> list[int]:
        """Number of results per visitor."""
        counted = Counter(each.visitor for each in self.asked)
        return [counted[visitor] for visitor in range(self.visitors)]

    def grew(self, column: int) -> float:
        """Relative growth of a process from a third of the time to the end.

        Compares medians around both moments; earlier, functions are still loaded.
        """
        sizes = [reading[column] for reading in self.memory]
        part = max(1, len(sizes) // 6)
        third = len(sizes) // 3
        before, after = sorted(sizes[third : third + part]), sorted(sizes[-part:])
        return after[len(after) // 2] / before[len(before) // 2] - 1


class Visitor:
    """A visitor's open page: one session with the app's queue."""

    def __init__(self, url: str, name: str) -> None:
        self._url = f"{url}/gradio_api"
        self._session = name
        self._http = requests.Session()
        config = self._http.get(f"{url}/config", timeout=_PATIENCE_S).json()
        [event] = [e for e in config["dependencies"] if e["api_name"] == "generate"]
        self._function = event["id"]
        described = self._http.get(f"{self._url}/info", timeout=_PATIENCE_S).json()
        self._parameters = described["named_endpoints"]["/generate"]["parameters"]

    def ask(self, case: Case) -> tuple[dict[str, Any], list[int]]:
        """Sends a request; returns its result, and the reported numbers of requests ahead of it.

        Raises:
            RuntimeError: the request failed; with the app's message.
        """
        values = [
            case.get(each["parameter_name"], each["parameter_default"]) for each in self._parameters
        ]
        body = {"data": values, "fn_index": self._function, "session_hash": self._session}
        answer = self._http.post(f"{self._url}/queue/join", json=body, timeout=_PATIENCE_S)
        if not answer.ok:
            raise RuntimeError(answer.text[:200])
        places: list[int] = []
        for message in self._messages():
            if message["msg"] == "estimation":
                places.append(message["rank"])
            elif message["msg"] == "process_completed":
                if not message["success"]:
                    raise RuntimeError(str(message["output"].get("error"))[:200])
                return message["output"]["data"][0], places
        raise RuntimeError("The stream ended without an answer.")

    def _messages(self) -> Iterator[dict[str, Any]]:
        with self._http.get(
            f"{self._url}/queue/data",
            params={"session_hash": self._session},
            stream=True,
            timeout=_PATIENCE_S,
        ) as stream:
            for line in stream.iter_lines(chunk_size=1):
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])


def load(url: str, visitors: int, seconds: float, cases: Sequence[Case] = CASES) -> Load:
    """Sends every case alone; then all visitors open the page and send requests for `seconds`."""
    alone = Visitor(url, "alone")
    expected = [alone.ask(case)[0]["text"] for case in cases]
    run = Load(visitors, seconds)
    began = 0.0

    def begin() -> None:
        nonlocal began
        began = time.perf_counter()

    all_are_there = threading.Barrier(visitors + 1, begin, _PATIENCE_S)
    ended = threading.Event()
    lock = threading.Lock()

    def visit(number: int) -> None:
        choose = random.Random(number)
        visitor = Visitor(url, f"visitor-{number}")
        all_are_there.wait()
        while time.perf_counter() - began < seconds:
            asked = _ask(visitor, number, choose.randrange(len(cases)), cases, expected)
            with lock:
                run.asked.append(asked)

    def watch() -> None:
        all_are_there.wait()
        while not ended.wait(HEALTH_S if seconds > 60 else HEALTH_S / 10):
            health = requests.get(f"{url}/health", timeout=_PATIENCE_S).json()
            sizes = health["page"]["resident_bytes"], health["engine"]["resident_bytes"]
            run.memory.append((time.perf_counter() - began, *sizes))

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(visitors)]
    watcher = threading.Thread(target=watch)
    for thread in (*threads, watcher):
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    watcher.join()
    return run


def _ask(
    visitor: Visitor, number: int, case: int, cases: Sequence[Case], expected: Sequence[str]
) -> Asked:
    sent = time.perf_counter()
    try:
        answer, places = visitor.ask(cases[case])
    except (RuntimeError, requests.RequestException) as error:
        return Asked(number, case, time.perf_counter() - sent, problem=f"failed: {error}")
    took = time.perf_counter() - sent
    timing = answer["timing"]
    problem = ""
    if answer["text"] != expected[case]:
        problem = "another text than alone"
    elif not are_true(places):
        problem = f"places in the queue that cannot be: {places}"
    ran = timing["total_s"] - timing["queue_s"]
    return Asked(number, case, took, ran, answer["cache"], tuple(places), problem)


def are_true(places: Sequence[int]) -> bool:
    """Whether these can be the positions of one request in a first-in, first-out queue.

    Each served request moves it one place forward, it never moves back, and it ends in front.
    """
    steps = [before - after for before, after in itertools.pairwise(places)]
    return bool(places) and places[-1] == 0 and set(steps) <= {0, 1}


def report(run: Load, command: str, note: str = "") -> str:
    """The report in Markdown."""
    took = [each.took_s for each in run.asked if not each.problem]
    ran = [each.ran_s for each in run.asked if not each.problem]
    counts = run.by_visitor
    longest_line = max((place for each in run.asked for place in each.places), default=0)
    wrong = sum(count for problem, count in run.problems.items() if problem.startswith("another"))
    failed = sum(count for problem, count in run.problems.items() if problem.startswith("failed"))
    untrue = run.problems.total() - wrong - failed
    here, today = machine.description(), time.strftime("%Y-%m-%d")
    columns = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("longest", 1.0)]
    caches = ", ".join(f"{name} {n}" for name, n in Counter(e.cache for e in run.asked).items())

    def row(name: str, values: Sequence[float]) -> str:
        cells = " | ".join(f"{percentile(values, share):.3f}" for _, share in columns)
        return f"| {name} | {cells} |"

    return "\n".join(
        [
            "# Many visitors at once",
            "",
            f"`{command}`: {run.visitors} visitors for {run.seconds:.0f} seconds, each sending one "
            f"request after another without a pause, over {len(CASES)} requests of 4 prompts and 5 "
            "sets of options. Every answer is compared with what the same request was answered "
            "alone, before.",
            "",
            f"{here['processor']}, {here['cores']} cores, {today}. {note}".strip(),
            "",
            "| | |",
            "| --- | --- |",
            f"| requests answered | {len(took):,}, {len(took) / run.seconds:.1f} a second |",
            f"| failed | {failed} |",
            f"| another text than alone | {wrong} |",
            f"| untrue places in the queue | {untrue} |",
            f"| longest line | {longest_line + 1} |",
            f"| answers to each visitor | {min(counts)} to {max(counts)} |",
            f"| functions | {caches} |",
            f"| memory of the page's process | {run.memory[-1][1] / 1e6:.0f} MB, "
            f"{run.grew(1):+.1%} since a third of the time |",
            f"| memory of the engine's process | {run.memory[-1][2] / 1e6:.0f} MB, "
            f"{run.grew(2):+.1%} since a third of the time |",
            "",
            "Seconds:",
            "",
            f"| | {' | '.join(name for name, _ in columns)} |",
            f"| --- {'| ---: ' * len(columns)}|",
            row("from the click to the whole answer", took),
            row("of these, the engine's work", ran),
            "",
            "The line never empties, so nearly all of a visitor’s time is waiting: the number "
            "of visitors times what one request takes from start to start, the queue's own work "
            "included.",
            "",
        ]
    )


def main() -> int:
    """Measures, prints the report, and writes it for a full-length run or with --write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--visitors", type=int, default=VISITORS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--note", default="", help="a sentence about the machine, for the page")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} for shorter runs")
    parsed = parser.parse_args()
    limits = ["--max-waiting", str(2 * parsed.visitors)]
    limits += ["--max-waiting-each", str(2 * parsed.visitors)]
    with served("--models", "gpt2-stories", *limits) as url:
        run = load(url, parsed.visitors, parsed.seconds)
        text = report(run, "python -m benchmarks.load", parsed.note)
        print(text, flush=True)
    for problem, count in run.problems.most_common(10):
        print(f"{count} times: {problem}", file=sys.stderr)
    if parsed.write or (parsed.visitors, parsed.seconds) == (VISITORS, SECONDS):
        PAGE.write_text(text, encoding="utf-8")
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
