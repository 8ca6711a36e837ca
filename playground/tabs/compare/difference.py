"""The spread of repeated calls, and whether two methods differ in time.

Knows when a difference is one, and how a spread is told and drawn. Must not know what was measured.
"""

from collections.abc import Collection

import htpy as h

from playground.ui import quantities
from playground.ui.charts import part
from xla_backend.interface.timing import MIN_FOR_QUARTILES, Spread

NOISE = 1.05
"""Medians that are closer are no difference, whatever their spreads: fresh processes that run the
very same code differ by as much."""
NOISE_OF_FEW = 2.0
"""Likewise where there are less than `FEW` calls, of which nobody can say how they scatter."""
FEW = 3


def how_many_times(one: Spread, other: Spread) -> float | None:
    """The ratio of two medians as shown; None if they do not differ.

    They differ if their spreads do not overlap.
    """
    ratio = quantities.as_shown(other.median_s) / quantities.as_shown(one.median_s)
    noise = NOISE if min(one.n, other.n) >= FEW else NOISE_OF_FEW
    return None if one.overlaps(other) or 1 / noise < ratio < noise else ratio


def spread_note(spread: Spread) -> str:
    """How many calls there were, and where the middle half of them lies, of few calls all."""
    which = "half" if spread.n >= MIN_FOR_QUARTILES else "all"
    low, high = quantities.seconds(spread.low_s), quantities.seconds(spread.high_s)
    return f"{quantities.count(spread.n, 'call')}, {which} within {low} to {high}"


def shared_scale(spreads: Collection[Spread]) -> float:
    """What the bars of several are drawn against, in seconds; a single long call may exceed it."""
    longest_s = max((spread.median_s for spread in spreads), default=1.0)
    return min(1.25 * longest_s, max((spread.high_s for spread in spreads), default=1.0))


def spread_bar(spread: Spread, scale_s: float, style: str = "") -> h.Node:
    """The median, and over its end a line as long as the spread."""
    start, width = spread.low_s / scale_s, (spread.high_s - spread.low_s) / scale_s
    return (
        part(f"phase-decode{style}", spread.median_s / scale_s),
        h.s(style=f"inset-inline-start:{start:.2%};width:{width:.2%}"),
    )


def headline(sentence: str, remark: str) -> h.Element:
    """The head of a report: the result in large letters, or, until there is one, a remark."""
    return h.div(".claim")[
        h.p(".claim-said", role="status")[sentence or remark],
        h.p(".claim-more")[sentence and remark],
    ]
