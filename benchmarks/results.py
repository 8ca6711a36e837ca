"""The results file, and the statistics of its raw values.

Knows the JSON file. Must not know how values were measured, nor how they are shown.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS
from benchmarks.measures import FEW, Bar, Measure


def check(path: Path, machine: dict[str, Any]) -> None:
    """Checks, before minutes of measuring, that this machine's numbers may go into the file.

    Raises:
        SystemExit: the file has another machine's numbers.
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
    """Writes a measure's entry to the file; replaces its earlier entry, keeps other measures.

    Raises:
        SystemExit: the file has another machine's numbers.
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
    """A call's seconds in each round.

    Args:
        entry: of a measure.
        who: a contender's name, or the setting of the engine's calls.
        new_tokens: of the call.

    Raises:
        KeyError: there is no such call.
    """
    for row in entry["calls"]:
        if who in (row["contender"], row["setting"]) and row["new_tokens"] == new_tokens:
            return row["seconds"]
    raise KeyError(f"{who}, {new_tokens} new tokens")


def sample(entry: dict[str, Any], who: str, statistic: str) -> list[float]:
    """A statistic's seconds in each round: "token", "first token" or "whole call" (see `measures`).

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
    """The median of a bar's ratio over the rounds.

    Raises:
        KeyError: a part of it was not measured.
    """
    of, over = (sample(entry, who, bar.statistic) for who in (bar.of, bar.over))
    return statistics.median(a / b for a, b in zip(of, over, strict=True))


def growth(entry: dict[str, Any]) -> list[tuple[str, list[int], list[float]]]:
    """Of each kind of weights in a measure of growth: its name, what grows, and the seconds."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in entry["calls"]:
        rows.setdefault(CONTENDERS[row["contender"]].variant, []).append(row)
    return [
        (
            kind,
            [row["x"] for row in of_kind],
            [statistics.median(row["seconds"]) for row in of_kind],
        )
        for kind, of_kind in rows.items()
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def straightness(xs: list[float], ys: list[float]) -> float:
    """The share of the growth that a straight line explains: the squared correlation."""
    return statistics.correlation(xs, ys) ** 2
