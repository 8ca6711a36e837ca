"""`Inspection`: what is known of the two compiled functions of a cache key, as data.

Knows what the numbers mean, and their sums. Must not know how they are found nor how they look.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from xla_backend.interface.buckets import CacheKey

Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True)
class KernelInside:
    """One kernel of a compiled function.

    Attributes:
        name, opcode: as XLA calls it and what it does: "fusion", "dot" and others; of a custom
            call, what it calls.
        layer: its number; None before the first and after the last.
        part: of the model, as `hlo.origin` names them.
        source: the innermost line of the package that it comes from; "" where nobody knows.
        weights: names of the weights that it reads.
        instructions: optimised instructions that it is made of.
        calls: how often it runs.
        flops, transcendentals: operations on numbers, of all calls. bytes: read and written.
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


@dataclass(frozen=True)
class FunctionInside:
    """A compiled function: prefill in one call, or decode for one token.

    Attributes:
        operations: that TensorFlow traced.
        hlo_instructions: that they became; without arguments, constants and tuples.
        optimized_instructions: that XLA left of them, those within kernels too.
        flops, transcendentals, bytes: of all kernels.
        weight_bytes: bytes of weights among `bytes`.
        constants_bytes: numbers that are part of the machine code's module.
        code_bytes: XLA's object files.
        argument_bytes, result_bytes, temporary_bytes: memory while it runs: what is passed in,
            weights included, what is returned, and what it needs besides. Of decode for all tokens.
        trace_s, compile_s: how long tracing and compiling took when it was made, in seconds; None
            where that is not known.
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
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / max(self.bytes, 1)

    def to_json(self) -> dict[str, Any]:
        """As JSON values: `kernels` is their number, `kernel_list` they themselves."""
        values = dataclasses.asdict(self)
        kernels = values.pop("kernels")
        return {**values, "kernels": len(kernels), "kernel_list": kernels}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> FunctionInside:
        """The inverse of `to_json`."""
        kernels = tuple(
            KernelInside(**{**one, "weights": tuple(one["weights"])})
            for one in values["kernel_list"]
        )
        return cls(**{k: v for k, v in values.items() if k != "kernel_list"} | {"kernels": kernels})


@dataclass(frozen=True)
class Inspection:
    """Both functions of a cache key.

    Attributes:
        model, key: whose. prefill, decode: the functions.
        took_s: how long looking took, in a process of its own, in seconds.
    """

    model: str
    key: CacheKey
    prefill: FunctionInside
    decode: FunctionInside
    took_s: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "model": self.model,
            "key": self.key.to_dict(),
            "prefill": self.prefill.to_json(),
            "decode": self.decode.to_json(),
            "took_s": self.took_s,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Inspection:
        """The inverse of `to_json`."""
        return cls(
            values["model"],
            CacheKey(**values["key"]),
            FunctionInside.from_json(values["prefill"]),
            FunctionInside.from_json(values["decode"]),
            values["took_s"],
        )


@dataclass(frozen=True)
class Sums:
    """Several kernels together; see `KernelInside`."""

    kernels: int
    flops: int
    bytes: int


def sums(
    kernels: Iterable[KernelInside], group: Callable[[KernelInside], Group]
) -> dict[Group, Sums]:
    """The kernels together by what `group` says of each, in the order of their first ones."""
    found: dict[Group, Sums] = {}
    for kernel in kernels:
        before = found.get(group(kernel), Sums(0, 0, 0))
        found[group(kernel)] = Sums(
            before.kernels + 1, before.flops + kernel.flops, before.bytes + kernel.bytes
        )
    return found
