"""`Inspection`: the two compiled functions of a cache key, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from xla_backend.interface.buckets import CacheKey

Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True)
class KernelInside:
    """One kernel of a compiled function.

    Attributes:
        name, opcode: XLA's name, and its kind: "fusion", "dot" and others; for a custom call, the
            function that it calls.
        layer: number of the layer; None before the first and after the last.
        part: of the model, as in `hlo.origin`.
        source: the innermost line of the package that it comes from; "" if unknown.
        weights: names of the weights that it reads.
        instructions: number of optimised instructions in it.
        calls: how often it runs.
        flops, transcendentals: operations of all calls. bytes: read and written.
    """

    name: str
    opcode: str
    layer: int | None
    part: str
    source: str
    weights: tuple[str, ...]
    instructions: int
    calls: int
    flops: int
    transcendentals: int
    bytes: int

    @property
    def form(self) -> tuple[str | int, ...]:
        """What the same kernel has in common in equal layers: all but names and the layer."""
        work = self.instructions, self.calls, self.flops, self.transcendentals, self.bytes
        return self.part, self.opcode, self.source, *work


@dataclass(frozen=True)
class FunctionInside:
    """A compiled function: prefill in one call, or decode for one token.

    Attributes:
        operations: number of TensorFlow operations.
        hlo_instructions: number of HLO instructions, without arguments, constants and tuples.
        optimized_instructions: their number after XLA's optimisation, including those in kernels.
        flops, transcendentals, bytes: of all kernels.
        weight_bytes: bytes of weights among `bytes`.
        constants_bytes: constants in the machine code's module.
        code_bytes: XLA's object files.
        argument_bytes, result_bytes, temporary_bytes: memory while it runs: arguments with the
            weights, results, and the rest. For decode, of all tokens.
        trace_s, compile_s: seconds of tracing and compiling when it was made; None if unknown.
        kernels: in the order of the program.
    """

    operations: int
    hlo_instructions: int
    optimized_instructions: int
    flops: int
    transcendentals: int
    bytes: int
    weight_bytes: int
    constants_bytes: int
    code_bytes: int
    argument_bytes: int
    result_bytes: int
    temporary_bytes: int
    trace_s: float | None
    compile_s: float | None
    kernels: tuple[KernelInside, ...]

    @property
    def layers(self) -> list[tuple[range, list[KernelInside]]]:
        """Numbers of consecutive equal layers, and the kernels of the first of them."""
        numbers = sorted({k.layer for k in self.kernels if k.layer is not None})
        of_layer = {n: [k for k in self.kernels if k.layer == n] for n in numbers}
        found = []
        for _, equal in groupby(numbers, lambda n: sorted(k.form for k in of_layer[n])):
            first, *more = equal
            found.append((range(first, first + len(more) + 1), of_layer[first]))
        return found

    @property
    def intensity(self) -> float:
        return self.flops / max(self.bytes, 1)

    def to_json(self) -> dict[str, Any]:
        """JSON values: `kernels` is their number, `kernel_list` has them."""
        values = dataclasses.asdict(self)
        kernels = values.pop("kernels")
        return {**values, "kernels": len(kernels), "kernel_list": kernels}


@dataclass(frozen=True)
class Inspection:
    """Both functions of a cache key.

    Attributes:
        model, key: of the functions. prefill, decode: the functions.
        took_s: seconds that the inspection took, in its own process.
    """

    model: str
    key: CacheKey
    prefill: FunctionInside
    decode: FunctionInside
    took_s: float


@dataclass(frozen=True)
class Sums:
    """Sums over several kernels; see `KernelInside`."""

    kernels: int
    flops: int
    bytes: int


def sums(
    kernels: Iterable[KernelInside], group: Callable[[KernelInside], Group]
) -> dict[Group, Sums]:
    """The sums by group, in the order of each group's first kernel."""
    found: dict[Group, Sums] = {}
    for kernel in kernels:
        before = found.get(group(kernel), Sums(0, 0, 0))
        found[group(kernel)] = Sums(
            before.kernels + 1, before.flops + kernel.flops, before.bytes + kernel.bytes
        )
    return found
