"""Costs of a compiled function: seconds to compile it, to restore it, and memory to keep it.

Knows the engine and its process from outside. Must not know how functions are made. `python -m
benchmarks.function_costs` prints a line per function, first with an empty store, then with the
filled one; docs/capacity.md uses the medians.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.checkpoints import gpt2_124m
from xla_backend import BackendProcess, GenerationOptions
from xla_backend.process import memory

PROMPT = "Once upon a time"
NEW_TOKENS = (16, 32, 64, 128, 256)


def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as work:
        model = str(gpt2_124m(Path(work)))
        for filled in (False, True):
            print("store filled" if filled else "store empty")
            _measure(model, str(Path(work) / "store"))


def _measure(model: str, store: str) -> None:
    engine = BackendProcess(default_model=None, store=store, warm_up=None)
    try:
        engine.wait_ready()
        empty = _gigabytes(engine)
        engine.load(model)
        print(f"engine {empty:.2f} GB, with the model {_gigabytes(engine):.2f} GB")
        once, sizes = [], []
        for new_tokens in NEW_TOKENS:
            options = GenerationOptions(max_new_tokens=new_tokens)
            timing = engine.generate(model, PROMPT, options, exact_key=True).timing
            engine.generate(model, PROMPT, options, exact_key=True)
            once.append(timing.trace_s + timing.compile_s)
            sizes.append(_gigabytes(engine))
            print(
                f"{new_tokens:4} new slots: trace {timing.trace_s:.2f} s, compile "
                f"{timing.compile_s:.2f} s, run {timing.run_s:.2f} s; {sizes[-1]:.2f} GB"
            )
        each = (sizes[-1] - sizes[0]) / (len(sizes) - 1)
        print(f"median {statistics.median(once):.2f} s; {1000 * each:.0f} MB for each further one")
    finally:
        engine.close()


def _gigabytes(engine: BackendProcess) -> float:
    return (memory.resident(engine.pid) or 0) / 1e9


if __name__ == "__main__":
    main()
