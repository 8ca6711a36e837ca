"""Arrivals as HTML: a bar for each visitor over time, and the figures of both runs.

Knows how spans are drawn. Must not know components, events or the engine.
"""

from collections.abc import Sequence

import htpy as h

from playground.context.runs_together import Member
from playground.tabs.batch.runs import Batch
from playground.tabs.batch.summary import Summary
from playground.ui import quantities
from playground.ui.charts import legend
from playground.ui.markup import remarks
from playground.ui.report_parts import PHASE_NAMES, faster
from playground.ui.tables import sheet
from xla_backend.interface.timing import Span, merged

_FIGURES = (
    *("Requests", "Rows at once", "TTFT median", "TTFT largest"),
    *("TPOT median", "TPOT largest", "Tokens", "All done after", "Tokens/s in all"),
)
_NAMES = {"load": "Load", **PHASE_NAMES}
_FINEST = 1 / 800
"""Of the whole width: what is shorter cannot be seen and is drawn with what came before it."""
_MIN_ONCE_S = 0.05
"""Of loading and compiling: what is worth telling."""


def report(batches: Sequence[Batch]) -> h.Node:
    """The runs, at most one of each kind, on one scale of time, and their figures."""
    spans = [[visitor.spans() for visitor in batch.members] for batch in batches]
    starts = [min((row[0].started for row in rows if row), default=0.0) for rows in spans]
    scale_s = max(
        (
            _end(row[-1]) - start
            for rows, start in zip(spans, starts, strict=True)
            for row in rows
            if row
        ),
        default=1.0,
    )
    drawn = [[merged(row, scale_s * _FINEST) for row in rows] for rows in spans]
    charts = [
        _chart(batch, rows, start, scale_s)
        for batch, rows, start in zip(batches, drawn, starts, strict=True)
    ]
    seen = {span.name for rows in drawn for row in rows for span in row}
    return (
        _figures(batches),
        h.div(".crowds")[charts],
        legend((f"phase-{name}", label) for name, label in _NAMES.items() if name in seen),
    )


def _figures(batches: Sequence[Batch]) -> h.Node:
    known = [(batch, figures) for batch in batches if (figures := batch.summary())]
    if not known:
        return None
    sentence: list[h.Node] = []
    if len(known) == 2:
        (_, together), (_, alone) = known
        ratio = quantities.as_shown(alone.elapsed_s) / quantities.as_shown(together.elapsed_s)
        than = (
            f"one at a time: {quantities.seconds(alone.elapsed_s)} until the last text was there, "
            f"instead of {quantities.seconds(together.elapsed_s)}, where the last visitor came "
            f"after {quantities.seconds(together.arriving_s)}"
        )
        sentence.append(faster(f"{quantities.times(ratio)} as long", than))
    once_s = max(figures.once_s for _, figures in known)
    if once_s > _MIN_ONCE_S:
        text = (
            f"Up to {quantities.seconds(once_s)} of loading and compiling fell into a run and "
            "slowed it down; TTFT leaves out loading. Run it again for figures without that."
        )
        sentence.append(remarks(text))
    if known[-1][0].apart_s is None:
        text = (
            "One at a time, TTFT has no waiting for others in it: each request is sent when the "
            "one before has ended."
        )
        sentence.append(remarks(text))
    columns = [_column(figures) for _, figures in known]
    names = [_name(batch) for batch, _ in known]
    return sentence, sheet(
        ("Arrival", *names), zip(_FIGURES, *columns, strict=True), "sheet arrivals"
    )


def _column(figures: Summary) -> tuple[str, ...]:
    return (
        str(figures.requests),
        str(figures.rows),
        *(map(quantities.seconds, figures.ttft_s) if figures.ttft_s else "––"),
        *(map(quantities.fine_seconds, figures.tpot_s) if figures.tpot_s else "––"),
        f"{figures.tokens:,}",
        quantities.seconds(figures.elapsed_s),
        quantities.rate(figures.tokens_per_second),
    )


def _name(batch: Batch) -> str:
    if batch.apart_s is None:
        return "One at a time"
    return f"{batch.apart_s * 1000:.0f} ms apart"


def _chart(batch: Batch, rows: Sequence[Sequence[Span]], start: float, scale_s: float) -> h.Element:
    bars = [
        _bar(number, visitor, spans, start, scale_s)
        for number, (visitor, spans) in enumerate(zip(batch.members, rows, strict=True), 1)
    ]
    ends = h.i["0"], h.i[quantities.seconds(scale_s)]
    return h.figure(".crowd")[
        h.figcaption[_name(batch)],
        h.p(".remarks", role="status")[_state(batch)],
        h.div(".crowd-row.crowd-axis")[h.span, h.span[ends], h.b["TTFT"]],
        bars,
    ]


def _state(batch: Batch) -> h.Node:
    total = len(batch.members)
    here = sum(visitor.was_sent for visitor in batch.members)
    done = sum(visitor.whole is not None for visitor in batch.members)
    failed = [visitor.problem for visitor in batch.members if visitor.problem]
    if failed:
        return h.span(".problem-text")[f"{len(failed)} of {total} failed: {failed[0]}"]
    if done == total:
        return f"All {total} have their text."
    if batch.is_over:
        return f"Stopped: {done} of {total} have their whole text."
    return (
        f"{here} of {total} have arrived, {done} have their text. A bar has its exact phases when "
        "its visitor leaves."
    )


def _bar(
    number: int, visitor: Member, spans: Sequence[Span], start: float, scale_s: float
) -> h.Element:
    parts = [
        h.i(
            f".phase-{span.name}",
            style=f"left:{(span.started - start) / scale_s:.2%};"
            f"width:{span.duration_s / scale_s:.2%}",
        )
        for span in spans
    ]
    result = visitor.whole
    ttft = quantities.seconds_or_dash(result.ttft_s) if result else ""
    sentence = f"Visitor {number}"
    if result and spans:
        sentence += (
            f": joined after {quantities.seconds(spans[0].started - start)}, TTFT {ttft}, "
            f"{quantities.count(result.new_tokens, 'token')}, left after "
            f"{quantities.seconds(_end(spans[-1]) - start)}"
        )
    return h.div(".crowd-row", title=visitor.typed + visitor.run.text)[
        h.span[number], h.span(".crowd-track", role="img", aria_label=sentence)[parts], h.b[ttft]
    ]


def _end(span: Span) -> float:
    return span.started + span.duration_s
