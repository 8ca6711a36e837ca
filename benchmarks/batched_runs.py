"""The gain of batching requests of many concurrent visitors.

Knows the engine from outside. Run as

    python -m benchmarks.batched_runs [--model 124m] [--visitors 8] [--weights float32 int8]

All visitors send a request for one cache key at the same moment; prompts and seeds differ. An
engine that batches requests and one that runs them one at a time take turns, so both see the same
machine. All functions are compiled beforehand. The first request waits for nobody: who comes while
its prompt runs is generated with it. Latency is the time from the request to its whole text.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import terminal
from benchmarks.checkpoints import gpt2_124m

if TYPE_CHECKING:
    from xla_backend import Backend, GenerationResult

PROMPTS = ("Once upon a time", "One day in April", "The fox and I am", "Tom and his dogs")
"""As many letters each, which are the tokens of models with random weights."""
ALONE, SIDE_BY_SIDE = "one at a time", "side by side"


def main() -> None:
    """Measures and prints a table."""
    arguments = terminal.options(
        __doc__,
        model="124m",
        visitors=[8],
        weights=["auto"],
        max_new_tokens=64,
        num_beams=1,
        temperature=0.0,
        rounds=3,
        work=terminal.WORK,
    )
    terminal.print_command("batched_runs")
    for kind in arguments.weights:
        _measure(arguments, kind)


def _measure(arguments: argparse.Namespace, kind: str) -> None:
    """Measures with one kind of weights, and prints a table for each number of visitors."""
    from xla_backend.scheduling.batch import BATCH_SIZES

    from xla_backend import Backend, GenerationOptions
    from xla_backend.checkpoints.models import Registry

    model = str(gpt2_124m(arguments.work)) if arguments.model == "124m" else arguments.model
    options = GenerationOptions(
        max_new_tokens=arguments.max_new_tokens,
        num_beams=arguments.num_beams,
        temperature=arguments.temperature,
    )
    with tempfile.TemporaryDirectory() as folder:
        store = arguments.work / "store" if arguments.work.exists() else Path(folder)
        engines = {
            ALONE: Backend(Registry(weights=kind), store=store, batch_sizes=(1,)),
            SIDE_BY_SIDE: Backend(Registry(weights=kind), store=store),
        }
        for name, backend in engines.items():
            key = backend.predict(model, PROMPTS[0], options).requested_key
            for size in BATCH_SIZES if name == SIDE_BY_SIDE else (1,):
                backend.warm(model, [key], batch_size=size)
            _ask_at_once(backend, model, options, 1)
        for visitors in arguments.visitors:
            walls: dict[str, list[float]] = {name: [] for name in engines}
            results: dict[str, list[GenerationResult]] = {name: [] for name in engines}
            for _ in range(arguments.rounds):
                for name, backend in engines.items():
                    wall_s, answers = _ask_at_once(backend, model, options, visitors)
                    walls[name].append(wall_s)
                    results[name] += answers
            _print(kind, visitors, walls, results)
        for backend in engines.values():
            backend.close()


def _ask_at_once(
    backend: Backend, model: str, options, visitors: int
) -> tuple[float, list[GenerationResult]]:
    """Seconds until the last visitor has a text, and all results."""
    together = threading.Barrier(visitors + 1)

    def ask(visitor: int) -> GenerationResult:
        own = options.replace(seed=visitor)
        together.wait()
        return backend.generate(model, PROMPTS[visitor % len(PROMPTS)], own)

    with ThreadPoolExecutor(visitors) as threads:
        answers = [threads.submit(ask, visitor) for visitor in range(visitors)]
        together.wait()
        start = time.perf_counter()
        results = [answer.result() for answer in answers]
    return time.perf_counter() - start, results


def _print(
    kind: str,
    visitors: int,
    walls: dict[str, list[float]],
    results: dict[str, list[GenerationResult]],
) -> None:
    rates, latencies = {}, {}
    terminal.print_head(
        f"{kind}, {visitors} at once", "tokens/s", "median latency s", "slowest s", "batch sizes"
    )
    for name, seconds in walls.items():
        tokens = sum(result.new_tokens for result in results[name])
        rates[name] = tokens / sum(seconds)
        waited = [result.timing.total_s for result in results[name]]
        latencies[name] = statistics.median(waited)
        sizes = ", ".join(map(str, sorted({result.batch_size for result in results[name]})))
        times = (f"{latencies[name]:.2f}", f"{max(waited):.2f}")
        terminal.print_row(name, f"{rates[name]:.0f}", *times, sizes)
    print(
        f"\nSide by side: {rates[SIDE_BY_SIDE] / rates[ALONE]:.2f} times the tokens/s, "
        f"{latencies[SIDE_BY_SIDE] / latencies[ALONE]:.2f} times the median latency."
    )
    same = [
        [token.id for token in one.tokens] == [token.id for token in other.tokens]
        for one, other in zip(results[ALONE], results[SIDE_BY_SIDE], strict=True)
    ]
    print(f"{sum(same)} of {len(same)} texts are the same in both, token for token.")


if __name__ == "__main__":
    main()
