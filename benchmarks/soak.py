"""Soak test: is the engine's memory bounded under requests for many cache keys, and at what cost?

Knows the engine's process from outside, and its memory. Run as `make soak`, or

    python -m benchmarks.soak [--requests 500] [--keys 200] [--room-mb 800] [--model gpt2-stories]

Sends requests for many cache keys to an engine whose memory limit is far below what all of them
need: each key once, and then again in random order. Another thread samples the memory of all
engine processes, old and new. The report is printed, after Ctrl-C for the requests so far; a
full-length run, or --write, also writes it to `docs/soak.md` and `docs/images/soak.svg`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import chart, machine
from benchmarks.results import percentile
from xla_backend import BackendError, BackendProcess, GenerationOptions
from xla_backend.process import memory

DOCS = Path(__file__).resolve().parent.parent / "docs"
REQUESTS, KEYS, ROOM_MB = 500, 200, 800
"""The published run. Room: the memory limit less an engine's size at its start, in MB."""
SAMPLE_S = 0.02
WINDOW = 25
"""Each point of the p95 line covers this many latest requests."""
SIZES = (16, 32, 64, 128, 256)
BEAMS = (1, 2, 3, 4, 5, 6, 7, 8)
MB = 10**6


@dataclass(frozen=True)
class Answered:
    """One request. Times are seconds by this program's clock.

    Attributes:
        sent_s: since the start of the run.
        took_s: until the whole text.
        cache: where its function came from; "error" if it failed.
        key: the function's cache key, or the error message.
        reported_s: the engine's total.
    """

    sent_s: float
    took_s: float
    cache: str
    key: str
    reported_s: float = 0.0


@dataclass
class Soak:
    """The result of a run. Times are seconds since its start, sizes bytes.

    Attributes:
        limit: of the engine's process.
        sizes: (time, size) samples of each process, by its id.
        restarts: how often the engine was replaced to free memory.
    """

    limit: int
    answers: list[Answered] = field(default_factory=list)
    sizes: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    restarts: int = 0
    took_s: float = 0.0

    @property
    def errors(self) -> list[str]:
        """The error messages."""
        return [answer.key for answer in self.answers if answer.cache == "error"]

    @property
    def keys(self) -> int:
        """Number of distinct cache keys that served."""
        return len({answer.key for answer in self.answers if answer.cache != "error"})

    @property
    def most(self) -> int:
        """The largest size of any engine process."""
        return max(size for sizes in self.sizes.values() for _, size in sizes)

    def took(self, cache: str) -> list[float]:
        """Seconds of the requests with this outcome."""
        return [answer.took_s for answer in self.answers if answer.cache == cache]


def soak(model: str, requests: int, keys: int, room: int, seed: int = 0) -> Soak:
    """Runs the soak test.

    Args:
        model: for text.
        requests: their number.
        keys: number of distinct cache keys, at most 200.
        room: the memory limit less an engine's size at its start, in bytes.
        seed: of the random order.
    """
    asked = spread_requests(random.Random(seed), requests, keys)
    with tempfile.TemporaryDirectory() as store:
        run = Soak(limit=_size_at_start(model) + room)
        engine = BackendProcess(
            default_model=model, store=store, warm_up=None, memory_limit=str(run.limit)
        )
        ended = threading.Event()
        try:
            engine.wait_ready()
            began = time.perf_counter()
            watcher = threading.Thread(target=_watch, args=(engine, run, began, ended))
            watcher.start()
            try:
                for prompt, options in asked:
                    run.answers.append(_ask(engine, model, prompt, options, began))
                    _tell_progress(run, engine, len(asked))
            except KeyboardInterrupt:
                pass  # reports the requests so far
            finally:
                ended.set()
                watcher.join()
            run.took_s = time.perf_counter() - began
            run.restarts = engine.health().restarts.get("memory", 0)
        finally:
            engine.close()
    return run


