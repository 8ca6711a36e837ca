"""`python -m benchmarks.proof`: takes the measures that others can repeat; writes docs/proof.md.

Knows which measures those are and where their public data lies in `--data`. Each section has its
command, date, machine and how busy it was; one that could not be taken says why.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.__main__ import add_options
from benchmarks.harness import ROOT, MeasureFailed, OtherPrograms, Row, machine, note, table
from xla_backend.checkpoints.models import PACKAGED_MODEL

PAGE = ROOT / "docs" / "proof.md"
NUMBERS = ROOT / "playground" / "tabs" / "models" / "proof.json"
"""The rows of `numbers`, which the page shows beside its models."""


@dataclass(frozen=True)
class Section:
    """A measure, its heading, and its options: those of `data` are paths below `--data`."""

    title: str
    measure: str
    data: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)


SECTIONS = (
    Section("Probabilities beside PyTorch's", "numbers", {"text": "wikitext-2-test.txt"}),
    Section("The same text in every way", "same_text", {"questions": "gsm8k-test.jsonl"}),
    Section("Schemas", "maskbench", {"data": "maskbench/data"}, {"files": ["3000"]}),
    Section("Answers under schemas", "schema_answers", {"data": "maskbench/data"}),
    Section(
        "Evaluations", "tasks", {"text": "wikitext-2-test.txt", "questions": "gsm8k-test.jsonl"}
    ),
    Section("Instructions", "ifeval", {"prompts": "ifeval-input.jsonl"}),
    Section("Calls of tools", "tools", {"data": "bfcl_eval/data"}),
    Section(
        "Prompts and tokens", "peers", options={"models": [PACKAGED_MODEL], "num_beams": ["1"]}
    ),
    Section("A crowd", "crowd"),
    Section("Conversations", "chat"),
)
INTRODUCTION = """# Proof

Written by `make proof ARGS="--data FOLDER"`, from public data and programs that others can
install. Numbers that fall short stay as they are.
"""


def main() -> int:
    """Takes the sections of the command line, or all; others that the page has stay.

    What is not known here are options of the one measure that `--only` names.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof", description=__doc__)
    names = [section.measure for section in SECTIONS]
    files = ", ".join(path for section in SECTIONS for path in section.data.values())
    parser.add_argument("--data", type=Path, required=True, help=f"a folder with {files}")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="some sections")
    flags, more = parser.parse_known_args()
    if more and len(flags.only) != 1:
        parser.error(f"{' '.join(more)}: options of a measure need --only with its name")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the servers and contenders, too
    written = _sections(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for section in SECTIONS:
        if section.measure in flags.only:
            written[section.title] = "\n".join(_lines(section, flags.data, more))
            sections = [written[each.title] for each in SECTIONS if each.title in written]
            missing = [each.title for each in SECTIONS if each.title not in written]
            note_of = [f"No run has taken: {', '.join(missing)}.\n"] if missing else []
            parts = [INTRODUCTION, *note_of, *sections]
            PAGE.write_text("\n".join(parts), encoding="utf-8")
    return 0


def _lines(section: Section, data: Path, more: Sequence[str]) -> Iterator[str]:
    module = importlib.import_module(f"benchmarks.measures.{section.measure}")
    values = {name: [str(data / path)] for name, path in section.data.items()}
    shown = {name: [path] for name, path in section.data.items()}
    for name, given in section.options.items():
        if f"--{name.replace('_', '-')}" not in more:
            values[name] = shown[name] = [*given]
    command = shlex.join(["python", "-m", "benchmarks", section.measure, *_arguments(shown), *more])
    note(command)
    parser = argparse.ArgumentParser()
    add_options(parser, module)
    others = OtherPrograms()
    yield from (f"## {section.title}", "", f"`{command}`", "")
    try:
        rows = module.measure(parser.parse_args([*_arguments(values), *more]))
        yield from table(_saved(rows) if section.measure == "numbers" else rows)
    except MeasureFailed as error:
        yield f"Not taken: {error}"
    share = f"other programs took {others.share():.0%} of the processor"
    yield from ("", f"{machine()} {time.strftime('%H:%M %Z')}; {share}.", "")


def _saved(rows: Iterable[Row | str]) -> Iterator[Row | str]:
    """The rows, which replace those of the same model and program in the page's file."""
    saved = {(row["model"], row["program"]): row for row in json.loads(NUMBERS.read_text())}
    for row in rows:
        if isinstance(row, dict):
            saved[row["model"], row["program"]] = row
            NUMBERS.write_text(json.dumps([*saved.values()], indent=1) + "\n")
        yield row


def _arguments(values: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        word for name, given in values.items() for word in (f"--{name.replace('_', '-')}", *given)
    ]


def _sections(page: str) -> dict[str, str]:
    """The sections of a page that was written before, by their titles."""
    return {
        part.partition("\n")[0]: f"## {part}".rstrip() + "\n" for part in page.split("\n## ")[1:]
    }


if __name__ == "__main__":
    sys.exit(main())
