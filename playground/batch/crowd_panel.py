"""Crowds as HTML: a bar for each visitor over time, and the figures of both runs beside each other.

Knows how spans are drawn. Must not know components, events or the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from playground.batch.crowd import Crowd, Summary, Visitor
from playground.ui import quantities
from playground.ui.markup import escape
from playground.ui.report_parts import PHASE_NAMES, faster
from playground.ui.tables import sheet
from xla_backend.interface.timing import Span

_HEADINGS = (
    *("Arrival", "Requests", "Rows at once", "TTFT median", "TTFT largest"),
    *("TPOT median", "TPOT largest", "Tokens", "All done after", "Tokens/s in all"),
)
_NAMES = {"load": "Load", **PHASE_NAMES}
_FINEST = 1 / 800
"""Of the whole width: what is shorter cannot be seen and is drawn with what came before it."""
_MIN_ONCE_S = 0.05
"""Of loading and compiling: what is worth telling."""


def empty() -> str:
    """Before the first crowd."""
    return (
        '<p class="nothing">A bar for each visitor appears here, and grows: waiting, reading the '
        "prompt, writing.</p>"
    )


def report(crowds: Sequence[Crowd]) -> str:
    """The runs, at most one of each kind, on one scale of time, and their figures."""
    spans = [[visitor.spans() for visitor in crowd.visitors] for crowd in crowds]
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
    drawn = [[_merged(row, scale_s * _FINEST) for row in rows] for rows in spans]
    charts = "".join(
        _chart(crowd, rows, start, scale_s)
        for crowd, rows, start in zip(crowds, drawn, starts, strict=True)
    )
    seen = {span.name for rows in drawn for row in rows for span in row}
    legend = "".join(
        f'<li><i class="phase-{name}"></i><span>{label}</span></li>'
        for name, label in _NAMES.items()
        if name in seen
    )
    return f'{_figures(crowds)}<div class="crowds">{charts}</div><ul class="legend">{legend}</ul>'


def _figures(crowds: Sequence[Crowd]) -> str:
    known = [(crowd, figures) for crowd in crowds if (figures := crowd.summary())]
    if not known:
        return ""
    sentence = ""
    if len(known) == 2:
        (_, together), (_, alone) = known
        ratio = quantities.as_shown(alone.elapsed_s) / quantities.as_shown(together.elapsed_s)
        sentence = faster(
            f"{quantities.times(ratio)} as long",
            f"one at a time: {quantities.seconds(alone.elapsed_s)} until the last text was there, "
            f"instead of {quantities.seconds(together.elapsed_s)}, where the last visitor came "
            f"after {quantities.seconds(together.arriving_s)}",
        )
    once_s = max(figures.once_s for _, figures in known)
    if once_s > _MIN_ONCE_S:
        sentence += (
            f'<p class="remarks">Up to {quantities.seconds(once_s)} of loading and compiling fell '
            "into a run and slowed it down; TTFT leaves out loading. Run it again for figures "
            "without that.</p>"
        )
    if known[-1][0].apart_s is None:
        sentence += (
            '<p class="remarks">One at a time, TTFT has no waiting for others in it: each request '
            "is sent when the one before has ended.</p>"
        )
    table = sheet(_HEADINGS, [_row(crowd, figures) for crowd, figures in known], "sheet")
    return f"{sentence}{table}"


def _row(crowd: Crowd, figures: Summary) -> tuple[str, ...]:
    return (
        _name(crowd),
        str(figures.requests),
        str(figures.rows),
        *(map(quantities.seconds, figures.ttft_s) if figures.ttft_s else "––"),
        *(map(quantities.fine_seconds, figures.tpot_s) if figures.tpot_s else "––"),
        f"{figures.tokens:,}",
        quantities.seconds(figures.elapsed_s),
        quantities.rate(figures.tokens_per_second),
    )


def _name(crowd: Crowd) -> str:
    if crowd.apart_s is None:
        return "One at a time"
    return f"{crowd.apart_s * 1000:.0f} ms apart"


def _chart(crowd: Crowd, rows: Sequence[Sequence[Span]], start: float, scale_s: float) -> str:
    bars = "".join(
        _bar(number, visitor, spans, start, scale_s)
        for number, (visitor, spans) in enumerate(zip(crowd.visitors, rows, strict=True), 1)
    )
    return (
        f'<figure class="crowd"><figcaption>{_name(crowd)}</figcaption>'
        f'<p class="remarks" role="status">{_state(crowd)}</p>'
        f'<div class="crowd-row crowd-axis"><span></span>'
        f"<span><i>0</i><i>{quantities.seconds(scale_s)}</i></span><b>TTFT</b></div>"
        f"{bars}</figure>"
    )


def _state(crowd: Crowd) -> str:
    total = len(crowd.visitors)
    here = sum(visitor.was_sent for visitor in crowd.visitors)
    done = sum(visitor.whole is not None for visitor in crowd.visitors)
    failed = [visitor.problem for visitor in crowd.visitors if visitor.problem]
    if failed:
        return (
            f'<span class="problem-text">{len(failed)} of {total} failed: '
            f"{escape(failed[0])}</span>"
        )
    if done == total:
        return f"All {total} have their text."
    if crowd.is_over:
        return f"Stopped: {done} of {total} have their whole text."
    return (
        f"{here} of {total} have arrived, {done} have their text. A bar has its exact phases when "
        "its visitor leaves."
    )


def _bar(number: int, visitor: Visitor, spans: Sequence[Span], start: float, scale_s: float) -> str:
    parts = "".join(
        f'<i class="phase-{span.name}" style="left:{(span.started - start) / scale_s:.2%};'
        f'width:{span.duration_s / scale_s:.2%}"></i>'
        for span in spans
    )
    result = visitor.whole
    ttft = quantities.seconds_or_dash(result.ttft_s) if result else ""
    said = f"Visitor {number}"
    if result:
        said += (
            f": joined after {quantities.seconds(spans[0].started - start)}, TTFT {ttft}, "
            f"{quantities.count(result.new_tokens, 'token')}, left after "
            f"{quantities.seconds(_end(spans[-1]) - start)}"
        )
    return (
        f'<div class="crowd-row" title="{escape(visitor.said + visitor.run.text)}">'
        f'<span>{number}</span><span class="crowd-track" role="img" aria-label="{said}">{parts}'
        f"</span><b>{ttft}</b></div>"
    )


def _merged(spans: Sequence[Span], finest_s: float) -> list[Span]:
    """As few spans as look the same."""
    merged: list[Span] = []
    for span in spans:
        if merged and (span.name == merged[-1].name or span.duration_s < finest_s):
            last = merged[-1]
            merged[-1] = last._replace(duration_s=_end(span) - last.started)
        else:
            merged.append(span)
    return merged


def _end(span: Span) -> float:
    return span.started + span.duration_s
