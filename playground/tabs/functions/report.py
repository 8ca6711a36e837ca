"""What the Functions tab shows, as HTML: the prediction, the three ways side by side, the shapes.

Knows how a `FunctionComparison` reads for a visitor who has never heard of tracing. Must not know
components or events.
"""

from collections.abc import Sequence

import htpy as h

from playground.ui import prediction_line, quantities, report_parts
from playground.ui.charts import part
from playground.ui.markup import nothing, remarks, rendered
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
    Way.EAGER: "Plain Python: one operation after the other. Nothing is compiled or cached.",
    Way.GRAPH: "Records the operations as a graph, once for each input shape, and runs the graph.",
    Way.XLA: "Has XLA turn that graph into machine code, also once for each input shape.",
}
_PHASES = (("trace", "trace"), ("compile", "compile"), ("run", "decode"))
"""The phases of a call, and the style of each in the bar."""
_ALIKE = 0.05
"""Ratios closer to 1 than this count as equal, within the noise of a busy machine."""
_HEADINGS = ("Function", "Shape", "Batches that ran", "tf.function", "jit_compile=True")


def outcome(request: FunctionRequest, shapes: Sequence[StoredKey]) -> CacheOutcome:
    """The predicted cache outcome of the two compiled ways."""
    there = {(shape.function, shape.rows) for shape in shapes}
    is_there = (request.function, request.rows) in there
    return CacheOutcome.HIT if is_there else CacheOutcome.MISS


@rendered
def prediction(request: FunctionRequest, shapes: Sequence[StoredKey]) -> h.Node:
    """The prediction beside the button."""
    expected = outcome(request, shapes)
    what = {
        CacheOutcome.HIT: "This shape was traced and compiled before. All calls only run.",
        CacheOutcome.MISS: "New shape: tf.function traces it, and XLA compiles it.",
    }[expected]
    return prediction_line.box(badge(expected), what, h.p(".prediction-key")[_shape(request)])


@rendered
def empty_report() -> h.Node:
    """The report before the first comparison: what the three ways are, without numbers."""
    ways = [h.section(".way")[h.header[h.h3[NAMES[way]]], h.p[_WHAT[way]]] for way in Way]
    return report_parts.frame(
        None,
        "Press Compare: one function, called in three ways with the same input.",
        h.div(".ways")[ways],
        h.div(".explain")[
            report_parts.drawing(),
            h.p[
                "Compare a second time, and both reuse their function. Change the batch size, and "
                "both make a new one, for another shape. With ",
                h.strong["padding"],
                ", batches of 5, 6, 7 and 8 all run at 8, and only the first of them has to wait.",
            ],
        ],
    )


@rendered
def waiting_report(status: EngineStatus, expected: CacheOutcome) -> h.Node:
    """The report while the comparison waits or runs."""
    if status.state in ("starting", "stopped"):
        what = "Waiting for the engine to start."
    elif status.state != "ready":
        what = "Waiting for another run to finish."
    elif expected is CacheOutcome.MISS:
        what = "Tracing and compiling this shape, then timing repeated calls."
    else:
        what = "Already compiled. Timing repeated calls."
    return report_parts.frame(no_badge("RUNNING"), what, report_parts.working_bar(), busy=True)


@rendered
def report(comparison: FunctionComparison) -> h.Node:
    """Verdict, the three ways, and how they were measured."""
    cache = comparison.of(Way.XLA).cache
    assert cache is not None
    return report_parts.frame(
        badge(cache),
        [f"{comparison.request.example.title}: ", _shape(comparison.request)],
        [report_parts.faster(*finding(comparison, way)) for way in (Way.XLA, Way.GRAPH)],
        _ways(comparison),
        _agreement(comparison),
        _measured(comparison),
    )


@rendered
def shapes_table(shapes: Sequence[StoredKey]) -> h.Node:
    """Every shape compiled so far, and the cost of its first calls."""
    if not shapes:
        return nothing(
            "No function is in memory yet. Each shape appears here with what its first call cost."
        )
    return sheet(_HEADINGS, map(_shape_row, shapes))


def finding(comparison: FunctionComparison, way: Way) -> tuple[str, str]:
    """The gain: how fast later calls are, and after how many the compilation pays off."""
    speedup = comparison.speedup(way)
    calls = comparison.first_call_in_eager_calls(way)
    length = f"as long as {calls:,.0f} eager calls" if calls >= 1.5 else "no longer than eager’s"
    than = f"than eager with {NAMES[way]}, after a first call {length}."
    if abs(speedup - 1) < _ALIKE:
        return "No faster", f"{than} It does not pay here."
    if speedup < 1:
        return f"{quantities.times(1 / speedup)} slower", f"{than} It does not pay here."
    worth = comparison.break_even_calls(way)
    assert worth is not None
    return (
        f"{quantities.times(speedup)} faster",
        f"{than} Paid back after {quantities.count(worth, 'call')}.",
    )


