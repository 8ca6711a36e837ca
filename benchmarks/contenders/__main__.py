"""A contender's process: loads a checkpoint, then answers questions, one JSON line each.

Knows the protocol and takes the time, in the same way for everyone. Must not know any contender:
each has a module beside this one, with a class `Model`:

* `Model(folder, work, variant)` loads a checkpoint;
* `generate(request)` returns the new tokens of the best text, all computed when it returns;
* `versions()` names the libraries that count.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.contenders import THREADS, Request


def main() -> None:
    """Serves until standard input ends."""
    module, variant, folder, work = sys.argv[1:]
    # Some libraries ask the machine, not their settings, how many threads they may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    # Libraries print to standard output, too: that goes to standard error, the answers do not.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(values: dict[str, Any]) -> None:
        answers.write(json.dumps({"answer": values}) + "\n")
        answers.flush()

    try:
        model = importlib.import_module(f"benchmarks.contenders.{module}").Model(
            Path(folder), Path(work), variant
        )
        answer(model.versions())
    except Exception as error:
        traceback.print_exc()
        answer({"error": _sentence(error)})
        return
    for line in sys.stdin:
        try:
            answer(_answer(model, json.loads(line)))
        except Exception as error:
            answer({"error": _sentence(error)})


def _answer(model: Any, question: dict[str, Any]) -> dict[str, Any]:
    if question["do"] == "memory":
        return {"bytes": resident_bytes()}
    request = Request(**question["request"])
    if question["do"] == "margins":
        return {"margins": model.margins(request)}
    start = time.perf_counter()
    tokens = model.generate(request)
    seconds = time.perf_counter() - start
    if question["do"] == "prepare":
        return {"seconds": seconds}
    return {"seconds": seconds, "tokens": [int(token) for token in tokens]} | getattr(
        model, "details", {}
    )


def resident_bytes() -> int:
    """Bytes that this process holds in memory, from Linux's own accounts."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:600]}"


if __name__ == "__main__":
    main()
