"""What the Functions tab shows, as HTML: the prediction, the three ways side by side, the shapes.

Knows how a `FunctionComparison` reads for a visitor who has never heard of tracing. Must not know
components or events.
"""

from __future__ import annotations

from collections.abc import Sequence

from playground.ui import quantities, report_parts
from playground.ui.markup import escape
from playground.ui.outcomes import badge, no_badge
from playground.ui.tables import sheet
from xla_backend import (
    CacheOutcome,
    EngineStatus,
    FunctionComparison,
    FunctionRequest,
    StoredKey,
    Way,
)
from xla_backend.interface.function_comparison import EXAMPLE_FUNCTIONS, TOLERANCE, WayResult

NAMES = {Way.EAGER: "Eager", Way.GRAPH: "tf.function", Way.XLA: "jit_compile=True"}
_WHAT = {
    Way.EAGER: "Plain Python: one operation after the other. Nothing is made, nothing is kept.",
    Way.GRAPH: "Records the operations as a graph, once for each input shape, and runs the graph.",
    Way.XLA: "Has XLA turn that graph into machine code, also once for each input shape.",
}
_PHASES = (("trace", "trace"), ("compile", "compile"), ("run", "decode"))
"""The phases of a call, and the style of each in the bar."""
_ALIKE = 0.05
"""Ratios closer to 1 than this count as equal, within the noise of a busy machine."""
_HEADINGS = ("Function", "Shape", "Batches that ran", "tf.function", "jit_compile=True")


def outcome(request: FunctionRequest, kept: Sequence[StoredKey]) -> CacheOutcome:
    """The predicted cache outcome of the two compiled ways."""
    there = {(shape.function, shape.rows) for shape in kept}
    is_there = (request.function, request.rows) in there
    return CacheOutcome.HIT if is_there else CacheOutcome.MISS


def prediction(request: FunctionRequest, kept: Sequence[StoredKey]) -> str:
    """The prediction beside the button."""
    expected = outcome(request, kept)
    what = {
        CacheOutcome.HIT: "This shape was traced and compiled before. All calls only run.",
        CacheOutcome.MISS: "New shape: tf.function traces it, and XLA compiles it.",
    }[expected]
    return (
        f'<div class="prediction">{badge(expected)}<div><p class="prediction-what">{what}</p>'
        f'<p class="prediction-key">{_shape(request)}</p></div></div>'
    )


def empty_report() -> str:
    """The report before the first comparison: what the three ways are, without numbers."""
    explained = "".join(
        f'<section class="way"><header><h3>{NAMES[way]}</h3></header><p>{what}</p></section>'
        for way, what in _WHAT.items()
    )
    return report_parts.frame(
        "",
        "Press Compare: one function, called in three ways with the same input.",
        f'<div class="ways">{explained}</div><div class="explain">'
        + report_parts.drawing()
        + "<p>Compare a second time, and both find what they made. Change the batch size, and both "
        "make it again: it is another shape. With <strong>padding</strong>, batches of 5, 6, 7 and "
        "8 all run at 8, and only the first of them has to wait.</p></div>",
    )


def waiting_report(status: EngineStatus, expected: CacheOutcome) -> str:
    """The report while the comparison waits or runs."""
    if status.state in ("starting", "stopped"):
        what = "Waiting for the engine to start."
    elif status.state != "ready":
        what = "Waiting for another run to finish."
    elif expected is CacheOutcome.MISS:
        what = "Tracing and compiling this shape, then calling it again and again."
    else:
        what = "The shape is there. Calling it again and again."
    return report_parts.frame(
        no_badge("RUNNING"), what, '<div class="bar working"></div>', busy=True
    )


def report(comparison: FunctionComparison) -> str:
    """Verdict, the three ways, and how they were measured."""
    cache = comparison.of(Way.XLA).cache
    assert cache is not None
    return report_parts.frame(
        badge(cache),
        f"{comparison.request.example.title}: {_shape(comparison.request)}",
        _findings(comparison) + _ways(comparison) + _agreement(comparison) + _measured(comparison),
    )


def kept_table(kept: Sequence[StoredKey]) -> str:
    """Every shape compiled so far, and the cost of its first calls."""
    if not kept:
        return (
            '<p class="nothing">Nothing is compiled yet. Each shape appears here with what its '
            "first call cost.</p>"
        )
    return sheet(_HEADINGS, map(_kept_row, kept))


def finding(comparison: FunctionComparison, way: Way) -> tuple[str, str]:
    """The gain: how fast later calls are, and after how many the compilation pays off."""
    speedup = comparison.speedup(way)
    calls = comparison.first_call_in_eager_calls(way)
    length = f"as long as {calls:,.0f} eager calls" if calls >= 1.5 else "no longer than eager’s"
    than = f"than eager with {NAMES[way]}, after a first call {length}."
    if abs(speedup - 1) < _ALIKE:
        return "No faster", f"{than} It brings nothing here."
    if speedup < 1:
        return f"{quantities.times(1 / speedup)} slower", f"{than} It does not win here."
    worth = comparison.break_even_calls(way)
    assert worth is not None
    return (
        f"{quantities.times(speedup)} faster",
        f"{than} Paid back after {quantities.count(worth, 'call')}.",
    )


