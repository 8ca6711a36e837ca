"""Benchmark of this engine against its peers and the machine's limit.

Knows the steps: choose measures, run them, store and report the results. Run as

    python -m benchmarks.peers [--full] [--measures greedy beams] [--models 124m] [--rounds 5]

Contenders are long-lived processes with two threads each, called in turn, A B C A B C. Results are
merged into one JSON file, so measures can be run one at a time; tables and charts are made from
that file. `benchmarks/requirements.txt` lists the peers; `make bench` installs them in their own
environment and runs the quick set, `make bench-full` everything.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import machine, memory, page, results, terminal
from benchmarks.contenders import CONTENDERS, PEERS_PYTHON, ROOT, ContenderFailed
from benchmarks.measures import MEASURES, Measure
from benchmarks.runner import Runner

# A measure runs for at least this many seconds, for short calls too.
MIN_S = 10.0


def main() -> int:
    """Measures, writes the results and prints the bars.

    Prints the error of a measure that fails and continues; the exit status is then 1.
    """
    arguments = _arguments()
    if not PEERS_PYTHON.exists():
        sys.exit("The peers are not installed: run make bench, which installs them.")
    if arguments.report_only:
        _report(arguments.output)
        return 0
    chosen = [
        measure
        for measure in MEASURES
        if (measure.name in arguments.measures if arguments.measures else True)
        and (not arguments.models or measure.model in arguments.models)
        and (arguments.full or arguments.measures or measure.is_quick)
    ]
    if not chosen:
        sys.exit("There is no such measure; the names are in benchmarks/measures.py.")
    here = machine.description()
    results.check(arguments.output, here)
    # Groups measures by model, so its contenders are loaded once.
    models = list(dict.fromkeys(measure.model for measure in chosen))
    runner = Runner(arguments.work)
    status = 0
    try:
        for model in models:
            for measure in (measure for measure in chosen if measure.model == model):
                print(f"{measure.title} ({measure.name}, {model})", file=sys.stderr, flush=True)
                start = time.perf_counter()
                try:
                    entry = _run(measure, runner, arguments)
                except ContenderFailed as error:
                    print(f"  failed: {error}", file=sys.stderr, flush=True)
                    status = 1
                    continue
                entry["took_s"] = round(time.perf_counter() - start, 1)
                entry["command"] = f"python -m benchmarks.peers {' '.join(sys.argv[1:])}".strip()
                results.merge(arguments.output, measure, entry, here, runner.versions)
            runner.clear()
    finally:
        runner.clear()
    _report(arguments.output)
    return status


def _run(measure: Measure, runner: Runner, arguments: argparse.Namespace) -> dict[str, Any]:
    if measure.name == "page":
        return page.measure(measure.model, arguments.rounds)
    if measure.name == "memory":
        return memory.measure(measure, runner, arguments.work)
    calls = measure.calls + (measure.full_only if arguments.full else ())
    if arguments.contenders:
        calls = tuple(call for call in calls if call.contender in arguments.contenders)
    return runner.run(measure, calls, arguments.rounds, MIN_S)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = list(dict.fromkeys(measure.name for measure in MEASURES))
    models = list(dict.fromkeys(measure.model for measure in MEASURES))
    parser.add_argument("--full", action="store_true", help="every measure and every peer")
    parser.add_argument("--measures", nargs="+", choices=names)
    parser.add_argument("--models", nargs="+", choices=models)
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS))
    parser.add_argument(
        "--rounds", type=int, default=5, help=f"at least so many, and {MIN_S:.0f} seconds of them"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.json")
    parser.add_argument("--work", type=Path, default=terminal.WORK)
    parser.add_argument("--report-only", action="store_true", help="draw what was measured before")
    return parser.parse_args()


def _report(output: Path) -> None:
    """Writes the tables, and the charts in images/, next to the JSON file; prints the bars."""
    from benchmarks import chart, report

    kept = results.read(output)
    output.with_suffix(".md").write_text(report.document(kept))
    images = output.parent / "images"
    images.mkdir(exist_ok=True)
    for name, drawing in chart.drawings(kept).items():
        (images / name).write_text(drawing)
    for line in report.verdicts(kept):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
