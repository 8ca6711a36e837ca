"""`walk`: the kernels that run when a compiled function is called, or one round of its loop.

Knows control flow in HLO (loops, branches, calls) and follows weights through it, from the
function's arguments to the kernels that read them.

A kernel is one instruction of the optimised program that computes or copies: a fusion, a product, a
library call, a copy. XLA on a CPU runs each as a separate piece of machine code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from xla_backend.inspection.hlo import costs
from xla_backend.inspection.hlo.costs import Module

_VIEWS = frozenset(
    {"bitcast", "copy", "reshape", "transpose", "convert", "copy-start", "copy-done"}
)
"""Opcodes whose result is their operand in another form: a weight stays a weight."""


@dataclass(frozen=True)
class Value:
    """The origin of a value."""

    # numbers of the function's arguments; empty for a computed value
    arguments: frozenset[int] = frozenset()
    depth: int | None = None  # number of its layer; None before the first
    parts: tuple[Value, ...] = ()  # of a tuple


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes:
        instruction: the `HloInstructionProto`.
        flops, transcendentals: operations. bytes: read and written.
        reads: bytes read of each argument of the function.
        depth: the number of the layer.
        calls: how often it runs: more than once in an inner loop.
        instructions: number of optimised instructions in it.
    """

    instruction: Any
    flops: int
    transcendentals: int
    bytes: int
    reads: dict[int, int]
    depth: int | None
    calls: int
    instructions: int


@dataclass
class Walk:
    module: Module  # the module
    depth_of: Callable[[int], int | None]  # the layer of an argument of the function, or None
    ends_layers: Collection[int]  # arguments after which a value belongs to no layer: the head
    body_only: bool  # whether only one round of the outermost loop is listed
    kernels: list[Kernel] = field(default_factory=list)
    _loops: list[list[Kernel]] | None = None

    def run(self) -> list[Kernel]:
        """The kernels, in the order in which the program lists them."""
        count = sum(each.opcode == "parameter" for each in self.module.entry.instructions)
        arguments = [Value(frozenset([number])) for number in range(count)]
        loops = self._loops = [] if self.body_only else None
        self._computation(self.module.entry, arguments, 1)
        if loops is None:
            return self.kernels
        # The loop that reads the most is the one over tokens.
        return max(loops, key=lambda found: sum(sum(k.reads.values()) for k in found), default=[])

    def _computation(self, computation: Any, arguments: Sequence[Value], calls: int) -> Value:
        values: dict[int, Value] = {}
        # Before optimisation the instructions are in any order.
        todo = [each.id for each in reversed(computation.instructions)]
        while todo:
            each = self.module.instructions[todo[-1]]
            if missing := [id for id in each.operand_ids if id not in values]:
                todo += missing
                continue
            todo.pop()
            if each.id not in values:
                operands = [values[id] for id in each.operand_ids]
                values[each.id] = self._instruction(each, operands, arguments, calls)
        return values[computation.root_id]

    def _instruction(
        self, each: Any, operands: list[Value], arguments: Sequence[Value], calls: int
    ) -> Value:
        opcode = each.opcode
        if opcode == "parameter":
            return arguments[each.parameter_number]
        if opcode == "tuple":
            return Value(parts=tuple(operands))
        if opcode == "get-tuple-element":
            parts = operands[0].parts
            return parts[each.tuple_index] if parts else Value(depth=operands[0].depth)
        if opcode == "call":
            return self._computation(self.module.called(each)[0], operands, calls)
        if opcode == "while":
            return self._while(each, operands, calls)
        if opcode == "conditional":
            return self._conditional(each, operands, calls)
        return self._kernel(each, operands, calls)

    def _while(self, each: Any, operands: list[Value], calls: int) -> Value:
        body = self.module.called(each)[0]
        before, self.kernels = self.kernels, []
        # For one round of an outermost loop, that loop counts once; loops inside are no such loops.
        loops, self._loops = self._loops, None
        times = 1 if loops is not None else _trip_count(each)
        value = self._computation(body, operands, calls * times)
        self._loops = loops
        if loops is not None:
            loops.append(self.kernels)
        self.kernels = before + self.kernels
        return value

    def _conditional(self, each: Any, operands: list[Value], calls: int) -> Value:
        """Walks the branch that reads weights; if none does, the last.

        That is the branch of a token that is not the first and is not sampled: see
        `model.decoding`.
        """
        before = self.kernels
        found: list[tuple[int, int, Value, list[Kernel]]] = []
        for branch, operand in zip(self.module.called(each), operands[1:], strict=True):
            self.kernels = []
            value = self._computation(branch, [operand], calls)
            weight = sum(sum(k.reads.values()) for k in self.kernels if k.depth is not None)
            found.append((weight, len(found), value, self.kernels))
        _, _, value, kernels = max(found, key=lambda one: one[:2])
        self.kernels = before + kernels
        return value

    def _kernel(self, each: Any, operands: list[Value], calls: int) -> Value:
        read, written = costs.traffic(self.module, each)
        reads: dict[int, int] = {}
        for place, count in read.items():
            for number in operands[place].arguments:
                reads[number] = reads.get(number, 0) + count * calls
        depths = [d for number in reads if (d := self.depth_of(number)) is not None]
        depths = depths or [d for value in operands if (d := _depth(value)) is not None]
        depth = max(depths, default=None)
        if any(number in self.ends_layers for number in reads):
            depth = None
        if not costs.is_free(each):
            plain, special = costs.flops(self.module, each)
            self.kernels.append(
                Kernel(
                    instruction=each,
                    flops=plain * calls,
                    transcendentals=special * calls,
                    bytes=(sum(read.values()) + written) * calls,
                    reads=reads,
                    depth=depth,
                    calls=calls,
                    instructions=self._size(each),
                )
            )
        is_view = each.opcode in _VIEWS
        value = Value(operands[0].arguments if is_view and operands else frozenset(), depth)
        parts = each.shape.tuple_shapes
        return Value(depth=depth, parts=(value,) * len(parts)) if parts else value

    def _size(self, each: Any) -> int:
        if each.opcode != "fusion":
            return 1
        return sum(not costs.is_free(one) for one in self.module.called(each)[0].instructions)


def _trip_count(loop: Any) -> int:
    """Iterations of a loop if XLA knows them, otherwise 1."""
    try:
        return int(json.loads(loop.backend_config)["known_trip_count"]["n"])
    except (ValueError, KeyError, TypeError):
        return 1


def _depth(value: Value) -> int | None:
    depths = [value.depth, *map(_depth, value.parts)]
    return max((depth for depth in depths if depth is not None), default=None)