def _shape(request: FunctionRequest) -> h.Node:
    size = f"batch of {request.batch_size}"
    if request.rows != request.batch_size:
        size += f", padded to {request.rows}"
    return f"{size} · ", h.span(".signature")[request.signature]


def _ways(comparison: FunctionComparison) -> h.Node:
    """The three ways side by side; bars of one kind share a scale."""
    longest_first_s = max(result.first.total_s for result in comparison.results)
    longest_later_s = max(result.cached.p50_s for result in comparison.results)
    scales = (
        f"First calls share one scale, up to {quantities.fine_seconds(longest_first_s)}; later "
        f"calls another, up to {quantities.fine_seconds(longest_later_s)}."
    )
    return (
        h.div(".ways")[
            (
                _way(comparison, result, longest_first_s, longest_later_s)
                for result in comparison.results
            )
        ],
        h.ul(".legend.ways-legend")[
            (h.li[h.i(f".phase-{style}"), h.span[name]] for name, style in _PHASES),
            h.li[h.span[scales]],
        ],
    )


def _way(
    comparison: FunctionComparison,
    result: WayResult,
    longest_first_s: float,
    longest_later_s: float,
) -> h.Element:
    first, later_s = result.first, result.cached.p50_s
    parts = [
        (name, style, seconds)
        for name, style in _PHASES
        if (seconds := getattr(first, f"{name}_s"))
    ]
    phases = " · ".join(f"{name} {quantities.fine_seconds(value)}" for name, _, value in parts)
    fastest = min(r.cached.p50_s for r in comparison.results) == later_s
    kind = "nothing is made" if result.cache is None else badge(result.cache)
    when = "First call" if result.cache is not CacheOutcome.HIT else "First call, earlier"
    return h.section(f"#way_{result.way.value}.way{'.fastest' * fastest}")[
        h.header[h.h3[NAMES[result.way]], h.span(".way-cache")[kind]],
        h.p(".way-call")[h.span[when], h.b[quantities.fine_seconds(first.total_s)]],
        h.div(".way-bar")[
            (part(f"phase-{style}", value / longest_first_s) for _, style, value in parts)
        ],
        h.p(".way-phases")[phases],
        h.p(".way-call.later")[
            h.span[f"Later calls{', fastest' * fastest}"], h.b[quantities.fine_seconds(later_s)]
        ],
        h.div(".way-bar")[part("phase-decode", later_s / longest_later_s)],
        h.p(".way-phases")[_versus_eager(comparison, result.way)],
    ]


def _versus_eager(comparison: FunctionComparison, way: Way) -> str:
    if way is Way.EAGER:
        return "the reference"
    speedup = comparison.speedup(way)
    if abs(speedup - 1) < _ALIKE:
        return "as fast as eager"
    if speedup < 1:
        return f"{quantities.times(1 / speedup)} slower than eager"
    return f"{quantities.times(speedup)} faster than eager"


def _agreement(comparison: FunctionComparison) -> h.Element:
    apart = f"{comparison.difference:.1e}" if comparison.difference else "0"
    if comparison.difference <= TOLERANCE:
        rounding = f" Largest difference: {apart}; up to {TOLERANCE:.0e} is rounding."
        return h.p(".same-output")[h.strong["Same output in all three ways."], rounding]
    return h.p(".notice.problem", role="alert")[
        f"The outputs differ by up to {apart}, which is more than rounding ({TOLERANCE:.0e})."
    ]


def _measured(comparison: FunctionComparison) -> h.Element:
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
    return remarks(
        f"Later calls: the median of {calls} in each way, taking turns, from the input to an "
        f"output that can be read.{padding}{waited}"
    )


def _shape_row(shape: StoredKey) -> tuple[h.Node, ...]:
    fine = quantities.fine_seconds
    graph = f"trace {fine(shape.graph.trace_s)}"
    xla = f"trace {fine(shape.xla.trace_s)} · compile {fine(shape.xla.compile_s)}"
    return (
        EXAMPLE_FUNCTIONS[shape.function].title,
        h.span(".signature")[shape.signature],
        ", ".join(map(str, shape.batch_sizes)),
        (fine(shape.graph.total_s), h.br, h.small[graph]),
        (fine(shape.xla.total_s), h.br, h.small[xla]),
    )
