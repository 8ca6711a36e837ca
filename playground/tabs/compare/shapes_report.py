"""Buckets beside one shape for all lengths: what was compiled, and what each length took.

Knows how pairs of a `VariantRow` read: first that of a bucket, then that of the pool. Must not know
components, events or the engine.
"""

from collections.abc import Iterable, Sequence

import htpy as h

from playground.tabs.compare.difference import headline, how_many_times
from playground.tabs.compare.runs import VariantRow
from playground.ui import quantities
from playground.ui.markup import remarks, rendered, with_note
from playground.ui.outcomes import badge, no_badge
from playground.ui.prediction_line import ONE_SHAPE
from playground.ui.tables import sheet
from xla_backend import CacheOutcome
from xla_backend.interface.timing import Spread, spread

_HEADINGS = ("Prompt", "Its bucket", "First token, whole", "One shape", "First token, whole")


@rendered
def shapes_report(
    rows: Sequence[VariantRow], current: int | None = None, remark: str = "", is_over: bool = False
) -> h.Node:
    """The lengths, a line each.

    Args:
        rows: the bucket and the row of the pool of each length in turn.
        current: the row whose first call is under way.
        remark: what to say about the whole.
        is_over: whether nothing more is measured: only then the results are told.
    """
    buckets, pool = rows[::2], rows[1::2]
    lines = [
        (
            _prompt(bucket, row),
            *_cells(bucket, 2 * at == current),
            *_cells(row, 2 * at + 1 == current),
        )
        for at, (bucket, row) in enumerate(zip(buckets, pool, strict=True))
    ]
    sentence = ""
    if is_over:
        sentence = " ".join(filter(None, [_made("Buckets", buckets), _made("One shape", pool)]))
    more = " ".join(filter(None, [_difference(buckets, pool), remark])) if is_over else remark
    return h.section(class_=["variants", not is_over and "busy"], aria_label="Shapes compared")[
        headline(sentence, more),
        sheet(_HEADINGS, lines, "sheet shape-lengths"),
        remarks(
            "In a bucket a prompt is padded to the next size, which XLA compiles when it is first "
            f"asked for. As a row of the pool it is read in chunks: {ONE_SHAPE}. The badge is the "
            "first call’s, with what that took. The other times are medians of "
            f"{rows[0].most_calls} later calls, one length and method after another, then again, "
            "and below where they lie. No prompt is found in the cache."
        ),
    ]


def _prompt(bucket: VariantRow, row: VariantRow) -> str:
    known = bucket.first or row.first
    return quantities.count(known.prompt_tokens, "token") if known else "–"


def _cells(row: VariantRow, is_current: bool) -> tuple[h.Node, h.Node]:
    """Where its function came from, and the times of the later calls."""
    if row.problem:
        return h.span(".problem")[row.problem], "–"
    if row.first is None:
        return no_badge("NOW" if is_current else "WAITS"), "–"
    size = "" if row.variant.is_pooled else f"{row.first.key.padded_length} slots "
    took = quantities.seconds(row.first.timing.work_s)
    shape = size, badge(row.first.cache), with_note("", took)
    if row.spread is None:
        return shape, "–"
    whole = h.b[quantities.seconds(row.spread.median_s)]
    low, high = quantities.seconds(row.spread.low_s), quantities.seconds(row.spread.high_s)
    first = quantities.seconds_or_dash(row.ttft_s)
    return shape, [f"{first}, ", whole, with_note("", f"{low} to {high}")]


def _made(way: str, rows: Sequence[VariantRow]) -> str:
    """How often something was compiled, and for how long."""
    firsts = [row.first for row in rows if row.first is not None]
    if not firsts:
        return ""
    made = [first.timing for first in firsts if first.cache is CacheOutcome.MISS]
    if not made:
        return f"{way}: nothing was compiled."
    seconds = sum(timing.trace_s + timing.compile_s for timing in made)
    return (
        f"{way}: compiled for {len(made)} of {quantities.count(len(firsts), 'length')}, "
        f"{quantities.seconds(seconds)}."
    )


def _difference(buckets: Sequence[VariantRow], pool: Sequence[VariantRow]) -> str:
    """Which way was quicker in later calls, all lengths together."""
    one, other = _rounds(buckets), _rounds(pool)
    if one is None or other is None:
        return ""
    sentence = (
        f"Later, all lengths together: {quantities.seconds(one.median_s)} in buckets, "
        f"{quantities.seconds(other.median_s)} in one shape"
    )
    return (
        f"{sentence}." if how_many_times(one, other) else f"{sentence}: no difference within noise."
    )


def _rounds(rows: Iterable[VariantRow]) -> Spread | None:
    """How long each round of later calls took, of those that all lengths have."""
    return spread([sum(round_s) for round_s in zip(*(row.later_s for row in rows), strict=False)])
