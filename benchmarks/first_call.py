"""First and cached calls of a cache key: this engine against Transformers.

Knows which models and sizes are worth measuring and how the table reads; the ways themselves are
`xla_backend.baselines.comparison`, which the page's Compare tab shows too. Run as

    python -m benchmarks.first_call [--models 124m gpt2-stories] [--num-beams 1 4] [--rounds 3]

Ways, each in a fresh process, in turn (A B C D A B C D ...):

* `eager generate`: `model.generate`;
* `compiled generate`: `tf.function(model.generate, jit_compile=True)`, as in the guide;
* `engine, empty store`: this engine with nothing on disk;
* `engine, filled store`: this engine with the store of the previous way.

All generate 32 new tokens after the same prompt padded to 16, and must write the same tokens. The
first call is split into tracing, compiling and running; the cached time is the median of 10 more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import terminal
from benchmarks.runner import checkpoint
from xla_backend import GenerationOptions
from xla_backend.baselines.comparison import Baseline, BaselineComparison

PROMPT = "Once upon"
PADDED_LENGTH, MAX_NEW_TOKENS = 16, 32
CACHED_CALLS = 10
CONTENDERS = {
    Baseline.EAGER: "eager generate",
    Baseline.GUIDE: "compiled generate",
    Baseline.ENGINE: "engine, empty store",
    Baseline.ENGINE_FROM_DISK: "engine, filled store",
}


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["124m", "gpt2-stories"])
    parser.add_argument("--num-beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="also write the raw numbers here, as JSON")
    parser.add_argument("--work", type=Path, default=terminal.WORK)
    arguments = parser.parse_args()
    results = []
    for model in arguments.models:
        folder = checkpoint(model, arguments.work)
        for _ in range(arguments.rounds):
            for num_beams in arguments.num_beams:
                for row in _measure(folder, num_beams):
                    results.append({"model": model, "num_beams": num_beams} | row)
                    print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    terminal.print_command("first_call")
    _print_table(results)
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


def _measure(folder: Path, num_beams: int) -> Iterator[dict[str, Any]]:
    options = GenerationOptions(max_new_tokens=MAX_NEW_TOKENS, num_beams=num_beams)
    comparison = BaselineComparison(str(folder), PROMPT, options, cached_calls=CACHED_CALLS)
    for _ in comparison:
        pass
    if comparison.failures:
        raise SystemExit("\n".join(comparison.failures.values()))
    if not comparison.identical:
        raise SystemExit(f"{folder}: the ways wrote different tokens with {num_beams} beams")
    for way, result in comparison.results.items():
        expected = {Baseline.ENGINE: "miss", Baseline.ENGINE_FROM_DISK: "disk"}.get(way)
        assert result.cache == expected, result.cache
        assert way is Baseline.EAGER or result.padded_length == PADDED_LENGTH
        assert result.later is not None
        yield {
            "contender": CONTENDERS[way],
            "first_s": result.first_s,
            "trace_s": result.trace_s,
            "compile_s": result.compile_s,
            "cached_s": result.later.median_s,
            "tokens": len(result.tokens),
        }


def _print_table(rows: list[dict[str, Any]]) -> None:
    cells: dict[tuple[str, int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        cells[row["model"], row["num_beams"], row["contender"]].append(row)
    terminal.print_head(
        *("model", "beams", "contender", "first call s", "trace s", "compile s", "cached ms"),
        *("tokens/s", "first call, rival over this", "cached, eager over this"),
    )
    for (model, num_beams, contender), measured in cells.items():

        def median(name: str, of: list[dict[str, Any]] = measured) -> float:
            return statistics.median(row[name] for row in of)

        rival = median("first_s", cells[model, num_beams, "compiled generate"])
        eager = median("cached_s", cells[model, num_beams, "eager generate"])
        speed = measured[0]["tokens"] / median("cached_s")
        terminal.print_row(
            *(model, num_beams, contender),
            *(f"{median(name):.2f}" for name in ("first_s", "trace_s", "compile_s")),
            f"{1000 * median('cached_s'):.1f}",
            f"{speed:.0f}",
            f"{rival / median('first_s'):.1f}",
            f"{eager / median('cached_s'):.1f}",
        )


if __name__ == "__main__":
    main()
