"""Charts as HTML: bars on one scale, and the grid of a plot.

Knows scales, ticks and marks. Must not know what was measured. Drawn with elements and percentages
instead of SVG, so that text keeps its size on a narrow screen.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import htpy as h


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
