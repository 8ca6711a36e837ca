"""Looking inside compiled functions: how long it takes, and what it costs those who are served.

Knows the engine's process and its inspector from outside. Must not know how functions are read.
`python -m benchmarks.inside [--model NAME|124m]` prints how long the first look and a measurement
take, and the times between the tokens of streams alone and beside each.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import terminal
from benchmarks.checkpoints import gpt2_124m
from xla_backend import BackendProcess, CacheKey, GenerationOptions
from xla_backend.checkpoints.models import Registry
from xla_backend.inspection.inspector import Inspector

PROMPT = "Once upon a time"
OPTIONS = GenerationOptions(max_new_tokens=32)
STREAMS = 12


def main() -> None:
    """Measures and prints."""
    model = terminal.options(__doc__.partition(".")[0], model="gpt2-stories").model
    with tempfile.TemporaryDirectory() as work:
        if model == "124m":
            model = str(gpt2_124m(Path(work)))
        _measure(model, Path(work) / "store")
    print(f"load {os.getloadavg()[0]:.1f}")


def _measure(model: str, store: Path) -> None:
    engine = BackendProcess(default_model=None, store=store, warm_up=None)
    try:
        key = engine.generate(model, PROMPT, OPTIONS).key
        identity, inspector = engine.identity(model), engine.inspector
        assert inspector is not None
        start = time.perf_counter()
        seen = inspector.inspect(model, identity, key)
        took_s = time.perf_counter() - start
        print(f"first look {took_s:.2f} s, of it reading {seen.took_s:.2f} s")
        _print_gaps("alone", _gaps(engine, model))
        for name, work in (("looking", _look), ("measuring", _measure_token)):
            gaps = _beside(lambda work=work: work(inspector, model, identity, key), engine, model)
            _print_gaps(f"beside {name}", gaps)
    finally:
        engine.close()


def _look(inspector: Inspector, model: str, identity: str, key: CacheKey) -> None:
    Inspector(inspector.store, Registry()).inspect(model, identity, key)


def _measure_token(inspector: Inspector, model: str, identity: str, key: CacheKey) -> None:
    start = time.perf_counter()
    measured = inspector.measure(model, identity, key)
    print(f"measuring beside streams {time.perf_counter() - start:.1f} s, load {measured.load:.1f}")


def _beside(work: Callable[[], None], engine: BackendProcess, model: str) -> list[float]:
    thread = threading.Thread(target=work)
    thread.start()
    gaps = []
    while thread.is_alive():
        gaps += _gaps(engine, model, streams=1)
    thread.join()
    return gaps


def _gaps(engine: BackendProcess, model: str, streams: int = STREAMS) -> list[float]:
    """Seconds from a request to its first chunk, and between chunks."""
    gaps = []
    for _ in range(streams):
        last = time.perf_counter()
        for _ in engine.stream(model, PROMPT, OPTIONS):
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
    return gaps


def _print_gaps(name: str, gaps: list[float]) -> None:
    ordered = sorted(gaps)
    p99 = ordered[int(0.99 * (len(ordered) - 1))]
    print(
        f"{name:<18} {len(gaps):5} waits: median {1e3 * statistics.median(gaps):.1f} ms, "
        f"p99 {1e3 * p99:.1f} ms, longest {1e3 * ordered[-1]:.1f} ms"
    )


if __name__ == "__main__":
    main()
