"""Variants side by side, as HTML: text, speed, and where each function came from.

Knows how a `VariantRow` reads. Must not know components, events or the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from playground.compare.runs import REPEATS, VariantRow
from playground.ui import quantities
from playground.ui.markup import escape
from playground.ui.outcomes import badge

_FIGURES = ("First call", "Later calls", "TTFT", "Tokens/s")


def variants_report(
    rows: Sequence[VariantRow] = (), current: int | None = None, remark: str = ""
) -> str:
    """The variants, in boxes that do not move while the texts grow.

    Args:
        rows: empty before the first comparison.
        current: the row that is being measured.
        remark: what to say about the whole.
    """
    fastest_s = min((row.total_s for row in rows if row.is_done), default=0.0)
    slowest_s = max((row.total_s for row in rows if row.is_done), default=1.0)
    cards = "".join(
        _card(row, number == current, fastest_s, slowest_s) for number, row in enumerate(rows)
    )
    is_busy = current is not None
    return (
        f'<section class="variants{" busy" if is_busy else ""}" aria-label="Variants compared">'
        f'<div class="claim"><p class="claim-said" role="status">{_said(rows) or remark}</p>'
        f'<p class="claim-more">{remark if _said(rows) else ""}</p></div>'
        f'<div class="variant-cards">{cards or _empty_cards()}</div>'
        f'<p class="remarks">First call is the call that made the function available, or found it: '
        f"the badge says which. Later calls are the median of {REPEATS} more. All variants use the "
        "engine that everybody here uses, one after the other.</p></section>"
    )


def _said(rows: Sequence[VariantRow]) -> str:
    """The fastest and the slowest, once all are measured."""
    done = [row for row in rows if row.is_done]
    if len(done) < 2 or any(not row.is_done and not row.problem for row in rows):
        return ""
    ordered = sorted(done, key=lambda row: row.total_s)
    fastest, slowest = ordered[0], ordered[-1]
    ratio = slowest.total_s / fastest.total_s
    if ratio < 1.05:
        return "All are equally fast."
    return (
        f"{escape(_short(fastest.variant.label))} is fastest: {quantities.seconds(fastest.total_s)}"
        f". {escape(_short(slowest.variant.label))}: {quantities.times(ratio)} as long."
    )


def _short(label: str, most: int = 48) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _card(row: VariantRow, is_current: bool, fastest_s: float, slowest_s: float) -> str:
    if row.first is not None:
        mark = badge(row.first.cache)
    else:
        mark = f'<span class="badge outcome-none">{"NOW" if is_current else "WAITS"}</span>'
    values = dict.fromkeys(_FIGURES, "–")
    if row.first is not None:
        values["First call"] = quantities.seconds(row.first.timing.total_s)
    bar = ""
    if row.is_done:
        values["Later calls"] = quantities.seconds(row.total_s)
        values["TTFT"] = quantities.seconds_or_dash(row.ttft_s)
        values["Tokens/s"] = quantities.rate(row.tokens_per_second)
        is_fastest = " fastest" if row.total_s == fastest_s else ""
        bar = (
            f'<i class="phase-decode{is_fastest}" style="width:{row.total_s / slowest_s:.2%}"></i>'
        )
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
        f'<div class="baseline-track" aria-hidden="true">{bar}</div>'
        f'<div class="variant-text" tabindex="0" role="region" '
        f'aria-label="Text of {escape(row.variant.label)}">{text}</div></article>'
    )


def _empty_cards() -> str:
    figures = "".join(f"<div><dt>{name}</dt><dd>–</dd></div>" for name in _FIGURES)
    card = (
        '<article class="variant"><div class="variant-head"><h3>&nbsp;</h3></div>'
        f'<dl class="variant-figures">{figures}</dl><div class="baseline-track"></div>'
        '<div class="variant-text"></div></article>'
    )
    return card * 2
