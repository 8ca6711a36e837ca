"""Runs measures and prints their tables, each with the command that repeats it.

Knows the measures' names and the command line.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import signal
import sys
from types import ModuleType

from benchmarks.harness import MeasureFailed, OtherPrograms, machine, note, table

MEASURES = (
    "peers",
    "first_call",
    "chat",
    "reread",
    "decide",
    "grammar",
    "numbers",
    "same_text",
    "tasks",
    "ifeval",
    "tools",
    "crowd",
    "page",
    "load",
    "maskbench",
    "schema_answers",
    "gpu",
)
NEED_MORE = ("maskbench", "schema_answers", "tasks", "ifeval", "tools", "gpu")
"""Measures that run only if they are named: they need files, or a GPU."""


def main() -> int:
    """Runs the measure of the command line, or all; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Runs one measure, or without a name all of them."
    )
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # there is no PyTorch here
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the servers and contenders, too
    names = parser.add_subparsers(dest="measure")
    modules = {name: importlib.import_module(f"benchmarks.measures.{name}") for name in MEASURES}
    for name, module in modules.items():
        title, _, text = (module.__doc__ or "").partition("\n")
        add_options(names.add_parser(name, help=title, description=f"{title}\n{text}"), module)
    options = parser.parse_args()
    if options.measure:
        return int(not run(modules[options.measure], options, shlex.join(sys.argv[1:])))
    failed = [
        n for n in MEASURES if n not in NEED_MORE and not run(modules[n], parser.parse_args([n]), n)
    ]
    return int(bool(failed))


def add_options(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    """An option has its default's type; one with a list takes several values."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name, default in module.OPTIONS.items():
        several = isinstance(default, list)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            nargs="+" if several else None,
            type=type(default[0]) if several and default else str if several else type(default),
            default=default,
            help=f"default: {default}",
        )


def run(module: ModuleType, options: argparse.Namespace, command: str) -> bool:
    """Prints the table of a measure; returns whether it could be taken."""
    print(f"\n`python -m benchmarks {command}`\n", flush=True)
    others = OtherPrograms()
    try:
        for line in table(module.measure(options)):
            print(line, flush=True)
    except MeasureFailed as error:
        note(f"{command}: {error}")
        return False
    finally:
        print(f"\n{machine()}; other programs took {others.share():.0%} of the processor.")
    return True


if __name__ == "__main__":
    sys.exit(main())
