"""`Pass`: what one of XLA's passes changed in a module, read from the dumps that XLA writes."""

from __future__ import annotations

import difflib
import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

SHOWN_LINES, SHOWN_WIDTH = 400, 200
"""The most lines of a diff, and characters of a line: tuples have dozens of types."""

_FILE = re.compile(r"(module_\d+\..+)\.(\d{4,})\.(.+?)\.after_(.+?)(?:\.before_.+)?\.txt")
# Where an operation comes from, and the numbers in long lists: neither is computed.
_REMARKS = re.compile(r", metadata=\{[^}]*\}|/\*index=\d+\*/")


@dataclass(frozen=True)
class Pass:
    """A pass that changed something.

    Attributes:
        pipeline, name: XLA's names of it.
        added, removed: how many lines, an instruction each.
        diff: the beginning of a unified diff of the HLO. left_out: how many lines follow.
    """

    pipeline: str
    name: str
    added: int
    removed: int
    diff: str
    left_out: int


def dumping(folder: Path) -> dict[str, str]:
    """The environment variable that has XLA dump into a folder, with the user's own flags."""
    given = os.environ.get("XLA_FLAGS", "")
    if given and not given.lstrip().startswith("-"):  # then it names a file of flags
        given = Path(given).read_text(encoding="utf-8")
    dump = f"--xla_dump_to={folder} --xla_dump_hlo_pass_re=.* --xla_dump_hlo_as_text"
    return {"XLA_FLAGS": f"{given} {dump}".strip()}


def read(folder: Path) -> list[Pass]:
    """The passes over the largest module in a folder, in their order.

    XLA dumps after each pass that says it changed something, and at the start of each pipeline.
    """
    modules: defaultdict[str, list[tuple[int, str, str, Path]]] = defaultdict(list)
    for file in folder.iterdir():
        if found := _FILE.fullmatch(file.name):
            module, number, pipeline, name = found.groups()
            modules[module].append((int(number), pipeline, name, file))
    if not modules:
        return []
    largest = max(modules.values(), key=lambda dumps: sum(f.stat().st_size for *_, f in dumps))
    passes = []
    before: list[str] | None = None
    for _, pipeline, name, file in sorted(largest):
        after = _lines(file)
        if before not in (None, after):
            passes.append(_compared(pipeline, name, before or [], after))
        before = after
    return passes


def _lines(file: Path) -> list[str]:
    text = _REMARKS.sub("", file.read_text(encoding="utf-8"))
    return [line for line in text.splitlines() if line]


def _shortened(line: str) -> str:
    return line if len(line) <= SHOWN_WIDTH else f"{line[:SHOWN_WIDTH]}…"


def _compared(pipeline: str, name: str, before: list[str], after: list[str]) -> Pass:
    # Its first two lines name files.
    diff = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
    shown = [_shortened(line) for line in diff[:SHOWN_LINES]]
    return Pass(
        pipeline=pipeline,
        name=name,
        added=sum(line.startswith("+") for line in diff),
        removed=sum(line.startswith("-") for line in diff),
        diff="\n".join(shown),
        left_out=len(diff) - len(shown),
    )
