"""The costs of instructions: operations, and bytes read and written.

Knows the rules of XLA's own cost analysis (xla/service/hlo_cost_analysis.cc) for the instructions
of text and speech models.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from xla_backend.inspection.hlo import protos
from xla_backend.kernels.matmul.packing import COLUMNS, MATMUL, READING

_BYTES = {"PRED": 1, "TOKEN": 0, "OPAQUE_TYPE": 0, "TUPLE": 0, "BF16": 2, "C64": 8, "C128": 16}
_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"})
"""Opcodes that move and compute nothing."""
_TRANSCENDENTAL = frozenset(
    "exponential exponential-minus-one log log-plus-one logistic tanh sqrt rsqrt cbrt power sine "
    "cosine tan atan2 erf".split()
)
_ARITHMETIC = frozenset(
    "add subtract multiply divide remainder maximum minimum negate abs sign floor ceil clamp "
    "compare select and or not xor convert round-nearest-even round-nearest-afz shift-left "
    "shift-right-logical shift-right-arithmetic is-finite popcnt clz reduce-precision".split()
)
_PARTS_READ = frozenset({"slice", "dynamic-slice", "gather"})
"""Opcodes that read only as much of their first operand as they return."""


class Module:
    """An `HloModuleProto` with its computations and instructions by id."""

    def __init__(self, serialized: bytes) -> None:
        self.proto = protos.hlo().HloModuleProto.FromString(serialized)
        for computation in self.proto.computations:
            _number(computation)
        self.computations = {c.id: c for c in self.proto.computations}
        self.instructions = {i.id: i for c in self.proto.computations for i in c.instructions}
        self.entry = self.computations[self.proto.entry_computation_id]

    def called(self, instruction: Any) -> list[Any]:
        return [self.computations[id] for id in instruction.called_computation_ids]

    def operands(self, instruction: Any) -> list[Any]:
        return [self.instructions[id] for id in instruction.operand_ids]

    def root(self, computation: Any) -> Any:
        return self.instructions[computation.root_id]


def _number(computation: Any) -> None:
    """Makes instruction ids unique in the module.

    In some files they are unique only in their computation, whose id XLA writes into the upper
    half.
    """

    def unique(id: int) -> int:
        return (computation.id << 32) | (id & 0xFFFFFFFF)

    computation.root_id = unique(computation.root_id)
    for each in computation.instructions:
        each.id = unique(each.id)
        each.operand_ids[:] = map(unique, each.operand_ids)


def is_free(instruction: Any) -> bool:
    """Whether an instruction moves and computes nothing."""
    return instruction.opcode in _FREE


def elements(shape: Any) -> int:
    """Number of elements of a shape, or of all shapes in a tuple."""
    if shape.tuple_shapes:
        return sum(map(elements, shape.tuple_shapes))
    return math.prod(shape.dimensions)


def size(shape: Any) -> int:
    if shape.tuple_shapes:
        return sum(map(size, shape.tuple_shapes))
    return math.prod(shape.dimensions) * _width(shape.element_type)


@functools.cache
def _width(element_type: int) -> int:
    name = protos.shapes().PrimitiveType.Name(element_type)
    if name in _BYTES:
        return _BYTES[name]
    digits = name.lstrip("SUF")
    return max(1, int(digits) // 8) if digits.isdigit() else 1  # F8E4M3 and similar types: one byte


def flops(module: Module, instruction: Any) -> tuple[int, int]:
    """The operations of an instruction: plain ones, and transcendental functions.

    For a fusion, those of its instructions. Loops, branches and calls count 0: the caller knows
    what runs how often.
    """
    opcode, count = instruction.opcode, elements(instruction.shape)
    operands = [operand.shape for operand in module.operands(instruction)]
    if opcode == "dot":
        axes = instruction.dot_dimension_numbers.lhs_contracting_dimensions
        return 2 * count * math.prod(operands[0].dimensions[axis] for axis in axes), 0
    if opcode == "custom-call" and instruction.custom_call_target.startswith(MATMUL):
        return 2 * count * operands[0].dimensions[-1], 0
    if opcode == "convolution":
        kernel = operands[1].dimensions
        axis = instruction.convolution_dimension_numbers.kernel_output_feature_dimension
        return 2 * count * math.prod(kernel) // max(1, kernel[axis]), 0
    if opcode == "sort":
        first = elements(operands[0])
        return first * math.ceil(math.log2(max(first, 2))), 0
    if opcode in _TRANSCENDENTAL:
        return 0, count
    if opcode in _ARITHMETIC:
        return count, 0
    # How often it applies the computation that it calls.
    times = {"fusion": 1, "map": count}.get(opcode, 0)
    if opcode == "reduce-window":
        times = count * (math.prod(axis.size for axis in instruction.window.dimensions) - 1)
    elif opcode == "reduce":
        times = elements(operands[0]) - count // (len(operands) // 2)
    elif opcode == "scatter":
        times = elements(operands[-1])
    if not times:
        return 0, 0
    pairs = [flops(module, each) for each in module.called(instruction)[0].instructions]
    return times * sum(plain for plain, _ in pairs), times * sum(special for _, special in pairs)


def traffic(module: Module, instruction: Any) -> tuple[dict[int, int], int]:
    """The bytes that an instruction reads, by operand number, and the bytes that it writes.

    Intermediate values of a fusion are in registers and do not count. A slice reads what it
    returns; an update in place reads and writes the updated part.
    """
    if is_free(instruction):
        return {}, 0
    if instruction.opcode == "fusion":
        return _traffic_of_fusion(module, module.called(instruction)[0])
    operands = module.operands(instruction)
    read = {place: size(operand.shape) for place, operand in enumerate(operands)}
    written = size(instruction.shape)
    if instruction.opcode in _PARTS_READ:
        read[0] = written
    elif instruction.custom_call_target.startswith(READING):
        places, tiles = (operand.shape.dimensions[0] for operand in operands)
        read[1] = read[1] * places // (COLUMNS * tiles)
    elif instruction.custom_call_target.startswith(MATMUL) and len(operands) == 3:
        # With a part of a matrix: the third says which.
        tiles = operands[1].shape.dimensions[0]
        read[1] = read[1] * instruction.shape.dimensions[-1] // (COLUMNS * tiles)
    elif instruction.opcode == "dynamic-update-slice":
        read[0], written = 0, read[1]
    elif instruction.opcode == "scatter":
        read[0] = written = size(operands[-1].shape)
    return read, written


def _traffic_of_fusion(module: Module, fused: Any) -> tuple[dict[int, int], int]:
    users: dict[int, list[tuple[int, Any]]] = {}
    for each in fused.instructions:
        for place, operand in enumerate(each.operand_ids):
            users.setdefault(operand, []).append((place, each))
    roots = [module.root(fused)]
    if roots[0].opcode == "tuple":
        roots = module.operands(roots[0])
    # If the fusion returns an update in place, only the updated part of that buffer is written.
    updates = [_beneath_bitcasts(module, root) for root in roots]
    written = sum(
        size(module.operands(update)[1].shape)
        if update.opcode == "dynamic-update-slice"
        else size(root.shape)
        for root, update in zip(roots, updates, strict=True)
    )
    returned = {update.id for update in updates}

    def read(parameter: Any) -> int:
        """Bytes that are read of a parameter: what its users need, at most all of it."""
        whole, parts = size(parameter.shape), 0
        for place, user in _through_bitcasts(parameter.id, users):
            if place == 0 and user.opcode in _PARTS_READ:
                parts += size(user.shape)
            elif place == 0 and user.opcode == "dynamic-update-slice" and user.id in returned:
                continue
            else:
                return whole
        return min(whole, parts)

    parameters = [each for each in fused.instructions if each.opcode == "parameter"]
    return {each.parameter_number: read(each) for each in parameters}, written


def _beneath_bitcasts(module: Module, instruction: Any) -> Any:
    while instruction.opcode == "bitcast":
        (instruction,) = module.operands(instruction)
    return instruction


def _through_bitcasts(
    id: int, users: Mapping[int, list[tuple[int, Any]]]
) -> Iterator[tuple[int, Any]]:
    for place, user in users.get(id, []):
        if user.opcode in ("bitcast", "tuple"):
            yield from _through_bitcasts(user.id, users)
        else:
            yield place, user
