"""Charts as HTML: dots over an axis, a histogram, bars on one scale.

Knows scales, ticks and marks. Must not know what was measured. Drawn with elements and per cents
instead of SVG, so that words keep their size on a narrow screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from playground.ui.markup import escape
from xla_backend import CacheOutcome

_ORDER = (CacheOutcome.HIT, CacheOutcome.REUSED, CacheOutcome.DISK, CacheOutcome.MISS)


@dataclass(frozen=True)
class Dot:
    """One value of a run.

    Attributes:
        value: above 0.
        outcome: gives colour and shape.
        title: shown where a mouse points.
    """

    value: float
    outcome: CacheOutcome
    title: str


@dataclass(frozen=True)
class Bar:
    """One value drawn as a length; `style` is "hit", "miss" or "disk"."""

    name: str
    value: float
    style: str
    note: str = ""


def dots(
    series: Sequence[Dot],
    caption: str,
    summary: str,
    reads: Callable[[float], str],
    is_logarithmic: bool = False,
) -> str:
    """Values in their order, from left to right.

    Args:
        series: at least one.
        caption: HTML.
        summary: what a reader who does not see the picture is told.
        reads: a value as it is written at the axis.
        is_logarithmic: whether each step of the axis is ten times the one below.
    """
    values = [dot.value for dot in series]
    ticks = decades(values) if is_logarithmic else steps(max(values))
    low, high = ticks[0], ticks[-1]

    def height(value: float) -> float:
        if is_logarithmic:
            return math.log(value / low) / math.log(high / low)
        return value / high

    grid = "".join(
        f'<span class="grid" style="bottom:{height(tick):.1%}"><b>{reads(tick)}</b></span>'
        for tick in ticks
    )
    marks = "".join(
        f'<i class="mark mark-{dot.outcome.value}" title="{escape(dot.title)}" '
        f'style="left:{(place + 0.5) / len(series):.2%};bottom:{height(dot.value):.2%}"></i>'
        for place, dot in enumerate(series)
    )
    there = {dot.outcome for dot in series}
    legend = "".join(
        f'<li><i class="mark mark-{outcome.value}"></i><span>{outcome.value.upper()}</span></li>'
        for outcome in _ORDER
        if outcome in there
    )
    return (
        f'<figure class="chart"><figcaption>{caption}</figcaption>'
        f'<div class="plot" role="img" aria-label="{escape(summary)}">{grid}'
        f'<div class="marks">{marks}</div></div><ul class="legend">{legend}</ul></figure>'
    )


def histogram(
    values: Sequence[float],
    caption: str,
    reads: Callable[[float], str],
    lines: Sequence[tuple[str, float]] = (),
) -> str:
    """How many values lie where; columns are equally wide on a logarithmic scale.

    Args:
        values: at least one, above 0.
        caption: HTML.
        reads: a value as it is written.
        lines: names and values to mark, as ("p50", 0.05).
    """
    low, high = min(values) / 1.02, max(values) * 1.02
    counts = bins(values, low, high)
    most = max(counts)

    def place(value: float) -> float:
        return math.log(value / low) / math.log(high / low)

    columns = "".join(
        f'<span class="bin"><b>{count or ""}</b>'
        f'<i style="height:{count / most * 100:.1f}px"></i></span>'
        for count in counts
    )
    marked = "".join(
        f'<span class="marked" style="left:{place(value):.2%}"></span>' for _, value in lines
    )
    named = "".join(f"<li><b>{reads(value)}</b><span>{name}</span></li>" for name, value in lines)
    edges = [low * (high / low) ** (part / 2) for part in range(3)]
    summary = f"{len(values)} values from {reads(min(values))} to {reads(max(values))}"
    return (
        f'<figure class="chart"><figcaption>{caption}</figcaption>'
        f'<div class="columns-chart" role="img" aria-label="{escape(summary)}">{columns}{marked}'
        '</div><div class="columns-axis" aria-hidden="true">'
        + "".join(f"<span>{reads(edge)}</span>" for edge in edges)
        + f'</div><ul class="legend">{named}</ul></figure>'
    )


def bars(rows: Sequence[Bar], longest: float, reads: Callable[[float], str]) -> str:
    """Values as lengths; `longest` fills the whole width."""
    drawn = "".join(
        f'<div class="versus-row"><span>{row.name}</span>'
        f'<span class="versus-track" role="img" aria-label="{row.name}: {reads(row.value)}">'
        f'<i class="fill-{row.style}" style="width:{row.value / longest:.2%}"></i></span>'
        f"<b>{reads(row.value)} <small>{row.note}</small></b></div>"
        for row in rows
    )
    return f'<div class="versus">{drawn}</div>'


def decades(values: Sequence[float]) -> list[float]:
    """The powers of ten around positive values; two at least."""
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    return [10.0**power for power in range(low, high + 1)]


def steps(highest: float) -> list[float]:
    """Zero and equal steps of 1, 2 or 5 times a power of ten up to a positive value or above it."""
    rough = highest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def bins(values: Sequence[float], low: float, high: float) -> list[int]:
    """How many values lie in each of equal parts of the logarithmic scale from low to high."""
    number = max(1, min(16, round(2 * math.sqrt(len(values)))))
    counts = [0] * number
    for value in values:
        share = math.log(value / low) / math.log(high / low)
        counts[min(number - 1, int(share * number))] += 1
    return counts
