"""Estimates before the click: how near are they to what calls of random keys then take?

Knows the engine from outside, as the page does. Run as

    python -m benchmarks.estimates [--models gpt2-stories SmolLM2-135M-Instruct] [--calls 8]

Three processes one after the other, with one history and no functions on disk: each is sent
requests of random keys that have to be compiled, and each is sent again, as a HIT. The very first
MISS of a model has no estimate.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks import terminal
from xla_backend import BucketRules, GenerationOptions
from xla_backend.checkpoints.models import Registry
from xla_backend.process.backend_process import BackendProcess

WORDS = (5, 20, 45, 100)
NUM_BEAMS = (1, 2, 4)
NEW_TOKENS = (16, 32, 64, 128)
PROCESSES = 3
FACTOR = 1.5


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["gpt2-stories", "SmolLM2-135M-Instruct"])
    parser.add_argument("--calls", type=int, default=8, help="keys for each process")
    arguments = parser.parse_args()
    terminal.print_command("estimates")
    terminal.print_head(
        *("model", "outcome", "estimates"),
        *(f"within a factor of {FACTOR}", "worst factor", "in its range"),
    )
    for model in arguments.models:
        for outcome, cases in _measure(model, arguments.calls).items():
            factors = [max(took / said, said / took) for said, took, _ in cases]
            within = sum(factor <= FACTOR for factor in factors)
            ranges = sum(is_in for *_, is_in in cases)
            worst = f"{max(factors):.2f} (median {statistics.median(factors):.2f})"
            terminal.print_row(model, outcome, len(cases), within, worst, ranges)


def _measure(model: str, calls: int) -> dict[str, list[tuple[float, float, bool]]]:
    """Of each outcome: seconds expected, seconds taken, and whether they lay in the range."""
    choose = random.Random(26)
    keys = list(itertools.product(WORDS, NUM_BEAMS, NEW_TOKENS))
    cases = defaultdict(list)
    with tempfile.TemporaryDirectory() as store:
        for _ in range(PROCESSES):
            engine = BackendProcess(
                Registry(), BucketRules(), default_model=None, store=store, memory_limit="off"
            )
            engine.load(model)
            for words, num_beams, new_tokens in choose.sample(keys, calls):
                prompt = " ".join(choose.choice(("the", "fox", "went")) for _ in range(words))
                options = GenerationOptions(max_new_tokens=new_tokens, num_beams=num_beams)
                for _ in range(2):
                    said = engine.predict(model, prompt, options, exact_key=True)
                    took = engine.generate(model, prompt, options, exact_key=True)
                    took_s = took.timing.total_s - took.timing.queue_s
                    print(said, took.timing, file=sys.stderr)
                    if said.expected_s is not None:
                        is_in = said.low_s <= took_s <= said.high_s
                        cases[said.outcome.value].append((said.expected_s, took_s, is_in))
            engine.close()
            for path in Path(store).rglob("*"):
                if path.is_file() and path.name != "history.json":
                    path.unlink()
    return cases


if __name__ == "__main__":
    main()
