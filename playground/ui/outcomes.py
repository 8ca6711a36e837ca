"""The names of the four outcomes on the page, and their explanation for newcomers to XLA.

Knows words. Colours are the style sheet's, under the class `outcome-<value>`.
"""

import htpy as h

from playground.ui.quantities import count
from xla_backend import CacheOutcome
from xla_backend.interface.results import Finish

MEANING = {
    CacheOutcome.HIT: "Already compiled. This call only had to run.",
    CacheOutcome.MISS: "New shape: XLA compiled it for this call, and keeps it for the next.",
    CacheOutcome.DISK: "Restored from disk, where an earlier run had left it.",
    CacheOutcome.REUSED: "Served by a larger function that was already compiled.",
}
EXPECTATION = {
    CacheOutcome.HIT: "Already compiled",
    CacheOutcome.MISS: "New shape, must be compiled first",
    CacheOutcome.DISK: "On disk, will be restored",
    CacheOutcome.REUSED: "A larger compiled function fits",
}


def ended_by(finish: Finish, new_tokens: int) -> str:
    """The reason why a text ended: "stopped at 128 tokens"."""
    return {
        "eos": "the model ended it",
        "stop": "ended by a stop string",
        "length": f"stopped at {count(new_tokens, 'token')}",
        "stopped": "you stopped it",
    }[finish]


def no_badge(word: str) -> h.Element:
    """The badge before there is an outcome: "QUEUED"."""
    return h.span(".badge.outcome-none")[word]


def badge(outcome: CacheOutcome) -> h.Element:
    """The outcome as a coloured word."""
    word = outcome.value
    return h.span(f".badge.outcome-{word}", translate="no")[word.upper()]
