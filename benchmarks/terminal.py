"""What the scripts share on the terminal: their options, and what they print around their numbers.

Knows the command line and Markdown's tables. Must not know what is measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import Bystanders, description

WORK = Path(tempfile.gettempdir()) / "xla-bench"
"""Where checkpoints are built, and kept for the next run."""


def options(document: str, **defaults: Any) -> argparse.Namespace:
    """The options of the command line.

    Args:
        document: the script's docstring; its first line describes it.
        defaults: by option. A value is of the default's type; a list takes several.
    """
    parser = argparse.ArgumentParser(description=document.partition("\n")[0])
    for name, default in defaults.items():
        several, one = ("+", default[0]) if isinstance(default, list) else (None, default)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(one), nargs=several, default=default)
    return parser.parse_args()


def print_command(script: str) -> None:
    """Prints the command line that gives the numbers below it."""
    print(f"\npython -m benchmarks.{script} {' '.join(sys.argv[1:])}\n")


def print_head(*names: str) -> None:
    """The first lines of a table."""
    print_row(*names)
    print_row(*["---"] * len(names))


def print_row(*cells: object) -> None:
    """Prints a line of a table as soon as it is known."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_machine(others: Bystanders) -> None:
    """Prints what was measured on, and how busy others kept it."""
    machine = ", ".join(map(str, description().values()))
    print(f"\n{machine}; other programs took {others.share():.0%} of the processor.")
