"""The stored walkthrough, which is shown before one is run.

`python -m playground.walkthrough.stored` measures it anew on this machine, in about a minute. Knows
the file beside it. Must not know components or HTML.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from playground.context import machine
from playground.walkthrough.runs import Step, Walkthrough, requests_for
from xla_backend import CacheKey, CacheOutcome, GenerationOptions, GenerationResult
from xla_backend.checkpoints.models import DEFAULT_MODEL, Registry
from xla_backend.interface.results import FirstCall
from xla_backend.interface.timing import Timing

FILE = Path(__file__).with_name("stored.json")
PROMPT = "Once upon a time there was a little fox"
OPTIONS = GenerationOptions(max_new_tokens=96)


@dataclass(frozen=True)
class StoredWalkthrough:
    """A walkthrough, and where it was measured."""

    run: Walkthrough
    machine: str  # the processor, its cores and the version of TensorFlow
    day: str  # as `YYYY-MM-DD`
    took_s: float  # seconds from the click to its end


def stored() -> StoredWalkthrough:
    """The contents of the file."""
    saved = json.loads(FILE.read_text(encoding="utf-8"))
    run = _new()
    run.results = {
        Step[name]: [_result(run, call) for call in calls] for name, calls in saved["calls"].items()
    }
    return StoredWalkthrough(run, saved["machine"], saved["day"], saved["took_s"])


def measure() -> None:
    """Runs it and writes the file."""
    started, run = perf_counter(), _new()
    for _ in run.walk():
        pass
    saved = {
        "machine": machine.summary(),
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "took_s": round(perf_counter() - started, 1),
        "calls": {
            step.name: [
                {
                    "cache": call.cache.value,
                    "key": call.key.to_dict(),
                    "new_tokens": call.options.max_new_tokens,
                    "timing": {name: round(s, 5) for name, s in call.timing.to_dict().items()},
                }
                for call in calls
            ]
            for step, calls in run.results.items()
        },
    }
    FILE.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


def _new() -> Walkthrough:
    first, smaller = requests_for(OPTIONS)
    registry = Registry([], allow_folders=False)
    return Walkthrough(DEFAULT_MODEL, PROMPT, first, smaller, smaller is OPTIONS, registry)


def _result(run: Walkthrough, call: dict[str, Any]) -> GenerationResult:
    key, cache = CacheKey(**call["key"]), CacheOutcome(call["cache"])
    timing = Timing(**call["timing"])
    return GenerationResult(
        model=run.model,
        text="",
        tokens=(),
        prompt_tokens=0,
        key=key,
        requested_key=key,
        cache=cache,
        finish="length",
        timing=timing,
        first_call=FirstCall(cache, timing.trace_s, timing.compile_s, timing.run_s),
        options=run.options.replace(max_new_tokens=call["new_tokens"]),
    )


if __name__ == "__main__":
    measure()
