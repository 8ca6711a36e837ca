"""Requests that are answered in a process of their own, for tests of what processes leave behind.

Knows how such a process is started and what it tells. Must not know what the tests look for. As a
program (`python -m tests.xla_backend.engine.new_process JOB`) it is that process.
"""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PADDED_LENGTHS, MAX_NEW_TOKENS = (8, 16), (4, 8)
"""The bucket rules of these processes: few and small, so that compiling is quick."""

SHORT, LONG = "The owl", "Once upon a time there was"
"""Prompts of up to 8, and of 9 to 16 tokens."""

Request = tuple[str, dict[str, Any]]
"""Prompt and options; with a "cache_salt", of a row in the pool."""


@dataclass(frozen=True)
class Answer:
    """What became of one request; `first_call` is the outcome and the moment of its key's."""

    cache: str
    key: tuple[int, ...]
    tokens: tuple[int, ...]
    first_call: tuple[str, float]


@dataclass(frozen=True)
class Told:
    """What a process tells in the end."""

    answers: tuple[Answer, ...]  # one a request
    left: tuple[str, ...]  # names of the files in the folder that XLA wrote to
    log: str  # what this package logged, warnings and worse

    @property
    def outcomes(self) -> list[str]:
        """Where each request's functions came from."""
        return [answer.cache for answer in self.answers]

    @property
    def tokens(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """Key -> what was generated."""
        return {answer.key: answer.tokens for answer in self.answers}


def begin(model: Path, store: Path, requests: Sequence[Request]) -> subprocess.Popen[str]:
    """Starts a process that answers requests; several may run at once."""
    job = json.dumps({"model": str(model), "store": str(store), "requests": list(requests)})
    return subprocess.Popen(
        [sys.executable, "-m", __name__, job],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> Told:
    """Waits for what it tells."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    reported = json.loads(out.splitlines()[-1])
    return Told(
        answers=tuple(
            Answer(cache, tuple(key), tuple(tokens), tuple(first))
            for cache, key, tokens, first in reported["answers"]
        ),
        left=tuple(reported["left"]),
        log=reported["log"],
    )


def answer(model: Path, store: Path, requests: Sequence[Request]) -> Told:
    """Starts a process and waits for it."""
    return finish(begin(model, store, requests))


def main() -> None:
    """Answers the requests of a job, each by its exact key or in the pool."""
    job = json.loads(sys.argv[1])
    log = io.StringIO()
    logging.getLogger("xla_backend").addHandler(logging.StreamHandler(log))
    from xla_backend import Backend, BucketRules, GenerationOptions
    from xla_backend.compilation import xla_folder

    backend = Backend(rules=BucketRules(PADDED_LENGTHS, MAX_NEW_TOKENS), store=job["store"])
    answers = []
    for prompt, options in job["requests"]:
        salt = options.pop("cache_salt", "")
        options = GenerationOptions(**options, exact_key=not salt)
        result = backend.generate(job["model"], prompt, options, cache_salt=salt)
        key = list(result.key.to_dict().values())
        first = (result.first_call.outcome.value, result.first_call.made_at)
        answers.append((result.cache.value, key, [token.id for token in result.tokens], first))
    backend.close()
    left = [path.name for path in xla_folder._folder.iterdir()]
    print(json.dumps({"answers": answers, "left": left, "log": log.getvalue()}))


if __name__ == "__main__":
    main()
