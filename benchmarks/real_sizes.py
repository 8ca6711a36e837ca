"""Modern small models at their real sizes, with random weights: what a token takes.

    python -m benchmarks.real_sizes [--sizes NAME,NAME] [--rounds 5]

For each size: the first call, a prompt of 400 tokens, and a token when greedy, sampled and with a
repetition penalty, called in turn; beside them the time that reading the weights takes. The
checkpoints are built in a temporary folder, without a network.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import machine, terminal
from benchmarks.contenders import Request, memory_reader
from benchmarks.modern_checkpoints import SIZES, real_size
from xla_backend import Backend, GenerationOptions

PROMPT = "x" * 400  # of the byte-level tokenizer: a token each
NEW_TOKENS = 32
WAYS = {
    "greedy": GenerationOptions(max_new_tokens=NEW_TOKENS),
    "sampled": GenerationOptions(
        max_new_tokens=NEW_TOKENS, temperature=0.8, top_k=50, top_p=0.95, seed=1
    ),
    "penalty": GenerationOptions(max_new_tokens=NEW_TOKENS, repetition_penalty=1.2),
}


def measure(name: str, folder: Path, rounds: int) -> str:
    """One line of the table."""
    model = str(real_size(name, folder))
    reader = memory_reader.Model(Path(model), folder, "")
    backend = Backend(store="off")
    try:
        first = backend.generate(model, PROMPT, WAYS["greedy"])
        tokens: dict[str, list[float]] = {way: [] for way in WAYS}
        prefill: list[float] = []
        reading: list[float] = []
        for _ in range(rounds):
            for way, options in WAYS.items():
                result = backend.generate(model, PROMPT, options)
                assert result.new_tokens == NEW_TOKENS and result.tpot_s is not None
                tokens[way].append(result.tpot_s)
                prefill.append(result.timing.prefill_s)
            begin = time.perf_counter()
            reader.generate(Request(prompt="", ids=(0,), new_tokens=8))
            reading.append((time.perf_counter() - begin) / 8)
    finally:
        backend.close()
    greedy = statistics.median(tokens["greedy"])

    def over_greedy(way: str) -> float:
        return statistics.median(
            mine / own for mine, own in zip(tokens[way], tokens["greedy"], strict=True)
        )

    over_reading = statistics.median(
        mine / own for mine, own in zip(tokens["greedy"], reading, strict=True)
    )
    return (
        f"| {name} | {first.timing.total_s:.1f} s | {statistics.median(prefill) * 1000:.0f} ms "
        f"| {greedy * 1000:.1f} ms | {over_reading:.2f} | {over_greedy('sampled'):.2f} "
        f"| {over_greedy('penalty'):.2f} | {reader.details['bytes'] / 2**30:.2f} |"
    )


def main() -> None:
    arguments = terminal.options(__doc__, sizes=",".join(SIZES), rounds=5)
    print(machine.description())
    print(
        "| size | first call | prompt of 400 | a token, greedy | over reading the weights "
        "| sampled over greedy | penalty over greedy | weights, GiB |"
    )
    print("| --- " * 8 + "|")
    for name in arguments.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(measure(name, Path(folder), arguments.rounds), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
