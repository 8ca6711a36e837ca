"""`lines`: an inspection as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xla_backend.inspection.inspection import FunctionInside, Inspection, KernelInside, sums
from xla_backend.inspection.measurement import Measurement
from xla_backend.inspection.passes import Pass

_PREFIXES = ("k", "M", "G", "T")
LARGEST = 8
"""How many kernels of each function are listed."""


def lines(seen: Inspection, measured: Measurement | None, passes: Sequence[Pass] = ()) -> list[str]:
    rows = [f"{seen.model} · {seen.key} · inspected in {seen.took_s:.2f} s"]
    for name, inside in (("Prefill, one call", seen.prefill), ("Decode, one token", seen.decode)):
        rows += ["", name, *_counts(inside), *_parts(inside), *_kernels(inside.kernels)]
    if measured:
        rows += ["", *_measured(seen.decode, measured)]
    if passes:
        rows += ["", "Lines that each pass changed in decode with one layer", *map(_pass, passes)]
    return rows


def _pass(one: Pass) -> str:
    added, removed = f"+{one.added}", f"-{one.removed}"
    return f"  {added:>6} {removed:>6}  {one.name:<40} {one.pipeline}"


def amount(count: float, unit: str) -> str:
    """A number with a prefix: `494.2 MB`."""
    steps = 0
    while count >= 1000 and steps < len(_PREFIXES):
        count, steps = count / 1000, steps + 1
    return f"{count:.1f} {_PREFIXES[steps - 1]}{unit}" if steps else f"{count:.0f} {unit}"


def _counts(inside: FunctionInside) -> list[str]:
    return [
        f"  {inside.operations} operations -> {inside.hlo_instructions} HLO instructions -> "
        f"{inside.optimized_instructions} after optimisation, in {len(inside.kernels)} kernels",
        f"  {amount(inside.flops, 'FLOP')}, {amount(inside.bytes, 'B')} read and written "
        f"({amount(inside.weight_bytes, 'B')} of them weights), {inside.intensity:.2f} FLOP a byte",
        f"  machine code {amount(inside.code_bytes, 'B')}, constants "
        f"{amount(inside.constants_bytes, 'B')}; memory: arguments "
        f"{amount(inside.argument_bytes, 'B')}, results {amount(inside.result_bytes, 'B')}, "
        f"temporary {amount(inside.temporary_bytes, 'B')}",
        f"  trace {inside.trace_s or 0:.2f} s, compile {inside.compile_s or 0:.2f} s",
    ]


def _parts(inside: FunctionInside) -> list[str]:
    return [
        f"    {part:<14} {found.kernels:5} kernels {amount(found.flops, 'FLOP'):>12} "
        f"{amount(found.bytes, 'B'):>10}"
        for part, found in sums(inside.kernels, lambda kernel: kernel.part).items()
    ]


def _kernels(kernels: Iterable[KernelInside]) -> list[str]:
    largest = sorted(kernels, key=lambda kernel: -kernel.bytes)[:LARGEST]
    return [
        f"    {kernel.name:<28} {'' if kernel.layer is None else f'layer {kernel.layer}':<9} "
        f"{kernel.part:<14} {amount(kernel.flops, 'FLOP'):>12} {amount(kernel.bytes, 'B'):>10}  "
        f"{kernel.source}"
        for kernel in largest
    ]


def _measured(decode: FunctionInside, measured: Measurement) -> list[str]:
    limits, token_s = measured.limits, measured.token_s
    rows = [
        f"Measured: {1e3 * token_s:.3f} ms a token, of it {1e3 * measured.kernels_s:.3f} ms in "
        f"kernels; the profiler makes a token {measured.overhead:.0%} longer; load "
        f"{measured.load:.1f}",
        f"  this machine at best: {amount(limits.read_bytes_s, 'B')}/s read, "
        f"{amount(limits.flops_s, 'FLOP')}/s; a token takes {measured.distance(decode):.2f} times "
        "as long as that allows",
    ]
    if measured.matrices:
        rows.append(
            f"  matrices {amount(measured.matrices_bytes, 'B')}; a token takes "
            f"{measured.over_reading:.2f} times as long as reading them once at best"
        )
    for name, formats in measured.matrices.items():
        sizes = ", ".join(f"{form} {amount(size, 'B')}" for form, size in formats.items())
        rows.append(f"    {name:<34} {sizes}")
    seconds: dict[str, float] = {}
    for kernel in decode.kernels:
        took_s = measured.kernel_s.get(kernel.name, 0.0)
        seconds[kernel.part] = seconds.get(kernel.part, 0.0) + took_s
    for part, took_s in sorted(seconds.items(), key=lambda one: -one[1]):
        rows.append(f"    {part:<14} {1e3 * took_s:9.3f} ms {took_s / token_s:6.1%}")
    for way, layer in measured.ways.items():
        rows.append(
            f"  one layer, {way:<6} {layer.operations:4} operations, {layer.kernels:4} kernels, "
            f"{amount(layer.bytes, 'B'):>9}, {1e3 * layer.seconds:.3f} ms"
        )
    return rows
