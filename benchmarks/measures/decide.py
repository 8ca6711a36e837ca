"""Yes/no questions about a text of some 300 tokens: one, and ten in one request.

Each request has a new salt, so that all of it is read; the last row repeats it with the text
cached. The numbers of questions alternate; a row has the median of its times.
"""

from __future__ import annotations

import itertools
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.harness import Row, in_turn, ratio
from xla_backend import Backend
from xla_backend.checkpoints.models import PACKAGED_MODEL
from xla_backend.interface.decisions import Decisions

OPTIONS = {"model": PACKAGED_MODEL, "rounds": 9}
TEXT = "The old man walked to the sea. " * 35
QUESTIONS = (
    "Is the man old?",
    "Is there a dog?",
    "Does he walk?",
    "Is it about the sea?",
    "Is he angry?",
    "Does he swim?",
    "Is it a letter?",
    "Is a town named?",
    "Is there a woman?",
    "Is he alone?",
)


def measure(options: Namespace) -> Iterator[Row]:
    """A row for one question, for ten, and for ten about a text that is cached."""
    backend, salts = Backend(), itertools.count()

    def ask(count: int, salt: str = "") -> Decisions:
        questions = {each: {"type": "yes_no", "instructions": each} for each in QUESTIONS[:count]}
        salt = salt or str(next(salts))
        return backend.decide(options.model, TEXT, questions, cache_salt=salt)

    ways: dict[str, Callable[[], Decisions]] = {
        "one question": partial(ask, 1),
        "ten questions": partial(ask, 10),
        "ten questions, text cached": partial(ask, 10, "cached"),
    }
    in_turn(ways, 2)
    found = in_turn(ways, options.rounds)
    backend.close()
    times = {way: [each.timing.total_s for each in results] for way, results in found.items()}
    for way, results in found.items():
        yield {
            "asked": way,
            "tokens": results[-1].prompt_tokens,
            "cached": results[-1].cached_tokens,
            "ms": 1000 * statistics.median(times[way]),
            "over one": ratio(times[way], times["one question"]),
        }
