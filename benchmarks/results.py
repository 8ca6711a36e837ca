"""The file that results are kept in, and the numbers that are derived from its raw values.

Knows the JSON file and its statistics. Must not know how values were measured, nor how they are
shown.
"""

from __future__ import annotations

import json
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measures import FEW, Bar, Measure


def check(path: Path, machine: dict[str, Any]) -> None:
    """Makes sure that a machine's numbers may go into the file: before minutes are spent on them.

    Raises:
        SystemExit: the file's numbers are another machine's.
    """
    if path.exists() and (held := read(path)["machine"]) != machine:
        raise SystemExit(
            f"{path} holds the numbers of another machine ({held['processor']}): "
            "delete it, or write to another file with --output."
        )


def merge(
    path: Path,
    measure: Measure,
    entry: dict[str, Any],
    machine: dict[str, Any],
    versions: dict[str, str],
) -> None:
    """Puts a measure's entry in place of an earlier one; contenders that were not run again stay.

    Raises:
        SystemExit: the file's numbers are another machine's.
    """
    check(path, machine)
    kept = read(path) if path.exists() else {"machine": machine, "versions": {}, "entries": {}}
    kept["versions"] |= versions
    entry["measured"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    kept["entries"][f"{measure.name}/{measure.model}"] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")


def read(path: Path) -> dict[str, Any]:
    """The whole file."""
    return json.loads(path.read_text())


def seconds(entry: dict[str, Any], who: str, new_tokens: int) -> list[float]:
    """A call's raw values, one a round.

    Args:
        entry: of a measure.
        who: a contender's name, or the setting of the engine's calls.
        new_tokens: which of its calls.

    Raises:
        KeyError: there is no such call.
    """
    for row in entry["calls"]:
        if who in (row["contender"], row["setting"]) and row["new_tokens"] == new_tokens:
            return row["seconds"]
    raise KeyError(f"{who}, {new_tokens} new tokens")


def sample(entry: dict[str, Any], who: str, statistic: str) -> list[float]:
    """One value a round, in seconds: of "token", "first token" or "whole call" (see `measures`).

    Raises:
        KeyError: it was not measured.
    """
    many = max(
        (row["new_tokens"] for row in entry["calls"] if who in (row["contender"], row["setting"])),
        default=FEW,
    )
    whole = seconds(entry, who, many)
    if statistic == "whole call":
        return whole
    few = seconds(entry, who, FEW)
    tokens = [(all_s - few_s) / (many - FEW) for all_s, few_s in zip(whole, few, strict=True)]
    if statistic == "token":
        return tokens
    return [few_s - (FEW - 1) * token_s for few_s, token_s in zip(few, tokens, strict=True)]


def ratio(entry: dict[str, Any], bar: Bar) -> float:
    """The median over the rounds of the ratio that a bar is about.

    Raises:
        KeyError: one of its parts was not measured.
    """
    of, over = (sample(entry, who, bar.statistic) for who in (bar.of, bar.over))
    return statistics.median(a / b for a, b in zip(of, over, strict=True))


def straightness(xs: list[float], ys: list[float]) -> float:
    """How much of the growth a straight line explains: the squared correlation, 1 for all."""
    return statistics.correlation(xs, ys) ** 2
