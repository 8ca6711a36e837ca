"""Values of JSON that came from outside, from a browser or a file, checked one by one.

Knows kinds and bounds. Must not know what a value means. All raise TypeError or ValueError for what
is of another kind.
"""

from __future__ import annotations

import math

from playground.ui.markup import clean

LONGEST_S = 1e6
LATEST = 1e11
"""Seconds since 1970: some thousand years from now."""


def whole(value: object, low: int) -> int:
    """A whole number, from `low` on."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**53:
        raise ValueError("no whole number of that kind")
    return value


def real(value: object, high: float = LONGEST_S) -> float:
    """A number from 0; a duration in seconds where nothing else is said."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    if not (math.isfinite(value) and 0 <= value <= high):
        raise ValueError("no duration or rate")
    return value


def real_or_none(value: object, high: float = LONGEST_S) -> float | None:
    """The same, or nothing."""
    return None if value is None else real(value, high)


def text(value: object, most: int) -> str:
    """A text of so many characters at most, which can travel."""
    if not isinstance(value, str) or len(value) > most:
        raise ValueError("no text of that length")
    return clean(value)


def truth(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value
