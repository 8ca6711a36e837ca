"""Variants side by side, as HTML: text, speed, and where each function came from.

Knows how a `VariantRow` reads. Must not know components, events or the engine.
"""

from collections.abc import Sequence

import htpy as h

from playground.tabs.compare import difference
from playground.tabs.compare.runs import VariantRow
from playground.ui import quantities
from playground.ui.markup import remarks, rendered
from playground.ui.outcomes import badge, no_badge
from playground.ui.report_parts import figures
from xla_backend.baselines.comparison import CACHED_CALLS, CALLS_BUDGET_S
from xla_backend.interface.timing import Spread

_FIGURES = ("First call", "Later calls", "TTFT", "Tokens/s")


@rendered
def variants_report(
    rows: Sequence[VariantRow] = (),
    current: int | None = None,
    remark: str = "",
    is_over: bool = False,
) -> h.Node:
    """The variants, in boxes that do not move while the texts grow.

    Args:
        rows: empty before the first comparison.
        current: the row whose first call is under way.
        remark: what to say about the whole.
        is_over: whether nothing more is measured: only then it is said who is fastest.
    """
    known = [row.spread for row in rows if row.spread]
    scale_s = difference.shared_scale(known)
    fastest = min(known, key=lambda spread: spread.median_s, default=None)
    cards = [
        _card(row, number == current, fastest if is_over else None, scale_s)
        for number, row in enumerate(rows)
    ]
    is_busy = bool(rows) and not is_over
    return h.section(class_=["variants", is_busy and "busy"], aria_label="Variants compared")[
        difference.headline(_sentence(rows) if is_over else "", remark),
        h.div(".variant-cards")[cards or [_empty_card()] * 2],
        remarks(
            "First call is the call that made the function available, or found it: the badge says "
            f"which. Later calls are {CACHED_CALLS} more, in turn: one of each variant, then "
            "again; here is their median, and where the middle half of them lies. A variant whose "
            f"later calls have taken {CALLS_BUDGET_S:.0f} s makes no more. All variants use the "
            "engine that everybody here uses."
        ),
    ]


def _sentence(rows: Sequence[VariantRow]) -> str:
    """The fastest and the slowest."""
    spreads = [(row.variant.label, row.spread) for row in rows if row.spread]
    ordered = sorted(spreads, key=lambda each: each[1].median_s)
    if len(ordered) < 2:
        return ""
    (fastest, best), (_, second), (slowest, worst) = ordered[0], ordered[1], ordered[-1]
    ratio = difference.how_many_times(best, worst)
    if ratio is None:
        return "No difference within noise."
    times, shortest = quantities.times(ratio), quantities.seconds(best.median_s)
    fastest, slowest = _short(fastest), _short(slowest)
    if difference.how_many_times(best, second) is None:
        return f"{slowest}: {times} as long as {fastest}, which takes {shortest}."
    return f"{fastest} is fastest: {shortest}. {slowest}: {times} as long."


def _short(label: str, most: int = 48) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _card(row: VariantRow, is_current: bool, fastest: Spread | None, scale_s: float) -> h.Element:
    mark = no_badge("NOW" if is_current else "WAITS")
    values = dict.fromkeys(_FIGURES, "–")
    if row.first is not None:
        mark = badge(row.first.cache)
        # Without the queue: elsewhere a first call has none, and one shape has one number.
        values["First call"] = quantities.seconds(row.first.timing.work_s)
    bar: h.Node = None
    scatter = ""
    if row.spread is not None:
        values["Later calls"] = quantities.seconds(row.spread.median_s)
        values["TTFT"] = quantities.seconds_or_dash(row.ttft_s)
        values["Tokens/s"] = quantities.rate(row.tokens_per_second)
        is_fastest = fastest is not None and difference.how_many_times(fastest, row.spread) is None
        bar = difference.spread_bar(row.spread, scale_s, " fastest" if is_fastest else "")
        scatter = difference.spread_note(row.spread)
    text = h.p(".problem")[row.problem] if row.problem else h.p(dir="auto")[row.text]
    label = row.variant.label
    return h.article(class_=["variant", is_current and "now"])[
        h.div(".variant-head")[h.h3[label], mark],
        figures(values.items(), "variant-figures"),
        _track(bar, scatter),
        h.div(".variant-text", tabindex="0", role="region", aria_label=f"Text of {label}")[text],
    ]


def _track(bar: h.Node, scatter: str) -> h.Element:
    return h.div[
        h.div(".baseline-track", aria_hidden="true")[bar],
        h.small(".baseline-what")[scatter or "\N{NO-BREAK SPACE}"],
    ]


def _empty_card() -> h.Element:
    return h.article(".variant")[
        h.div(".variant-head")[h.h3["\N{NO-BREAK SPACE}"]],
        figures(((name, "–") for name in _FIGURES), "variant-figures"),
        _track(None, ""),
        h.div(".variant-text"),
    ]
