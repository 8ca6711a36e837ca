"""Random requests to a warm engine: does any of them wait for a compilation?

Knows the engine from outside. Run as

    python -m benchmarks.random_requests [--model gpt2-stories]

Compiles 40 cache keys as `python -m xla_backend warm` does, then sends 300 random requests for
these keys and prints their cache outcomes and times.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter

from benchmarks import terminal
from benchmarks.results import percentile
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.results import CacheOutcome

PADDED_LENGTHS = (16, 32, 64, 128, 256)
NUM_BEAMS = (1, 4)
NEW_TOKENS = (16, 32, 64, 128)
REQUESTS = 300


def main() -> None:
    """Measures and prints."""
    model = terminal.options(__doc__, model="gpt2-stories").model
    from xla_backend import Backend, CacheKey

    keys = [
        CacheKey(length, beams, tokens)
        for beams in NUM_BEAMS
        for length in PADDED_LENGTHS
        for tokens in NEW_TOKENS
    ]
    with tempfile.TemporaryDirectory() as folder:
        backend = Backend(store=folder)
        start = time.perf_counter()
        backend.warm(model, keys)
        warm_s = time.perf_counter() - start
        results = [_ask(backend, model, random.Random(seed)) for seed in range(REQUESTS)]
        backend.close()
    outcomes = Counter(result.cache.value for result in results)
    totals = [result.timing.total_s for result in results]
    terminal.print_command("random_requests")
    print(f"{len(keys)} keys ready in {warm_s:.1f} s; {REQUESTS} random requests: {dict(outcomes)}")
    print(
        f"total: median {1000 * statistics.median(totals):.0f} ms, "
        f"p95 {1000 * percentile(totals, 0.95):.0f} ms, longest {1000 * max(totals):.0f} ms"
    )
    waited = outcomes[CacheOutcome.MISS.value] + outcomes[CacheOutcome.DISK.value]
    print(f"requests that waited for a compile or a restore: {waited}")


def _ask(backend, model: str, choose: random.Random):
    words = choose.choice((3, 10, 25, 60, 110))
    prompt = " ".join(choose.choice(("the", "fox", "went", "home", "again")) for _ in range(words))
    options = GenerationOptions(
        max_new_tokens=choose.randint(1, max(NEW_TOKENS)),
        num_beams=choose.choice(NUM_BEAMS),
        temperature=choose.choice((0.0, 0.7)),
        seed=choose.randrange(1000),
    )
    return backend.generate(model, prompt, options)


if __name__ == "__main__":
    main()
