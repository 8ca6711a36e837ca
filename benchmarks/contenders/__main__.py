"""A contender's process: loads a checkpoint, then answers requests, one JSON line each.

Knows the protocol and measures the time, in the same way for all. Must not know any contender:
each has a module in this folder with a class `Model`:

* `Model(folder, work, weights)` loads a checkpoint;
* `generate(request)` computes and returns the new tokens of the best text;
* `likely(ids)`, for some contenders, returns `contenders.Likely` for these tokens;
* `libraries` names the packages whose versions are reported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.contenders import THREADS, Request


def main() -> None:
    """Answers until standard input ends."""
    module, weights, folder, work = sys.argv[1:]
    # Some libraries take their number of threads from the machine, not from settings.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    # Libraries print to standard output, too. That goes to standard error now, not into answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(values: dict[str, Any]) -> None:
        answers.write(json.dumps({"answer": values}) + "\n")
        answers.flush()

    try:
        contender = importlib.import_module(f"benchmarks.contenders.{module}")
        model = contender.Model(Path(folder), Path(work), weights)
        answer({name: importlib.metadata.version(name) for name in model.libraries})
    except Exception as error:
        traceback.print_exc()
        answer({"error": _sentence(error)})
        return
    for line in sys.stdin:
        try:
            values = json.loads(line)
            if "likely" in values:
                answer({"likely": model.likely(tuple(values["likely"]))})
                continue
            request = Request(**values)
            start = time.perf_counter()
            tokens = model.generate(request)
            seconds = time.perf_counter() - start
            answer({"seconds": seconds, "tokens": [int(token) for token in tokens]})
        except Exception as error:
            answer({"error": _sentence(error)})


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:600]}"


if __name__ == "__main__":
    main()
