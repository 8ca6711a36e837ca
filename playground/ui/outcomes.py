"""What the four outcomes are called on the page, and what they mean to somebody new to XLA.

Knows words. Colours are the style sheet's, under the class `outcome-<value>`.
"""

from __future__ import annotations

import htpy as h

from xla_backend import CacheOutcome

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


def no_badge(word: str) -> h.Element:
    """What stands in a badge's place before there is an outcome: "WAITS"."""
    return h.span(".badge.outcome-none")[word]


def badge(outcome: CacheOutcome) -> h.Element:
    """The outcome as a coloured word."""
    word = outcome.value
    return h.span(f".badge.outcome-{word}", translate="no")[word.upper()]