def spread_requests(
    choose: random.Random, requests: int, keys: int
) -> list[tuple[str, GenerationOptions]]:
    """Prompts and options: each cache key once in random order, the others drawn from these."""
    distinct = [(size, beams, new) for size in SIZES for beams in BEAMS for new in SIZES]
    choose.shuffle(distinct)
    chosen = distinct[:keys]
    more = [choose.choice(chosen) for _ in range(requests - keys)]
    # Repeats come between first calls, like visitors', but never before their own first call.
    order = chosen + more
    for index in range(keys, requests):
        order.insert(choose.randrange(index), order.pop(index))
    return [
        (
            " ".join(["fox"] * (size // 2 + 2)),
            GenerationOptions(max_new_tokens=new // 2 + 1, num_beams=beams),
        )
        for size, beams, new in order
    ]


def _size_at_start(model: str) -> int:
    engine = BackendProcess(default_model=model, store="off", warm_up=None, memory_limit="off")
    try:
        engine.wait_ready()
        return memory.resident(engine.pid) or 0
    finally:
        engine.close()


def _ask(
    engine: BackendProcess, model: str, prompt: str, options: GenerationOptions, began: float
) -> Answered:
    sent = time.perf_counter()
    try:
        result = engine.generate(model, prompt, options, exact_key=True)
    except BackendError as error:
        return Answered(sent - began, time.perf_counter() - sent, "error", str(error))
    took_s = time.perf_counter() - sent
    total_s = result.timing.total_s
    return Answered(sent - began, took_s, result.cache.value, str(result.key), total_s)


def _tell_progress(run: Soak, engine: BackendProcess, of: int) -> None:
    done, last = len(run.answers), run.answers[-1]
    if done % 10 == 0 or last.cache == "error":
        held = (memory.resident(engine.pid) or 0) / MB
        print(
            f"{done}/{of} after {last.sent_s + last.took_s:.0f} s: {last.cache}, {held:.0f} MB, "
            f"replaced {engine.health().restarts.get('memory', 0)} times",
            file=sys.stderr,
            flush=True,
        )


def _watch(engine: BackendProcess, run: Soak, began: float, ended: threading.Event) -> None:
    """Samples the memory of each engine process until `ended`; also of replaced engines while they
    still live."""
    while not ended.wait(SAMPLE_S):
        run.sizes.setdefault(engine.pid, [])
        now = time.perf_counter() - began
        for pid, sizes in run.sizes.items():
            if size := memory.resident(pid):
                sizes.append((now, size))


# --- what is told ---------------------------------------------------------------------------------


def report(run: Soak, command: str) -> str:
    """The Markdown document."""
    here = machine.description()
    outcomes = Counter(answer.cache for answer in run.answers)
    held = "held" if run.most <= run.limit else "DID NOT HOLD"
    rows = [
        f"| {cache.upper()} | {outcomes[cache]} | {statistics.median(took):.2f} s "
        f"| {percentile(took, 0.95):.2f} s | {max(took):.2f} s |"
        for cache in ("miss", "disk", "hit", "error")
        if (took := run.took(cache))
    ]
    everything = [answer.took_s for answer in run.answers]
    return "\n".join(
        [
            "# Soak",
            "",
            f"Written by `{command}`: {len(run.answers)} requests over {run.keys} distinct keys, "
            f"one after the other, to an engine that may hold {run.limit / MB:.0f} MB. Measured "
            f"on {here['processor']}, {here['cores']} cores, {here['memory_gib']} GiB, "
            f"{here['system']}.",
            "",
            f"- The limit {held}: the largest that an engine ever was is {run.most / MB:.0f} MB "
            f"(read every {1000 * SAMPLE_S:.0f} ms).",
            f"- {outcomes['error']} of {len(run.answers)} requests failed.",
            f"- The engine was replaced {run.restarts} times in {run.took_s / 60:.0f} minutes, "
            "each time between two requests.",
            f"- All requests: median {statistics.median(everything):.2f} s, p95 "
            f"{percentile(everything, 0.95):.2f} s, longest {max(everything):.2f} s.",
            "",
            "| outcome | requests | median | p95 | longest |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
            "![Memory of the engine's processes, and seconds a request, over the run]"
            "(images/soak.svg)",
            "",
        ]
    )


def drawing(run: Soak) -> str:
    """Two panels over the same time: memory of each process, and seconds per request."""
    left, width, height, first, second = 76, 620, 190, 60, 330
    minutes = max(run.took_s, 1e-9) / 60
    top_mb = 1.1 * max(run.limit, run.most) / MB
    windows = [
        percentile([a.took_s for a in run.answers[max(0, i - WINDOW + 1) : i + 1]], 0.95)
        for i in range(len(run.answers))
    ]
    top_s = 1.05 * max(a.took_s for a in run.answers)

    def x(at_s: float) -> float:
        return round(left + width * at_s / 60 / minutes, 1)

    def y(panel: float, share: float) -> float:
        return round(panel + height * (1 - share), 1)

    parts = [
        f'<text class="title" x="12" y="{first - 26}">Memory of the engine, MB: '
        f"{run.restarts} times replaced</text>",
        f'<text class="title" x="12" y="{second - 26}">Seconds a request: each one, and the p95 of '
        f"the last {WINDOW}</text>",
    ]
    for panel, top in ((first, top_mb), (second, top_s)):
        parts.append(
            f'<path class="axis" fill="none" d="M{left} {panel}V{panel + height}H{left + width}"/>'
        )
        for share in (0.25, 0.5, 0.75, 1.0):
            parts.append(
                f'<text class="small" x="{left - 8}" y="{y(panel, share) + 4}" text-anchor="end">'
                f"{share * top:.{0 if top > 20 else 1}f}</text>"
            )
        for share in (0.25, 0.5, 0.75, 1.0):
            parts.append(
                f'<text class="small" x="{left + width * share:.0f}" y="{panel + height + 18}"'
                f' text-anchor="middle">{share * minutes:.1f} min</text>'
            )
    limit_y = y(first, run.limit / MB / top_mb)
    parts.append(
        f'<line class="limit" x1="{left}" x2="{left + width}" y1="{limit_y}" y2="{limit_y}"/>'
        f'<text class="small" x="{left + width}" y="{limit_y - 5}" text-anchor="end">'
        f"limit, {run.limit / MB:.0f} MB</text>"
    )
    for sizes in run.sizes.values():
        # The largest sample of each pixel: more points would not be visible.
        seen: dict[float, int] = {}
        for at, size in sizes:
            seen[round(x(at))] = max(size, seen.get(round(x(at)), 0))
        line = " ".join(f"{at},{y(first, size / MB / top_mb)}" for at, size in seen.items())
        parts.append(f'<polyline class="line" points="{line}"/>')
    for answer in run.answers:
        parts.append(
            f'<circle class="other" cx="{x(answer.sent_s)}"'
            f' cy="{y(second, answer.took_s / top_s)}" r="2"/>'
        )
    line = " ".join(
        f"{x(answer.sent_s)},{y(second, p95 / top_s)}"
        for answer, p95 in zip(run.answers, windows, strict=True)
    )
    parts.append(f'<polyline class="line" points="{line}"/>')
    return chart.svg(left + width + 30, second + height + 32, parts)


def main() -> int:
    """Runs, prints and writes; exit status 1: the limit was exceeded or a request failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--room-mb", type=int, default=ROOM_MB)
    parser.add_argument("--model", default="gpt2-stories")
    parser.add_argument("--write", action="store_true", help="write the documents for shorter runs")
    arguments = parser.parse_args()
    run = soak(arguments.model, arguments.requests, arguments.keys, arguments.room_mb * MB)
    text = report(run, " ".join(["python -m benchmarks.soak", *sys.argv[1:]]))
    print(text)
    print(*dict.fromkeys(run.errors), sep="\n")
    if arguments.write or (arguments.requests, arguments.keys) == (REQUESTS, KEYS):
        (DOCS / "soak.md").write_text(text, encoding="utf-8")
        (DOCS / "images" / "soak.svg").write_text(drawing(run), encoding="utf-8")
    return int(bool(run.errors) or run.most > run.limit)


if __name__ == "__main__":
    sys.exit(main())
