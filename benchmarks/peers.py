"""This engine against its peers and against the machine's limit.

Knows the order of things: which measures, run, keep, report. Run as

    python -m benchmarks.peers [--full] [--measures greedy beams] [--models 124m] [--rounds 5]

Contenders are processes that stay alive and are called in turn, A B C A B C, with two threads each.
Results are merged into one JSON file, so that measures can be run one at a time; the table and the
charts are drawn from that file. `benchmarks/requirements.txt` lists the peers; `make bench`
installs them in an environment of their own and runs the quick set, `make bench-full` everything.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import machine, memory, page, results
from benchmarks.contenders import CONTENDERS, PEERS_PYTHON, ROOT, ContenderFailed
from benchmarks.measures import MEASURES, Measure
from benchmarks.runner import Runner

# A measure goes on for so many seconds, however short its calls are.
LEAST_S = 10.0


def main() -> int:
    """Measures, writes the results and prints the bars; the exit status is 1 if a measure failed.

    What failed is told, and the other measures go on.
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
    # A model's measures together: its contenders are loaded once.
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
            runner.forget()
    finally:
        runner.forget()
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
    return runner.run(measure, calls, arguments.rounds, LEAST_S)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = list(dict.fromkeys(measure.name for measure in MEASURES))
    models = list(dict.fromkeys(measure.model for measure in MEASURES))
    parser.add_argument("--full", action="store_true", help="every measure and every peer")
    parser.add_argument("--measures", nargs="+", choices=names)
    parser.add_argument("--models", nargs="+", choices=models)
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS))
    parser.add_argument(
        "--rounds", type=int, default=5, help=f"at least so many, and {LEAST_S:.0f} seconds of them"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.json")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "xla-bench")
    parser.add_argument("--report-only", action="store_true", help="draw what was measured before")
    return parser.parse_args()


def _report(output: Path) -> None:
    """Writes the table and, in images/, the charts beside the JSON file; prints the bars.

    What `benchmarks.capacity` reckons from the numbers of docs/ is reckoned again with them.
    """
    from benchmarks import capacity, chart, report

    kept = results.read(output)
    output.with_suffix(".md").write_text(report.document(kept))
    images = output.parent / "images"
    images.mkdir(exist_ok=True)
    for name, drawing in chart.drawings(kept).items():
        (images / name).write_text(drawing)
    if output.resolve() == capacity.BENCHMARKS:
        capacity.main()
    for line in report.verdicts(kept):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
