"""How many answers a second many clients get through `/v1` and through Gradio's endpoints.

Knows both APIs from outside. Run as

    python -m benchmarks.two_apis [--clients 50] [--seconds 20] [--rounds 3]

The same requests, by the same kind of client, with the APIs in turn, so that all see the same
machine. Gradio's are asked as `gradio_client` does, which joins the queue, and as curl does. Every
text is compared with what the same request was answered alone. Processor time is that of the page's
process and of the engine's.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import requests

from benchmarks import machine, terminal
from benchmarks.load import Visitor
from benchmarks.served import served

MODEL = "gpt2-stories"
PROMPTS = (
    "Once upon a time",
    "The little fox went home",
    "One day a boy found a red ball",
    "It was raining and the children stayed inside.",
)
NEW_TOKENS = 16
PATIENCE_S = 180
Ask = Callable[[str], str]


@dataclass(frozen=True)
class Part:
    """What clients got through one API in one round.

    Attributes:
        answers: how many.
        wrong: how many of them were another text than alone.
        page_s, engine_s: processor time of the two processes.
    """

    seconds: float
    answers: int
    wrong: int
    page_s: float
    engine_s: float


def of_v1(url: str, name: str) -> Ask:
    """A client of OpenAI's protocol."""
    http = requests.Session()

    def ask(prompt: str) -> str:
        body = {"model": MODEL, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0}
        answer = http.post(f"{url}/v1/completions", json=body, timeout=PATIENCE_S)
        answer.raise_for_status()
        return answer.json()["choices"][0]["text"]

    return ask


def of_gradio(url: str, name: str) -> Ask:
    """A client of Gradio's queue."""
    visitor = Visitor(url, name)
    return lambda prompt: visitor.ask({"prompt": prompt, "max_new_tokens": NEW_TOKENS})[0]["text"]


def of_curl(url: str, name: str) -> Ask:
    """A client of Gradio's endpoints that asks, and then asks for the answer."""
    http = requests.Session()

    def ask(prompt: str) -> str:
        body = {"prompt": prompt, "max_new_tokens": NEW_TOKENS}
        sent = http.post(f"{url}/gradio_api/call/v2/generate", json=body, timeout=PATIENCE_S)
        number = sent.json()["event_id"]
        answer = http.get(f"{url}/gradio_api/call/generate/{number}", timeout=PATIENCE_S)
        return json.loads(answer.text.rpartition("data: ")[2])[0]["text"]

    return ask


APIS: dict[str, Callable[[str, str], Ask]] = {
    "/v1": of_v1,
    "/gradio_api/queue": of_gradio,
    "/gradio_api/call": of_curl,
}


def part(asks: Sequence[Ask], seconds: float, expected: dict[str, str]) -> Part:
    """Lets clients ask, each one request after another, and waits for the last answers."""
    answers, wrong, lock = 0, 0, threading.Lock()
    before, began = processor_s(), time.perf_counter()

    def visit(ask: Ask, number: int) -> None:
        nonlocal answers, wrong
        while time.perf_counter() - began < seconds:
            prompt = PROMPTS[number % len(PROMPTS)]
            is_right = ask(prompt) == expected[prompt]
            number += 1
            with lock:
                answers += 1
                wrong += not is_right

    threads = [
        threading.Thread(target=visit, args=(ask, number)) for number, ask in enumerate(asks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    page_s, engine_s = (now - then for now, then in zip(processor_s(), before, strict=True))
    return Part(took, answers, wrong, page_s, engine_s)


def processor_s() -> tuple[float, float]:
    """Processor time so far of the page's process, the only child of this one, and of its child."""
    [page] = _children(os.getpid())
    return _cpu_s(page), sum(map(_cpu_s, _children(page)))


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for children in lists for child in children.read_text().split()]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(parts: dict[str, list[Part]]) -> str:
    """The medians over the rounds."""
    lines = [
        "| | answers/s | page's process, ms | engine's process, ms |",
        "| --- |" + " ---: |" * 3,
    ]
    for api, rounds in parts.items():
        rate = statistics.median(each.answers / each.seconds for each in rounds)
        page = statistics.median(1000 * each.page_s / each.answers for each in rounds)
        engine = statistics.median(1000 * each.engine_s / each.answers for each in rounds)
        lines.append(f"| `{api}` | {rate:.1f} | {page:.1f} | {engine:.1f} |")
    first, *others = parts
    for other in others:
        ratios = [
            (fast.answers / fast.seconds) / (slow.answers / slow.seconds)
            for fast, slow in zip(parts[first], parts[other], strict=True)
        ]
        in_rounds = ", ".join(f"{ratio:.1f}" for ratio in ratios)
        lines += ["", f"`{first}` answers so many times as many as `{other}`: {in_rounds}"]
    return "\n".join(lines)


def main() -> int:
    """Measures and prints the table; the exit status is 1 if a text was wrong."""
    parsed = terminal.options(__doc__, clients=50, seconds=20.0, rounds=3)
    limit = str(2 * parsed.clients)
    with served("--models", MODEL, "--max-waiting", limit, "--max-waiting-each", limit) as url:
        alone = of_v1(url, "alone")
        expected = {prompt: alone(prompt) for prompt in PROMPTS}
        clients = {
            api: [make(url, f"{api}-{number}") for number in range(parsed.clients)]
            for api, make in APIS.items()
        }
        for asks in clients.values():  # the functions for several requests are made meanwhile
            part(asks, parsed.seconds, expected)
        parts: dict[str, list[Part]] = {api: [] for api in APIS}
        for _ in range(parsed.rounds):
            for api, rounds in parts.items():
                rounds.append(part(clients[api], parsed.seconds, expected))
    here = machine.description()
    print(f"{here['processor']}, {here['cores']} cores, {time.strftime('%Y-%m-%d')}\n")
    print(table(parts))
    wrong = sum(each.wrong for rounds in parts.values() for each in rounds)
    if wrong:
        print(f"{wrong} texts were other ones than alone", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
