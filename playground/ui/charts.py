"""Charts as HTML: dots over an axis, a histogram, bars on one scale.

Knows scales, ticks and marks. Must not know what was measured. Drawn with elements and percentages
instead of SVG, so that text keeps its size on a narrow screen.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import htpy as h

from xla_backend import CacheOutcome

_ORDER = (CacheOutcome.HIT, CacheOutcome.REUSED, CacheOutcome.DISK, CacheOutcome.MISS)


@dataclass(frozen=True)
class Dot:
    """One value of a run."""

    value: float  # above 0
    outcome: CacheOutcome  # gives colour and shape
    title: str  # the tooltip


@dataclass(frozen=True)
class Bar:
    """One value drawn as a length; `style` is "hit", "miss" or "disk"."""

    name: str
    value: float
    style: str
    note: str = ""


def part(style: str, share: float) -> h.Element:
    """A part of a bar: its class, and its share of the width."""
    return h.i(class_=style, style=f"width:{share:.2%}")


def legend(entries: Iterable[Sequence[str]], classes: str = "") -> h.Element:
    """The legend: the class of each mark, its name and its value, if any."""
    return h.ul(class_=["legend", classes])[
        (
            h.li[h.i(class_=style), h.span[name], [h.b[each] for each in value]]
            for style, name, *value in entries
        )
    ]


def bar_row(name: str, spoken: str, parts: h.Node, value: h.Node) -> h.Element:
    """A bar with its name and its value; `told` is the value without HTML."""
    return h.div(".versus-row")[
        h.span[name],
        h.span(".versus-track", role="img", aria_label=f"{name}: {spoken}")[parts],
        h.b[value],
    ]


def grid(lines: Iterable[tuple[float, str]]) -> h.Node:
    """The grid lines of a plot: the height of each, 0 to 1, and its value."""
    return [h.span(".grid", style=f"bottom:{height:.1%}")[h.b[value]] for height, value in lines]


def dots(
    series: Sequence[Dot],
    caption: str,
    summary: str,
    reads: Callable[[float], str],
    is_logarithmic: bool = False,
) -> h.Element:
    """Values in their order, from left to right.

    Args:
        series: at least one.
        caption: what is shown.
        summary: for screen readers.
        reads: formats a value for the axis.
        is_logarithmic: whether each step of the axis is ten times the one below.
    """
    values = [dot.value for dot in series]
    ticks = decades(values) if is_logarithmic else steps(max(values))
    low, high = ticks[0], ticks[-1]

    def height(value: float) -> float:
        if is_logarithmic:
            return math.log(value / low) / math.log(high / low)
        return value / high

    marks = [
        h.i(
            f".mark.mark-{dot.outcome.value}",
            title=dot.title,
            style=f"left:{(place + 0.5) / len(series):.2%};bottom:{height(dot.value):.2%}",
        )
        for place, dot in enumerate(series)
    ]
    there = {dot.outcome for dot in series}
    return h.figure(".chart")[
        h.figcaption[caption],
        h.div(".plot", role="img", aria_label=summary)[
            grid((height(tick), reads(tick)) for tick in ticks), h.div(".marks")[marks]
        ],
        legend((f"mark mark-{o.value}", o.value.upper()) for o in _ORDER if o in there),
    ]


def histogram(
    values: Sequence[float],
    caption: str,
    reads: Callable[[float], str],
    lines: Sequence[tuple[str, float]] = (),
) -> h.Element:
    """A histogram; columns are equally wide on a logarithmic scale.

    Args:
        values: at least one, above 0.
        caption: what is shown.
        reads: formats a value.
        lines: names and values to mark, as ("p50", 0.05).
    """
    low, high = min(values) / 1.02, max(values) * 1.02
    counts = bins(values, low, high)
    columns = [
        h.span(".bin")[h.b[count or ""], h.i(style=f"height:{count / max(counts) * 100:.1f}px")]
        for count in counts
    ]
    marked = [
        h.span(".marked", style=f"left:{math.log(value / low) / math.log(high / low):.2%}")
        for _, value in lines
    ]
    edges = [low * (high / low) ** (part / 2) for part in range(3)]
    summary = f"{len(values)} values from {reads(min(values))} to {reads(max(values))}"
    return h.figure(".chart")[
        h.figcaption[caption],
        h.div(".columns-chart", role="img", aria_label=summary)[columns, marked],
        h.div(".columns-axis", aria_hidden="true")[(h.span[reads(edge)] for edge in edges)],
        h.ul(".legend")[(h.li[h.b[reads(value)], h.span[name]] for name, value in lines)],
    ]


def bars(rows: Sequence[Bar], longest: float, reads: Callable[[float], str]) -> h.Element:
    """Values as lengths; `longest` fills the whole width."""
    return h.div(".versus")[
        (
            bar_row(
                row.name,
                reads(row.value),
                part(f"fill-{row.style}", row.value / longest),
                [f"{reads(row.value)} ", h.small[row.note]],
            )
            for row in rows
        )
    ]


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
