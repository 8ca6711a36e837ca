"""What the four outcomes are called on the page, and what they mean to somebody new to XLA.

Knows words. Colours are the style sheet's, under the class `outcome-<value>`.
"""

from __future__ import annotations

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


def no_badge(word: str) -> str:
    """What stands in a badge's place before there is an outcome, in HTML: "WAITS"."""
    return f'<span class="badge outcome-none">{word}</span>'


def badge(outcome: CacheOutcome) -> str:
    """The outcome as a coloured word, in HTML."""
    word = outcome.value
    return f'<span class="badge outcome-{word}" translate="no">{word.upper()}</span>'
