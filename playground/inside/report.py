"""What the Inside tab shows of a function, as HTML: numbers, parts, roofline, graph, three ways.

Knows how an `Inspection` and a `Measurement` read for an engineer. Must not know components.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from playground.ui import charts, quantities, report_parts
from playground.ui.charts import Bar
from playground.ui.markup import escape
from playground.ui.tables import sheet
from xla_backend.inspection.hlo import origin
from xla_backend.inspection.inspection import FunctionInside, Inspection, KernelInside, Sums, sums
from xla_backend.inspection.measurement import Measurement
from xla_backend.inspection.table import amount

LISTED = 12
"""Kernels in the list of the largest."""
_PARTS = {
    origin.EMBEDDING: "Embedding",
    origin.NORM: "Norm",
    origin.ATTENTION: "Attention",
    origin.FEED_FORWARD: "Feed-forward",
    origin.HEAD: "Head",
    origin.CACHE: "KV cache",
    origin.CHOICE: "Token choice",
    origin.OTHER: "Other",
}
_WAYS = {"eager": "Eager", "graph": "tf.function", "xla": "jit_compile=True"}


def empty_report(sentence: str) -> str:
    """The report before anything was looked into."""
    return f'<p class="nothing">{sentence}</p>'


def report(seen: Inspection, measured: Measurement | None) -> str:
    """Both functions: decode first, because it runs for every token."""
    decode = _function("Decode, one token", seen.decode, "inside_decode")
    prefill = _function("Prefill, one prompt", seen.prefill, "inside_prefill")
    took = quantities.seconds(seen.took_s)
    return (
        f'<section class="inside" aria-label="Inside">{decode}'
        f"{_measured(seen.decode, measured) if measured else ''}"
        f"{_roofline(seen, measured) if measured else ''}"
        f"{_graph(seen.decode)}{_largest(seen.decode, measured)}{prefill}"
        f'<p class="remarks">Looking took {took}, in a process of its own beside the engine: '
        "nothing was compiled or run for it.</p></section>"
    )


def _function(name: str, inside: FunctionInside, element: str) -> str:
    parts = sums(inside.kernels, lambda kernel: kernel.part)
    return (
        f'<section id="{element}"><h3>{name}</h3>{_stages(inside)}'
        + report_parts.figures(
            [
                ("FLOPs", amount(inside.flops, "")),
                ("Read and written", amount(inside.bytes, "B")),
                ("FLOPs a byte", f"{inside.intensity:.2f}"),
                ("Machine code", amount(inside.code_bytes, "B")),
            ]
        )
        + _bytes_by_part(parts)
        + '<dl class="inside-facts">'
        + "".join(f"<div><dt>{said}</dt><dd>{value}</dd></div>" for said, value in _facts(inside))
        + "</dl></section>"
    )


def _facts(inside: FunctionInside) -> list[tuple[str, str]]:
    return [
        ("Weights read", amount(inside.weight_bytes, "B")),
        ("Constants in it", amount(inside.constants_bytes, "B")),
        ("Memory: arguments", amount(inside.argument_bytes, "B")),
        ("Memory: results", amount(inside.result_bytes, "B")),
        ("Memory: temporary", amount(inside.temporary_bytes, "B")),
        ("Trace", quantities.seconds_or_dash(inside.trace_s)),
        ("Compile", quantities.seconds_or_dash(inside.compile_s)),
    ]


def _stages(inside: FunctionInside) -> str:
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


def _bytes_by_part(parts: dict[str, Sums]) -> str:
    rows = sorted(parts.items(), key=lambda one: -one[1].bytes)
    bars = [Bar(_PARTS[part], found.bytes, "disk") for part, found in rows if found.bytes]
    longest = max(bar.value for bar in bars)
    return (
        '<figure class="inside-parts"><figcaption>Bytes by part of the model</figcaption>'
        + charts.bars(bars, longest, lambda value: amount(value, "B"))
        + "</figure>"
    )


def _measured(decode: FunctionInside, measured: Measurement) -> str:
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
    return (
        '<section id="inside_measured"><h3>Where the time of a token goes</h3>'
        + report_parts.figures(
            [
                ("A token", quantities.fine_seconds(measured.token_s)),
                ("In kernels", quantities.fine_seconds(measured.kernels_s)),
                ("Times the limit", quantities.times(measured.distance(decode))),
            ]
        )
        + charts.bars(bars, max(max(bar.value for bar in bars), 1e-9), quantities.fine_seconds)
        + f'<p class="remarks">Each kernel: the median of a token’s runs, from XLA’s own profiler, '
        f"which makes a token {max(0, measured.overhead):.0%} longer. The token itself was timed "
        f"without it. Programs that wanted a core meanwhile: {measured.load:.1f}.</p>"
        + _ways(measured)
        + "</section>"
    )


def _ways(measured: Measurement) -> str:
    if not measured.ways:
        return ""
    rows = [
        (
            f'<span translate="no">{_WAYS[way]}</span>',
            f"{layer.kernels:,}",
            amount(layer.bytes, "B"),
            quantities.fine_seconds(layer.seconds),
        )
        for way, layer in measured.ways.items()
    ]
    return sheet(("One layer", "Kernels", "Bytes", "A call"), rows, elem_id="inside_ways")


def _roofline(seen: Inspection, measured: Measurement) -> str:
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
    grid = "".join(
        f'<span class="grid" style="bottom:{bottom(y):.1%}"><b>{amount(y, "")}/s</b></span>'
        for y in ys
    )
    marks = "".join(
        f'<i class="inside-dot" title="{escape(title)}" '
        f'style="left:{left(x):.2%};bottom:{bottom(y):.2%}"></i>'
        for x, y, title in dots
    )
    marks += (
        f'<i class="inside-dot whole" style="left:{left(whole[0]):.2%};'
        f'bottom:{bottom(whole[1]):.2%}"></i>'
    )
    axis = "".join(f"<span>{x:g}</span>" for x in xs)
    summary = (
        f"A token does {whole[0]:.2f} FLOPs a byte and reaches {amount(whole[1], 'FLOP')}/s; "
        f"memory gives {amount(limits.read_bytes_s, 'B')}/s, the processor "
        f"{amount(limits.flops_s, 'FLOP')}/s."
    )
    return (
        '<figure class="chart" id="inside_roofline"><figcaption>Roofline: FLOPs a second over '
        "FLOPs a byte</figcaption>"
        f'<div class="plot" role="img" aria-label="{escape(summary)}">{grid}'
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">'
        f'<polyline points="{roof}"/></svg><div class="marks" translate="no">{marks}</div></div>'
        f'<div class="inside-axis" aria-hidden="true">{axis}</div>'
        f'<p class="remarks">{summary}</p>'
        f'<p class="remarks">{_verdict(decode, measured)}</p></figure>'
    )


def _verdict(decode: FunctionInside, measured: Measurement) -> str:
    limits = measured.limits
    shortest = quantities.fine_seconds(limits.shortest_s(decode.flops, decode.bytes))
    if decode.intensity < limits.ridge:
        return f"Memory is the limit: read from main memory, a token takes {shortest} at least."
    return f"The processor is the limit: a token takes {shortest} at least."


def _graph(inside: FunctionInside) -> str:
    """Layers as boxes, in the order in which a token passes them; each opens to its kernels."""
    layers = sums(inside.kernels, lambda kernel: kernel.layer)
    numbered = sorted(number for number in layers if number is not None)
    first = [k for k in inside.kernels if k.layer is None and k.part == origin.EMBEDDING]
    last = [k for k in inside.kernels if k.layer is None and k.part != origin.EMBEDDING]
    boxes = [_box("Embedding", first)] if first else []
    boxes += [
        _box(f"Layer {number}", [k for k in inside.kernels if k.layer == number])
        for number in numbered
    ]
    boxes += [_box("Head and token choice", last)] if last else []
    return (
        '<section id="inside_graph"><h3>The way of a token</h3>'
        '<p class="caption">From top to bottom. Open a box for its parts, and those for their '
        f'kernels.</p><div class="inside-graph">{"".join(boxes)}</div></section>'
    )


def _box(name: str, kernels: Sequence[KernelInside]) -> str:
    parts = "".join(
        f"<details><summary><span>{_PARTS[part]}</span>"
        f"<small>{_short(of_part)}</small></summary>{_kernel_list(of_part)}</details>"
        for part in dict.fromkeys(kernel.part for kernel in kernels)
        if (of_part := [kernel for kernel in kernels if kernel.part == part])
    )
    return (
        f'<details class="inside-box"><summary><span>{name}</span>'
        f"<small>{_short(kernels)}</small></summary>{parts}</details>"
    )


def _short(kernels: Sequence[KernelInside]) -> str:
    moved = amount(sum(kernel.bytes for kernel in kernels), "B")
    return f"{quantities.count(len(kernels), 'kernel')} · {moved}"


def _kernel_list(kernels: Iterable[KernelInside]) -> str:
    rows = "".join(
        f"<li><b>{escape(kernel.name)}</b> <span>{amount(kernel.bytes, 'B')}</span>"
        f"<small>{escape(kernel.source)}</small></li>"
        for kernel in kernels
    )
    return f'<ul class="inside-kernels" translate="no">{rows}</ul>'


def _largest(inside: FunctionInside, measured: Measurement | None) -> str:
    took = measured.kernel_s if measured else {}
    order = sorted(inside.kernels, key=lambda one: (-took.get(one.name, 0.0), -one.bytes))[:LISTED]
    names = ("Kernel", "Layer", "FLOPs", "Bytes", "Time", "Line of Python")
    rows = [
        (
            f'<span class="signature" translate="no">{escape(kernel.name)}</span>',
            "–" if kernel.layer is None else str(kernel.layer),
            amount(kernel.flops, ""),
            amount(kernel.bytes, "B"),
            quantities.fine_seconds(took[kernel.name]) if kernel.name in took else "–",
            f'<span class="signature" translate="no">{escape(kernel.source)}</span>',
        )
        for kernel in order
    ]
    return (
        '<section id="inside_largest"><h3>The largest kernels of a token</h3>'
        f"{sheet(names, rows)}</section>"
    )
