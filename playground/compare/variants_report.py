"""Variants side by side, as HTML: text, speed, and where each function came from.

Knows how a `VariantRow` reads. Must not know components, events or the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from playground.compare.difference import how_many_times, shared_scale, spread_bar, spread_note
from playground.compare.runs import VariantRow
from playground.ui import quantities
from playground.ui.markup import escape
from playground.ui.outcomes import badge, no_badge
from xla_backend.baselines.comparison import CACHED_CALLS, CALLS_BUDGET_S
from xla_backend.interface.timing import Spread

_FIGURES = ("First call", "Later calls", "TTFT", "Tokens/s")


def variants_report(
    rows: Sequence[VariantRow] = (),
    current: int | None = None,
    remark: str = "",
    is_over: bool = False,
) -> str:
    """The variants, in boxes that do not move while the texts grow.

    Args:
        rows: empty before the first comparison.
        current: the row whose first call is under way.
        remark: what to say about the whole.
        is_over: whether nothing more is measured: only then it is said who is fastest.
    """
    known = [row.spread for row in rows if row.spread]
    scale_s = shared_scale(known)
    fastest = min(known, key=lambda spread: spread.median_s, default=None)
    cards = "".join(
        _card(row, number == current, fastest if is_over else None, scale_s)
        for number, row in enumerate(rows)
    )
    is_busy = bool(rows) and not is_over
    said = _said(rows) if is_over else ""
    return (
        f'<section class="variants{" busy" if is_busy else ""}" aria-label="Variants compared">'
        f'<div class="claim"><p class="claim-said" role="status">{said or remark}</p>'
        f'<p class="claim-more">{remark if said else ""}</p></div>'
        f'<div class="variant-cards">{cards or _empty_cards()}</div>'
        f'<p class="remarks">First call is the call that made the function available, or found it: '
        f"the badge says which. Later calls are {CACHED_CALLS} more, in turn: one of each variant, "
        "then again; here is their median, and where the middle half of them lies. A variant "
        f"whose later calls have taken {CALLS_BUDGET_S:.0f} s makes no more. All variants use the "
        "engine that everybody here uses.</p></section>"
    )


def _said(rows: Sequence[VariantRow]) -> str:
    """The fastest and the slowest."""
    spreads = [(row.variant.label, row.spread) for row in rows if row.spread]
    ordered = sorted(spreads, key=lambda each: each[1].median_s)
    if len(ordered) < 2:
        return ""
    (fastest, best), (_, second), (slowest, worst) = ordered[0], ordered[1], ordered[-1]
    ratio = how_many_times(best, worst)
    if ratio is None:
        return "No difference within noise."
    times, shortest = quantities.times(ratio), quantities.seconds(best.median_s)
    fastest, slowest = escape(_short(fastest)), escape(_short(slowest))
    if how_many_times(best, second) is None:
        return f"{slowest}: {times} as long as {fastest}, which takes {shortest}."
    return f"{fastest} is fastest: {shortest}. {slowest}: {times} as long."


def _short(label: str, most: int = 48) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _card(row: VariantRow, is_current: bool, fastest: Spread | None, scale_s: float) -> str:
    mark = no_badge("NOW" if is_current else "WAITS")
    values = dict.fromkeys(_FIGURES, "–")
    if row.first is not None:
        mark = badge(row.first.cache)
        values["First call"] = quantities.seconds(row.first.timing.total_s)
    bar = scatter = ""
    if row.spread is not None:
        values["Later calls"] = quantities.seconds(row.spread.median_s)
        values["TTFT"] = quantities.seconds_or_dash(row.ttft_s)
        values["Tokens/s"] = quantities.rate(row.tokens_per_second)
        is_fastest = fastest is not None and how_many_times(fastest, row.spread) is None
        bar = spread_bar(row.spread, scale_s, " fastest" if is_fastest else "")
        scatter = spread_note(row.spread)
    figures = "".join(f"<div><dt>{name}</dt><dd>{values[name]}</dd></div>" for name in _FIGURES)
    text = (
        f'<p class="problem">{escape(row.problem)}</p>'
        if row.problem
        else f'<p dir="auto">{escape(row.text)}</p>'
    )
    return (
        f'<article class="variant{" now" if is_current else ""}"><div class="variant-head">'
        f"<h3>{escape(row.variant.label)}</h3>{mark}</div>"
        f'<dl class="variant-figures">{figures}</dl>'
        f'<div><div class="baseline-track" aria-hidden="true">{bar}</div>'
        f'<small class="baseline-what">{scatter or "&nbsp;"}</small></div>'
        f'<div class="variant-text" tabindex="0" role="region" '
        f'aria-label="Text of {escape(row.variant.label)}">{text}</div></article>'
    )


def _empty_cards() -> str:
    figures = "".join(f"<div><dt>{name}</dt><dd>–</dd></div>" for name in _FIGURES)
    card = (
        '<article class="variant"><div class="variant-head"><h3>&nbsp;</h3></div>'
        f'<dl class="variant-figures">{figures}</dl><div><div class="baseline-track"></div>'
        '<small class="baseline-what">&nbsp;</small></div>'
        '<div class="variant-text"></div></article>'
    )
    return card * 2
