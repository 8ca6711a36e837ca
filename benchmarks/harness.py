"""What measures share: calls in turn, ratios, Markdown tables, the machine and its other load.

Knows no measure. A measure is a module in `measures/` with `OPTIONS`, the defaults of its command
line, and `measure(options)`, which yields rows of one table, and sentences to go below it.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

ROOT = Path(__file__).resolve().parents[1]
WORK = Path(tempfile.gettempdir()) / "xla-bench"
"""The folder of checkpoints, which the next run reuses."""
Cell = str | int | float
Row = dict[str, Cell]
Name = TypeVar("Name")
Result = TypeVar("Result")


class MeasureFailed(Exception):
    """A measure cannot be taken, or found a wrong result."""


def in_turn(
    calls: Mapping[Name, Callable[[], Result]], rounds: int, least_s: float = 0.0
) -> dict[Name, list[Result]]:
    """Calls A B C A B C ..., so that a slow phase of the machine affects all.

    Args:
        rounds: the minimum.
        least_s: the minimum duration in seconds.
    """
    results: dict[Name, list[Result]] = {name: [] for name in calls}
    start, done = time.perf_counter(), 0
    while done < rounds or time.perf_counter() - start < least_s:
        for name, call in calls.items():
            results[name].append(call())
        done += 1
    note(f"  {done} rounds in {time.perf_counter() - start:.1f} s")
    return results


def ratio(of: Sequence[float], over: Sequence[float]) -> float:
    """The median of the ratios within each round."""
    return statistics.median(one / other for one, other in zip(of, over, strict=True))


def shown(value: Cell) -> str:
    """A cell's text: three digits, and no decimals from 100 on."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows: Iterable[Row | str]) -> Iterator[str]:
    """Lines of Markdown, each as soon as its row exists; sentences follow the table."""
    sentences, has_head = [], False
    for row in rows:
        if isinstance(row, str):
            sentences.append(row)
            continue
        if not has_head:
            yield f"| {' | '.join(row)} |"
            yield "| --- " * len(row) + "|"
            has_head = True
        yield f"| {' | '.join(map(shown, row.values()))} |"
    for sentence in sentences:
        yield ""
        yield sentence


def machine() -> str:
    """Processor, cores, memory, system and date."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    parts = (
        names[0] if names else platform.processor(),
        f"{os.cpu_count()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"{platform.system()} {platform.release().partition('-')[0]}",
        time.strftime("%Y-%m-%d"),
    )
    return ", ".join(parts)


def peak_memory(pid: int) -> int:
    """The most resident memory that a process has had, in bytes, shared pages included."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


class OtherPrograms:
    """Processor time of other programs, which makes a measurement worth less."""

    def __init__(self) -> None:
        self._start = self._read()

    def share(self) -> float:
        """The share of all processor time since the start, 0 to 1."""
        total, busy, own = (
            now - before for now, before in zip(self._read(), self._start, strict=True)
        )
        return max(0.0, busy - own) / total if total else 0.0

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Seconds of all processors, of these busy ones, and of this program's processes."""
        times = psutil.cpu_times()
        me, own = psutil.Process(), 0.0
        for process in (me, *me.children(recursive=True)):
            try:
                own += sum(process.cpu_times()[:4])  # with those of children that have ended
            except psutil.NoSuchProcess:
                continue
        return sum(times), sum(times) - times.idle - times.iowait, own


def note(text: str) -> None:
    """Prints progress, separately from the table."""
    print(text, file=sys.stderr, flush=True)
