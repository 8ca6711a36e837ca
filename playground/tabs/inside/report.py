"""What the Inside tab shows of a function, as HTML: numbers, parts, roofline, graph, three ways.

Knows how an `Inspection` and a `Measurement` read for an engineer. Must not know components.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby

import htpy as h
from markupsafe import Markup

from playground.context import machine
from playground.tabs.inside.texts_route import assembly_address
from playground.ui import charts, quantities, report_parts
from playground.ui.charts import Bar
from playground.ui.markup import clean, remarks, rendered
from playground.ui.tables import sheet
from playground.ui.theme import css_variables, style_sheets
from playground.ui.wording import model_name
from xla_backend.compilation import device
from xla_backend.inspection.hlo import origin
from xla_backend.inspection.inspection import FunctionInside, Inspection, KernelInside, Sums, sums
from xla_backend.inspection.measurement import Measurement
from xla_backend.inspection.passes import Pass
from xla_backend.inspection.table import amount
from xla_backend.kernels import catalog

LISTED = 12
"""Rows in the list of kernels."""
_PARTS = {
    origin.EMBEDDING: "Embedding",
    origin.NORM: "Norm",
    origin.ATTENTION: "Attention",
    origin.CONVOLUTION: "Convolution",
    origin.FEED_FORWARD: "Feed-forward",
    origin.HEAD: "Head",
    origin.CACHE: "KV cache",
    origin.CHOICE: "Token choice",
    origin.OTHER: "Other",
}
_WAYS = {"eager": "Eager", "graph": "tf.function", "xla": "jit_compile=True"}


@rendered
def report(seen: Inspection, measured: Measurement | None, has_links: bool = True) -> h.Node:
    """Both functions: decode first, because it runs for every token.

    `has_links`: whether kernels of our own lead to their machine code, which the page shows.
    """
    took = f"Read in {quantities.seconds(seen.took_s)}; nothing was run."
    return h.section(".inside", aria_label="Inside")[
        _function("Decode, one token", seen.decode, "inside_decode"),
        [_measured(seen.decode, measured), _roofline(seen, measured)] if measured else None,
        _graph(seen.decode),
        _kernels(seen.decode, measured, has_links),
        _function("Prefill, one prompt", seen.prefill, "inside_prefill"),
        remarks(took),
    ]


def _function(name: str, inside: FunctionInside, elem_id: str) -> h.Element:
    large = [
        ("FLOPs", amount(inside.flops, "")),
        ("Read and written", amount(inside.bytes, "B")),
        ("FLOPs a byte", f"{inside.intensity:.2f}"),
        ("Machine code", amount(inside.code_bytes, "B")),
    ]
    return h.section(f"#{elem_id}")[
        h.h3[name],
        _stages(inside),
        report_parts.figures(large),
        _bytes_by_part(sums(inside.kernels, lambda kernel: kernel.part)),
        report_parts.figures(_facts(inside), "inside-facts"),
    ]


def _facts(inside: FunctionInside) -> list[tuple[str, str]]:
    return [
        ("Weights read", amount(inside.weight_bytes, "B")),
        ("Constants in it", amount(inside.constants_bytes, "B")),
        ("Memory: arguments", amount(inside.argument_bytes, "B")),
        ("Memory: results", amount(inside.result_bytes, "B")),
        ("Memory: temporary", amount(inside.temporary_bytes, "B")),
        ("Trace", quantities.seconds_or_dash(inside.trace_s)),
        ("Compile", quantities.seconds_or_dash(inside.compile_s)),
        ("Compiled for", str(device.chosen())),
    ]


def _stages(inside: FunctionInside) -> h.Element:
    """Operations become instructions become kernels, on one scale."""
    rows = [
        ("Traced operations", inside.operations, "miss"),
        ("HLO instructions", inside.hlo_instructions, "miss"),
        ("After optimisation", inside.optimized_instructions, "disk"),
        ("Kernels", len(inside.kernels), "hit"),
    ]
    longest = max(count for _, count, _ in rows)
    return charts.bars(
        [Bar(name, count, style) for name, count, style in rows], longest, lambda n: f"{n:,.0f}"
    )


def _bytes_by_part(parts: dict[str, Sums]) -> h.Element:
    rows = sorted(parts.items(), key=lambda one: -one[1].bytes)
    bars = [Bar(_PARTS[part], found.bytes, "disk") for part, found in rows if found.bytes]
    longest = max(bar.value for bar in bars)
    return h.figure(".inside-parts")[
        h.figcaption["Bytes by part of the model"],
        charts.bars(bars, longest, lambda value: amount(value, "B")),
    ]


def _measured(decode: FunctionInside, measured: Measurement) -> h.Element:
    seconds: dict[str, float] = {}
    for kernel in decode.kernels:
        took_s = measured.kernel_s.get(kernel.name, 0.0)
        seconds[kernel.part] = seconds.get(kernel.part, 0.0) + took_s
    bars = [
        Bar(_PARTS[part], took_s, "hit")
        for part, took_s in sorted(seconds.items(), key=lambda one: -one[1])
        if took_s
    ]
    bars.append(Bar("Between kernels", measured.between_s, "miss"))
    large = [
        ("A token", quantities.fine_seconds(measured.token_s)),
        ("In kernels", quantities.fine_seconds(measured.kernels_s)),
        ("Times the limit", quantities.times(measured.distance(decode))),
    ]
    return h.section("#inside_measured")[
        h.h3["Where the time of a token goes"],
        report_parts.figures(large),
        charts.bars(bars, max(max(bar.value for bar in bars), 1e-9), quantities.fine_seconds),
        remarks(
            "Each kernel: the median of a token’s runs, from XLA’s own profiler, which makes a "
            f"token {max(0, measured.overhead):.0%} longer. The token itself was timed without it. "
            f"CPU load while measuring: {measured.load:.1f}."
        ),
        _ways(measured),
    ]


def _ways(measured: Measurement) -> h.Node:
    if not measured.ways:
        return None
    rows = [
        (
            h.span(translate="no")[_WAYS[way]],
            f"{layer.kernels:,}",
            amount(layer.bytes, "B"),
            quantities.fine_seconds(layer.seconds),
        )
        for way, layer in measured.ways.items()
    ]
    return sheet(("One layer", "Kernels", "Bytes", "A call"), rows, elem_id="inside_ways")


def _roofline(seen: Inspection, measured: Measurement) -> h.Element:
    """Both axes logarithmic: FLOPs a byte to the right, FLOPs a second upwards."""
    limits = measured.limits
    dots = [
        (kernel.flops / kernel.bytes, kernel.flops / took_s, f"{kernel.name}: {kernel.part}")
        for kernel in seen.decode.kernels
        if kernel.flops and kernel.bytes and (took_s := measured.kernel_s.get(kernel.name))
    ]
    decode = seen.decode
    whole = (decode.intensity, decode.flops / measured.token_s)
    xs = charts.decades([x for x, _, _ in dots] + [limits.ridge * 4])
    ys = charts.decades([y for _, y, _ in dots] + [limits.flops_s])

    def left(x: float) -> float:
        return math.log(x / xs[0]) / math.log(xs[-1] / xs[0])

    def bottom(y: float) -> float:
        return math.log(y / ys[0]) / math.log(ys[-1] / ys[0])

    # The roof as a line of points: memory up to the ridge, then the processor.
    corners = [
        (max(xs[0], ys[0] / limits.read_bytes_s), None),
        (limits.ridge, limits.flops_s),
        (xs[-1], limits.flops_s),
    ]
    roof = " ".join(
        f"{100 * left(x):.2f},{100 - 100 * bottom(y or x * limits.read_bytes_s):.2f}"
        for x, y in corners
    )
    marks = [
        h.i(".inside-dot", title=title, style=f"left:{left(x):.2%};bottom:{bottom(y):.2%}")
        for x, y, title in dots
    ]
    x, y = whole
    marks.append(h.i(".inside-dot.whole", style=f"left:{left(x):.2%};bottom:{bottom(y):.2%}"))
    summary = (
        f"A token does {x:.2f} FLOPs a byte and reaches {amount(y, 'FLOP')}/s; memory gives "
        f"{amount(limits.read_bytes_s, 'B')}/s, the processor {amount(limits.flops_s, 'FLOP')}/s."
    )
    return h.figure("#inside_roofline.chart")[
        h.figcaption["Roofline: FLOPs a second over FLOPs a byte"],
        h.div(".plot", role="img", aria_label=summary)[
            charts.grid((bottom(y), f"{amount(y, '')}/s") for y in ys),
            h.svg(viewBox="0 0 100 100", preserveAspectRatio="none", aria_hidden="true")[
                h.polyline(points=roof)
            ],
            h.div(".marks", translate="no")[marks],
        ],
        h.div(".inside-axis", aria_hidden="true")[(h.span[f"{x:g}"] for x in xs)],
        remarks(summary),
        remarks(_verdict(decode, measured)),
    ]


def _verdict(decode: FunctionInside, measured: Measurement) -> str:
    limits = measured.limits
    shortest = quantities.fine_seconds(limits.shortest_s(decode.flops, decode.bytes))
    if decode.intensity < limits.ridge:
        return f"Memory is the limit: read from main memory, a token takes {shortest} at least."
    return f"The processor is the limit: a token takes {shortest} at least."


def _graph(inside: FunctionInside) -> h.Element:
    """Layers as boxes, in the order in which a token passes them; each opens to its kernels."""
    first = [k for k in inside.kernels if k.layer is None and k.part == origin.EMBEDDING]
    last = [k for k in inside.kernels if k.layer is None and k.part != origin.EMBEDDING]
    return h.section("#inside_graph")[
        h.h3["The path of a token"],
        h.p(".caption")[
            "From top to bottom; equal layers are one box, with the kernels of the first. Open a "
            "box for its parts, and those for their kernels."
        ],
        h.div(".inside-graph")[
            _box("Embedding", first) if first else None,
            [_box(_layers(numbers), kernels, len(numbers)) for numbers, kernels in inside.layers],
            _box("Head and token choice", last) if last else None,
        ],
    ]


def _layers(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"Layer {numbers[0]}"
    return f"Layers {numbers[0]} to {numbers[-1]}"


def _box(name: str, kernels: Sequence[KernelInside], times: int = 1) -> h.Element:
    parts = [
        h.details[_summary(_PARTS[part], of_part), _kernel_list(of_part)]
        for part in dict.fromkeys(kernel.part for kernel in kernels)
        if (of_part := [kernel for kernel in kernels if kernel.part == part])
    ]
    return h.details(".inside-box")[_summary(name, kernels, times), parts]


def _summary(name: str, kernels: Sequence[KernelInside], times: int = 1) -> h.Element:
    moved = amount(sum(kernel.bytes for kernel in kernels), "B")
    number = quantities.count(len(kernels), "kernel")
    equal = f"{times} × " if times > 1 else ""
    return h.summary[h.span[name], h.small[h.bdi[f"{equal}{number} · {moved}"]]]


def _kernel_list(kernels: Iterable[KernelInside]) -> h.Element:
    rows = [
        h.li[h.b[each.name], " ", h.bdi[amount(each.bytes, "B")], h.small[each.source]]
        for each in kernels
    ]
    return h.ul(".inside-kernels", translate="no")[rows]


def _kernels(inside: FunctionInside, measured: Measurement | None, has_links: bool) -> h.Element:
    """Those that waste most time, or else move most bytes; equal ones of all layers in a row."""
    took = measured.kernel_s if measured else {}
    alike: dict[Hashable, list[KernelInside]] = {}
    for kernel in inside.kernels:
        alike.setdefault((kernel.layer is None, kernel.form), []).append(kernel)

    def order(some: Sequence[KernelInside]) -> tuple[float, int]:
        return measured.wasted_s(some) if measured else 0.0, sum(k.bytes for k in some)

    names = ("Kernel", "Layers", "FLOPs", "Bytes", "Time", "Wasted", "Line of Python")
    signature = h.span(".signature", translate="no")
    rows = []
    for some in sorted(alike.values(), key=order, reverse=True)[:LISTED]:
        times = [took[k.name] for k in some if k.name in took]
        wasted_s = measured.wasted_s(some) if measured and times else None
        layers = [k.layer for k in some if k.layer is not None]
        name: h.Node = some[0].name
        if has_links and some[0].opcode in catalog.NAMES:
            name = h.a(href=assembly_address(some[0].opcode), target="_blank")[name]
        rows.append(
            (
                [signature[name], len(some) > 1 and h.small[f" × {len(some)}"]],
                h.bdi[_range(layers)],
                amount(sum(k.flops for k in some), ""),
                amount(sum(k.bytes for k in some), "B"),
                quantities.fine_seconds(sum(times)) if times else "–",
                "–" if wasted_s is None else quantities.fine_seconds(wasted_s),
                signature[some[0].source],
            )
        )
    title = "The kernels that waste most time" if measured else "The largest kernels of a token"
    sentence = (
        "Wasted: the time beyond what their FLOPs and bytes need at this machine’s limits."
        if measured
        else "Measure a token to see their times, and which of them waste time."
    )
    return h.section("#inside_largest")[h.h3[title], sheet(names, rows), remarks(sentence)]


def _range(layers: Sequence[int]) -> str:
    if not layers:
        return "–"
    return str(layers[0]) if layers[0] == layers[-1] else f"{layers[0]}–{layers[-1]}"


@rendered
def passes(found: Sequence[Pass]) -> h.Node:
    """Passes in XLA's order, each pipeline a box; a pass opens to its diff."""
    boxes = [
        h.details(".inside-box")[_changed(pipeline, some), map(_pass, some)]
        for pipeline, group in groupby(found, lambda one: one.pipeline)
        if (some := list(group))
    ]
    return h.section(".inside", aria_label="Passes")[
        h.section[
            h.h3["What each pass changed"],
            h.p(".caption")[
                "Decode with one layer of the model, on its way through XLA: of each pass that "
                "changed the HLO, the lines that it removed (−) and added (+). Open a pipeline for "
                "its passes, and a pass for its lines."
            ],
            h.div(".inside-graph", translate="no")[boxes],
        ]
    ]