def _shape(request: FunctionRequest) -> str:
    size = f"batch of {request.batch_size}"
    if request.rows != request.batch_size:
        size += f", padded to {request.rows}"
    return f'{size} · <span class="signature">{request.signature}</span>'


def _findings(comparison: FunctionComparison) -> str:
    return "".join(report_parts.faster(*finding(comparison, way)) for way in (Way.XLA, Way.GRAPH))


def _ways(comparison: FunctionComparison) -> str:
    """The three ways side by side; bars of one kind share a scale."""
    longest_first = max(result.first.total_s for result in comparison.results)
    longest_later = max(result.cached.p50_s for result in comparison.results)
    cards = "".join(
        _way(comparison, result, longest_first, longest_later) for result in comparison.results
    )
    legend = "".join(
        f'<li><i class="phase-{style}"></i><span>{name}</span></li>' for name, style in _PHASES
    )
    return (
        f'<div class="ways">{cards}</div><ul class="legend ways-legend">{legend}'
        "<li><span>First calls share one scale, up to "
        f"{quantities.fine_seconds(longest_first)}; later calls another, up to "
        f"{quantities.fine_seconds(longest_later)}.</span></li></ul>"
    )


def _way(
    comparison: FunctionComparison,
    result: WayResult,
    longest_first_s: float,
    longest_later_s: float,
) -> str:
    first, later_s = result.first, result.cached.p50_s
    parts = [(name, style, getattr(first, f"{name}_s")) for name, style in _PHASES]
    segments = "".join(
        f'<i class="phase-{style}" style="width:{value / longest_first_s:.2%}"></i>'
        for _, style, value in parts
        if value
    )
    phases = " · ".join(
        f"{name} {quantities.fine_seconds(value)}" for name, _, value in parts if value
    )
    fastest = min(r.cached.p50_s for r in comparison.results) == later_s
    kind = "nothing is made" if result.cache is None else badge(result.cache)
    when = "First call" if result.cache is not CacheOutcome.HIT else "First call, earlier"
    return (
        f'<section class="way{" fastest" if fastest else ""}" id="way_{result.way.value}">'
        f'<header><h3>{NAMES[result.way]}</h3><span class="way-cache">{kind}</span></header>'
        f'<p class="way-call"><span>{when}</span>'
        f"<b>{quantities.fine_seconds(first.total_s)}</b></p>"
        f'<div class="way-bar">{segments}</div><p class="way-phases">{phases}</p>'
        f'<p class="way-call later"><span>Later calls{", fastest" if fastest else ""}</span>'
        f"<b>{quantities.fine_seconds(later_s)}</b></p>"
        f'<div class="way-bar"><i class="phase-decode" '
        f'style="width:{later_s / longest_later_s:.2%}"></i></div>'
        f'<p class="way-phases">{_versus_eager(comparison, result.way)}</p></section>'
    )


def _versus_eager(comparison: FunctionComparison, way: Way) -> str:
    if way is Way.EAGER:
        return "the reference"
    speedup = comparison.speedup(way)
    if abs(speedup - 1) < _ALIKE:
        return "as fast as eager"
    if speedup < 1:
        return f"{quantities.times(1 / speedup)} slower than eager"
    return f"{quantities.times(speedup)} faster than eager"


def _agreement(comparison: FunctionComparison) -> str:
    apart = f"{comparison.difference:.1e}" if comparison.difference else "0"
    if comparison.difference <= TOLERANCE:
        return (
            '<p class="same-output"><strong>Same output in all three ways.</strong> Largest '
            f"difference: {apart}; up to {TOLERANCE:.0e} is rounding.</p>"
        )
    return (
        '<p class="notice problem" role="alert">The outputs differ by up to '
        f"{apart}, which is more than rounding ({TOLERANCE:.0e}).</p>"
    )


def _measured(comparison: FunctionComparison) -> str:
    calls = quantities.count(comparison.results[0].cached.n, "call")
    padding = ""
    if comparison.request.rows != comparison.request.batch_size:
        padding = " Padding and cutting are part of a call; eager runs the batch as it is."
    waited = ""
    if comparison.queue_s > 0.05:
        waited = (
            f" Not in these times: {quantities.seconds(comparison.queue_s)} of waiting for other "
            "requests."
        )
    return (
        f'<p class="remarks">Later calls: the median of {calls} in each way, taking turns, from '
        f"the input to an output that can be read.{padding}{waited}</p>"
    )


def _kept_row(shape: StoredKey) -> tuple[str, ...]:
    return (
        EXAMPLE_FUNCTIONS[shape.function].title,
        f'<span class="signature">{shape.signature}</span>',
        escape(", ".join(map(str, shape.batch_sizes))),
        f"{quantities.fine_seconds(shape.graph.total_s)}<br>"
        f"<small>trace {quantities.fine_seconds(shape.graph.trace_s)}</small>",
        f"{quantities.fine_seconds(shape.xla.total_s)}<br>"
        f"<small>trace {quantities.fine_seconds(shape.xla.trace_s)}"
        f" · compile {quantities.fine_seconds(shape.xla.compile_s)}</small>",
    )
