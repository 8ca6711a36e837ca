"""Runs as files: CSV for tables, JSON for a later import.

Knows both formats and what must not be in them. Must not know components or events.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from playground.context import machine
from playground.context.json_file import JsonFile
from playground.history import records
from playground.history.records import Record
from playground.ui.csv_cells import csv_table
from playground.ui.wording import model_name
from xla_backend import InvalidRequest

FILE = JsonFile("xla-playground-runs", "runs", "Export JSON", 2 * 2**20)
_NESTED = ("key", "requested_key", "timing", "first_call", "options")


def to_json(runs: Sequence[Record], exported: datetime) -> str:
    """The runs with all raw values, and the machine that serves the page."""
    return FILE.written(
        {
            "exported": _utc(exported.timestamp()),
            "machine": machine.description(),
            "units": "every name that ends in _s is seconds; time is seconds since 1970",
            "runs": [_portable(run) for run in runs],
        }
    )


def to_csv(runs: Sequence[Record]) -> str:
    """At least one run as a table with a column per raw value, and the machine in every row."""
    rows = [_flat(_portable(run)) for run in runs]
    return csv_table(list(rows[0]), [list(row.values()) for row in rows])


def from_json(text: str) -> tuple[list[Record], int]:
    """The runs of a file that `to_json` wrote, newest first, and how many could not be read.

    Raises:
        InvalidRequest: it is another kind of file, or has no readable run.
    """
    entries = FILE.read(text).get("runs")
    entries = entries if isinstance(entries, list) else []
    runs = [run for run in map(records.checked, entries) if run is not None]
    if not runs:
        raise InvalidRequest(
            "None of the runs in the file can be read; were they edited? Nothing was changed."
            if entries
            else "The file has no runs. Nothing was changed."
        )
    return runs, len(entries) - len(runs)


def _portable(run: Record) -> dict[str, Any]:
    """A run without a path that only means something on this server."""
    return {**run, "model": model_name(run["model"])}


def _flat(run: Mapping[str, Any]) -> dict[str, Any]:
    """One level: `timing` without a prefix, other objects with their name in front; texts last."""
    row: dict[str, Any] = {"run": run["run"], "time_utc": _utc(run["time"])}
    texts = ("prompt", "text")
    for name, value in run.items():
        if name in _NESTED:
            front = "" if name == "timing" else f"{name.removesuffix('s')}_"
            row.update({front + inner: number for inner, number in value.items()})
        elif name not in (*texts, "run", "time"):
            row[name] = value
    return {**row, **{name: run[name] for name in texts}}


def _utc(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")
