"""Whether the engine's memory stays bounded while many shapes are asked for, and what that costs.

Knows the engine's process from outside, and the kernel's account of it. Run as `make soak`, or

    python -m benchmarks.soak [--requests 500] [--keys 200] [--room-mb 800] [--model gpt2-stories]

Sends requests over many distinct keys to an engine whose memory limit leaves it far less room than
all of them need. Each key is asked for once, and then again in random order. Another thread reads
the memory of the engine's processes, old and new, all the while. What happened is printed, after
Ctrl-C what was measured so far; at full length, or with --write, it also goes to `docs/soak.md` and
`docs/images/soak.svg`.
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import chart, machine
from xla_backend import BackendError, BackendProcess, GenerationOptions, memory

DOCS = Path(__file__).resolve().parent.parent / "docs"
REQUESTS, KEYS, ROOM_MB = 500, 200, 800
"""The published run. The room is what the limit leaves above an engine's size at its start."""
SAMPLE_S = 0.02
WINDOW = 25
"""Requests that a point of the p95 line looks back on."""
SIZES = (16, 32, 64, 128, 256)
BEAMS = (1, 2, 3, 4, 5, 6, 7, 8)
MB = 10**6


@dataclass(frozen=True)
class Answered:
    """One request: when it was sent and how long it took, by this program's own clock, in seconds.

    Attributes:
        cache: where its function came from; "error" when it failed.
        key: the function's, or the error's sentence.
        reported_s: the total that the engine reports.
    """

    sent_s: float
    took_s: float
    cache: str
    key: str
    reported_s: float = 0.0


@dataclass
class Soak:
    """What a run showed. Times are seconds since its start, sizes bytes.

    Attributes:
        limit: what the engine's process may hold.
        sizes: of each process by its number: when, and what it held.
        restarts: how often the engine was replaced to free memory.
    """

    limit: int
    answers: list[Answered] = field(default_factory=list)
    sizes: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    restarts: int = 0
    took_s: float = 0.0

    @property
    def errors(self) -> list[str]:
        """What failed."""
        return [answer.key for answer in self.answers if answer.cache == "error"]

    @property
    def keys(self) -> int:
        """How many distinct functions served."""
        return len({answer.key for answer in self.answers if answer.cache != "error"})

    @property
    def most(self) -> int:
        """The largest that any engine ever was."""
        return max(size for sizes in self.sizes.values() for _, size in sizes)

    def took(self, cache: str) -> list[float]:
        """Seconds of the requests with this outcome."""
        return [answer.took_s for answer in self.answers if answer.cache == cache]


def soak(model: str, requests: int, keys: int, room: int, seed: int = 0) -> Soak:
    """Runs it.

    Args:
        model: for text.
        requests: how many, over
        keys: how many distinct ones, at most 200.
        room: bytes that the limit leaves above what the engine holds at its start.
    """
    asked = _requests(random.Random(seed), requests, keys)
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
                pass  # what was measured so far is told
            finally:
                ended.set()
                watcher.join()
            run.took_s = time.perf_counter() - began
            run.restarts = engine.health().restarts.get("memory", 0)
        finally:
            engine.close()
    return run


def _requests(
    choose: random.Random, requests: int, keys: int
) -> list[tuple[str, GenerationOptions]]:
    """Prompts and options, every key once in random order, the rest drawn among them."""
    distinct = [(size, beams, new) for size in SIZES for beams in BEAMS for new in SIZES]
    choose.shuffle(distinct)
    chosen = distinct[:keys]
    more = [choose.choice(chosen) for _ in range(requests - keys)]
    # Repeats come between first calls, as visitors' do, but never before their own.
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
    """Reads what each engine process holds, until told to end. An engine that was replaced is still
    watched for as long as it lives."""
    while not ended.wait(SAMPLE_S):
        run.sizes.setdefault(engine.pid, [])
        now = time.perf_counter() - began
        for pid, sizes in run.sizes.items():
            if size := memory.resident(pid):
                sizes.append((now, size))


# --- what is told ---------------------------------------------------------------------------------


def percentile(seconds: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


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
    """Two panels over the same time: memory of each process, and how long requests took."""
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
        # The largest of each pixel: more points would not be seen.
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
    """Runs, prints and writes; the exit status is 1 where the limit did not hold or one failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--room-mb", type=int, default=ROOM_MB)
    parser.add_argument("--model", default="gpt2-stories")
    parser.add_argument("--write", action="store_true", help="write the documents whatever is run")
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
