"""Charts of the results: SVG without a library, in the reader's light or dark theme.

Knows the results file. Must not know how anything was measured.
"""

from __future__ import annotations

import statistics
from html import escape
from typing import Any

from benchmarks import results
from benchmarks.contenders import ENGINE, LIMIT
from benchmarks.measures import MEASURES, PUBLISHED

_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2937 }
.title { font-weight: 600; font-size: 15px } .small { font-size: 11px; fill: #6b7280 }
.own { fill: #4f46e5 } .other { fill: #b6bcc8 } .line { stroke: #4f46e5; fill: none }
.kind-1 { opacity: 0.65 } .kind-2 { opacity: 0.4 }
.limit { stroke: #b45309; stroke-dasharray: 4 3 } .axis { stroke: #d1d5db }
.own-name { font-weight: 600 }
@media (prefers-color-scheme: dark) {
  text { fill: #e5e7eb } .small { fill: #9ca3af } .own { fill: #818cf8 } .other { fill: #566074 }
  .line { stroke: #818cf8 } .limit { stroke: #fbbf24 } .axis { stroke: #4b5563 }
}
</style>"""

_TITLES_END = 212
"""The x coordinate at which the longest title of a group ends."""

_GROUPS = (
    ("greedy", "Greedy search"),
    ("beams", "4 beams"),
    ("context", "After a prompt of 448 tokens"),
)


def drawings(kept: dict[str, Any]) -> dict[str, str]:
    """File names and contents of all charts that have numbers."""
    drawn = {"benchmark-peers.svg": _peers(kept), "benchmark-growth.svg": _growth(kept)}
    return {name: drawing for name, drawing in drawn.items() if drawing}


def _peers(kept: dict[str, Any]) -> str:
    """A bar chart: milliseconds per token of each contender, shortest first."""
    groups = []
    for name, title in _GROUPS:
        entry = kept["entries"].get(f"{name}/{PUBLISHED}")
        if entry:
            times = {
                who: 1000 * statistics.median(results.sample(entry, who, "token"))
                for who in dict.fromkeys(row["contender"] for row in entry["calls"])
            }
            limit = times.pop(LIMIT, None)
            groups.append((title, limit, sorted(times.items(), key=lambda item: item[1])))
    if not groups:
        return ""
    left, width, height = 190, 470, 22
    scale = width / max(value for _, _, times in groups for _, value in times)
    parts, y = [], 30
    heading = f"GPT-2 124M, 2 threads, {kept['machine']['processor']}: ms a token"
    parts.append(f'<text class="title" x="12" y="{y}">{escape(heading)}</text>')
    for title, limit, times in groups:
        y += 34
        parts.append(f'<text x="12" y="{y}">{title}</text>')
        top = y + 8
        for who, value in times:
            y += height
            own = who == ENGINE
            parts.append(
                f'<text class="{"own-name" if own else "name"}" x="{left - 8}" y="{y + 5}"'
                f' text-anchor="end">{escape(who)}</text>'
            )
            parts.append(
                f'<rect class="{"own" if own else "other"}" x="{left}" y="{y - 8}" rx="2"'
                f' width="{value * scale:.1f}" height="16"/>'
                f'<text x="{left + value * scale + 6:.1f}" y="{y + 5}">{value:.1f}</text>'
            )
        if limit:
            x = left + limit * scale
            parts.append(
                f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{y + 12}"/>'
                # To the right of the line: the group's title is on its left.
                f'<text class="small" x="{max(x, _TITLES_END):.1f}" y="{top - 3}">'
                f"limit: reading the weights, {limit:.1f}</text>"
            )
    return svg(left + width + 60, y + 24, parts)


def _growth(kept: dict[str, Any]) -> str:
    """A panel per measure: milliseconds over what grows, a line for each kind of weights."""
    panels = []
    for measure in MEASURES:
        entry = kept["entries"].get(f"{measure.name}/{measure.model}")
        if measure.growth and entry:
            panels.append((measure.title, measure.growth, results.growth(entry)))
    if not panels:
        return ""
    parts = []
    for number, (title, axis, lines) in enumerate(panels):
        x0, y0 = 66 + 400 * (number % 2), 50 + 250 * (number // 2)
        parts += _panel(x0, y0, title, axis, lines)
    return svg(800, 250 * ((len(panels) + 1) // 2) + 20, parts)


def _panel(
    x0: int, y0: int, title: str, axis: str, lines: list[tuple[str, list[int], list[float]]]
) -> list[str]:
    width, height = 270, 160
    xs = lines[0][1]
    top = 1.08 * max(max(ys) for _, _, ys in lines)
    straightness = min(results.straightness(xs, ys) for _, xs, ys in lines)

    def right(x: float) -> float:
        return round(x0 + width * x / max(xs), 1)

    def down(y: float) -> float:
        return round(y0 + height * (1 - y / top), 1)

    parts = [
        f'<text class="title" x="{x0 - 46}" y="{y0 - 18}">{escape(title)}, ms</text>',
        f'<path class="axis" fill="none" d="M{x0} {y0}V{y0 + height}H{x0 + width}"/>',
        f'<text class="small" x="{x0 + width}" y="{y0 + height + 32}" text-anchor="end">'
        f"{escape(axis)}; straightness {straightness:.3f}</text>",
    ]
    lowest = 0.0
    from_the_top = sorted(enumerate(lines), key=lambda numbered: -numbered[1][2][-1])
    for number, (kind, xs_of_kind, ys) in from_the_top:
        line = " ".join(f"{right(x)},{down(y)}" for x, y in zip(xs_of_kind, ys, strict=True))
        parts.append(f'<polyline class="line kind-{number}" points="{line}"/>')
        parts += [
            f'<circle class="own kind-{number}" cx="{right(x)}" cy="{down(y)}" r="3"/>'
            for x, y in zip(xs_of_kind, ys, strict=True)
        ]
        if len(lines) > 1:
            lowest = max(lowest + 12, down(ys[-1]) + 4)
            end = right(xs_of_kind[-1]) + 7
            parts.append(f'<text class="small" x="{end}" y="{lowest:.1f}">{kind}</text>')
    last = -100.0
    for x in xs:
        if right(x) - last >= 24:
            parts.append(
                f'<text class="small" x="{right(x)}" y="{y0 + height + 16}" text-anchor="middle">'
                f"{x}</text>"
            )
            last = right(x)
    for share in (0.5, 1.0):
        value = share * top / 1.08
        parts.append(
            f'<text class="small" x="{x0 - 6}" y="{down(value) + 4}" text-anchor="end">'
            f"{1000 * value:.0f}</text>"
        )
    return parts


def svg(width: int, height: int, parts: list[str]) -> str:
    """An SVG of these elements, with the styles that all charts share."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" role="img">\n{_STYLE}\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
