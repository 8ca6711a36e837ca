"""Memory of the engine's process after one cache key, and after ten.

Knows the engine's process as a contender. Must not know how its memory is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contenders import ENGINE
from benchmarks.measures import Call, Measure
from benchmarks.runner import Runner, checkpoint
from benchmarks.weights import total_bytes

KEYS = [
    (prompt_tokens, num_beams, new_tokens)
    for num_beams in (1, 4)
    for prompt_tokens, new_tokens in ((16, 16), (16, 64), (64, 64), (128, 64), (256, 128))
]


def measure(what: Measure, runner: Runner, work: Path) -> dict[str, Any]:
    """Measures the weights alone, the process with one cache key, and with ten.

    Returns:
        "weights", "first_key", "all_keys" in bytes, and the number of "keys".
    """
    runner.clear({what.model})  # a process with other keys would be larger
    calls = [
        Call(ENGINE, what.model, new_tokens, prompt_tokens, num_beams)
        for prompt_tokens, num_beams, new_tokens in KEYS
    ]
    held = []
    for call in calls:
        runner.run(what, (call,), rounds=1)
        held.append(runner.memory(what.model))
    return {
        "weights": total_bytes(checkpoint(what.model, work)),
        "first_key": held[0],
        "all_keys": held[-1],
        "keys": len(KEYS),
    }