def _changed(name: str, some: Sequence[Pass]) -> h.Element:
    added, removed = sum(one.added for one in some), sum(one.removed for one in some)
    count = f"{len(some)} passes · " if len(some) > 1 else ""
    words = name.replace("_", " ")  # so that it can be broken
    return h.summary[h.span[words], h.small[h.bdi[f"{count}+{added:,} −{removed:,}"]]]


def _pass(one: Pass) -> h.Element:
    parts = [
        {"+": h.ins, "-": h.del_}.get(sign, h.span)["\n".join(lines)]
        for sign, lines in groupby(one.diff.split("\n"), lambda line: line[:1])
    ]
    return h.details[
        _changed(one.name, [one]),
        h.pre(".inside-diff", tabindex="0", dir="ltr")[parts],
        one.left_out > 0 and remarks(f"{quantities.count(one.left_out, 'more line')} left out."),
    ]


def file(seen: Inspection, measured: Measurement | None, found: Sequence[Pass]) -> str:
    """The report as an HTML file of its own, to attach to an issue."""
    title = f"{model_name(seen.model)} · {seen.key}"
    body = "body{margin:0;color:var(--ink);background:var(--page)}"
    styles = css_variables() + style_sheets() + body
    return clean(
        h.html(lang="en")[
            h.head[h.meta(charset="utf-8"), h.title[title], h.style[Markup(styles)]],
            h.body(".gradio-container")[
                h.main("#page")[
                    h.h2[title],
                    h.p[f"{machine.summary()}. {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."],
                    report(seen, measured, has_links=False),
                    passes(found) if found else None,
                ]
            ],
        ]
    )
