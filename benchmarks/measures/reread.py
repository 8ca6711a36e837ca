"""What a prefix that was not reused costs: as `timings.cache_miss` names it, and as it is.

Conversations are read with a change as agents make them, and once more: the second time all is
cached, and what its prefill took less is what reuse saves. Each has a salt of its own.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Iterator
from functools import partial

from benchmarks.harness import Row, in_turn, ratio
from xla_backend import Backend, GenerationOptions, Message, Prompt
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {"rounds": 5}
RULES = " ".join(
    f"Rule {n}: answer question {n} in short words, and look for the red kite near mill {7 * n}."
    for n in range(14)
)
TURN = "Turn {}: what shall we do in the old mill when the rain begins, and who comes with us?"
TALK = tuple(
    Message("user" if turn % 2 else "assistant", TURN.format(turn)) for turn in range(1, 8)
)


def measure(options: Namespace) -> Iterator[Row]:
    """A row for each kind of change."""
    backend, salts = Backend(store="off"), iter(range(10**6))
    asks = {name: partial(_costs, backend, salts, *pair) for name, pair in changes().items()}
    try:
        in_turn(asks, 1)  # what has to be compiled is
        for name, found in in_turn(asks, options.rounds).items():
            named, saved = zip(*found, strict=True)
            yield {
                "change": name,
                "named, ms": 1000 * statistics.median(named),
                "saved, ms": 1000 * statistics.median(saved),
                "ratio": ratio(named, saved),
            }
    finally:
        backend.close()


def changes() -> dict[str, tuple[Prompt, Prompt]]:
    """What was sent before, and what is sent now."""

    def told(system: str, talk: tuple[Message, ...] = TALK) -> tuple[Message, ...]:
        return (Message("system", system), *talk)

    def edited(place: int, content: str) -> tuple[Message, ...]:
        return (*TALK[:place], TALK[place]._replace(content=content), *TALK[place + 1 :])

    owl = (Message("user", "Once there was an old grey owl."), Message("assistant", "Yes."))
    return {
        "date first": (told(f"It is 2026-11-27. {RULES}"), told(f"It is 2026-11-28. {RULES}")),
        "time last": (told(f"{RULES} It is 12:03:59."), told(f"{RULES} It is 12:04:07.")),
        "edited question": (told(RULES), told(RULES, edited(0, "Good day, what shall we eat?"))),
        "edited answer": (told(RULES), told(RULES, edited(1, "We shall find the blue café."))),
        "trailing space": (told(RULES), told(f"{RULES} ")),
        "turns left out": (told(RULES), told(RULES, TALK[2:])),
        "summary inserted": (told(RULES), told(RULES, owl + TALK)),
        "text": (f"Once upon a time. {RULES}", f"Once upon a kite. {RULES}"),
    }


def _costs(backend: Backend, salts: Iterator[int], old: Prompt, new: Prompt) -> tuple[float, float]:
    """The seconds that are named, and those that the second time saves."""
    salt = f"reread {next(salts)}"
    _, first, second = (
        backend.generate(
            PACKAGED_MODEL, prompt, GenerationOptions(max_new_tokens=1), cache_salt=salt
        )
        for prompt in (old, new, new)
    )
    assert first.prefix_miss is not None
    return first.prefix_miss.seconds, first.timing.prefill_s - second.timing.prefill_s
