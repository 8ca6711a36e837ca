"""Micro-kernels: rows times a tile, with the sums in registers; for products and attention.

Knows the processor's registers. Every number of a tile is read once for all rows of a call. Sums
are float32, k after k, or for blocks group after group, within which they may be integers; in the
same order for any number of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from llvmlite import ir

from xla_backend.kernels.machine_code import (
    BIT,
    FLOAT,
    LANES,
    LONG,
    POINTER,
    VECTOR,
    WORD,
    ZERO,
    Builder,
    ForLoop,
    Value,
    long,
)
from xla_backend.kernels.matmul import activations, panel
from xla_backend.kernels.matmul.activations import QuantizedRows
from xla_backend.kernels.matmul.blocks import FORMATS, Format
from xla_backend.kernels.matmul.packing import COLUMNS
from xla_backend.kernels.matmul.panel import (
    FLOAT_UNIT,
    VECTORS,
    Panel,
    ScaleGroup,
    Use,
    floats,
    for_each_k,
    for_groups,
    vectors_at_once,
)

_NO_WORDS = ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES)
ROWS = 6
"""QuantizedRows per call: with 4 vectors of columns, their sums fill 24 of 32 registers."""


def micro_kernel(
    module: ir.Module,
    rows: int,
    number_format: str,
    *,
    prefetches: bool,
    integers: QuantizedRows | None = None,
) -> ir.Function:
    """`micro_kernel(x, x_width, numbers, depth, out, out_width, begins, ahead)`, for `rows` rows.

    `x` are float32, or with blocks as `integers` says.

    Adds the product of `x` and a tile to `out`, or writes it if `begins`. As many columns at a time
    as registers hold sums of. `ahead` is the address of later data, of which each k prefetches as
    much as it reads.
    """
    builder = Builder(
        module,
        f"micro_kernel{rows}_{number_format}",
        [POINTER, LONG, POINTER, LONG, POINTER, LONG, BIT, POINTER],
    )
    x, x_width, numbers, depth, out, out_width, starts, ahead = builder.arguments
    vectors = vectors_at_once(rows * (1 + integers.digits if integers else 1), number_format)

    def after(place: Value, depth: Value) -> Value:
        if integers is not None:
            return builder.at(place, integers.size(builder, depth))
        return builder.at(place, depth, FLOAT)

    if vectors < VECTORS:
        # Some of the depth at a time, so that it is in the cache for the other columns.
        some = max(FORMATS[number_format].block, 64) if number_format in FORMATS else 64
        chunks = ForLoop(builder, long(0), depth, some)
        depth = builder.least(builder.sub(depth, chunks.index), long(some))
        distance = panel.size(builder, chunks.index, number_format)
        numbers, ahead = builder.at(numbers, distance), builder.at(ahead, distance)
        x = after(x, chunks.index)
        starts = builder.and_(starts, builder.icmp_unsigned("==", chunks.index, long(0)))
    inputs = [after(x, builder.mul(x_width, long(row))) for row in range(rows)]
    columns = ForLoop(builder, long(0), long(COLUMNS), vectors * LANES)
    outputs = [
        builder.at(
            out,
            builder.add(builder.mul(out_width, long(row)), builder.add(columns.index, long(at))),
            FLOAT,
        )
        for row in range(rows)
        for at in range(0, vectors * LANES, LANES)
    ]
    before = [
        builder.select(starts, ZERO, builder.load(place, typ=VECTOR, align=4)) for place in outputs
    ]

    def add(builder: Builder, k: Value, numbers: Sequence[Value], sums: list[Value]) -> None:
        for row, place in enumerate(inputs):
            factor = builder.splat(builder.get(builder.at(place, k, FLOAT), FLOAT))
            for column, number in enumerate(numbers):
                at = row * vectors + column
                sums[at] = builder.multiply_add(factor, number, sums[at])

    panel_ = Panel(numbers, depth, columns.index, vectors, ahead if prefetches else None)
    if number_format in FORMATS:
        form = FORMATS[number_format]
        do = (
            _FloatSums(builder, form, inputs, add)
            if integers is None
            else _IntegerSums(builder, form, inputs, integers)
        )
        results = for_groups(builder, form, panel_, do, before)
    else:
        results = for_each_k(builder, number_format, panel_, add, before)
    for place, value in zip(outputs, results, strict=True):
        builder.store(value, place, align=4)
    columns.close()
    if vectors < VECTORS:
        chunks.close()
    builder.ret_void()
    return builder.function


class _FloatSums:
    """Multiplies the sums of a group by its scales once, and minima by the sum of its inputs."""

    def __init__(self, builder: Builder, form: Format, inputs: Sequence[Value], add: Use) -> None:
        self._builder, self._form, self._inputs, self._add = builder, form, inputs, add

    def begin(self, group: ScaleGroup, values: list[Value]) -> list[Value]:
        return [ZERO] * len(values)

    def use(self, k: Value, words: list[Value], sums: list[Value]) -> None:
        for more, numbers in enumerate(floats(self._builder, self._form, words)):
            self._add(self._builder, self._builder.add(k, long(more)), numbers, sums)

    def end(self, group: ScaleGroup, sums: list[Value], values: list[Value]) -> list[Value]:
        builder = self._builder
        scales, minima = group.factors(FLOAT_UNIT)
        vectors = len(scales)
        result = []
        for row, place in enumerate(self._inputs):
            of_row = slice(row * vectors, (row + 1) * vectors)
            scaled = [
                builder.multiply_add(*each)
                for each in zip(sums[of_row], scales, values[of_row], strict=True)
            ]
            if minima is not None:
                inputs = [
                    builder.load(
                        builder.at(place, builder.add(group.first, long(at)), FLOAT),
                        typ=VECTOR,
                        align=4,
                    )
                    for at in range(0, group.depth, LANES)
                ]
                total = builder.splat(builder.total(functools.reduce(builder.fadd, inputs)))
                scaled = [
                    builder.multiply_add(total, *each) for each in zip(minima, scaled, strict=True)
                ]
            result += scaled
        return result


class _IntegerSums:
    """Integer sums of each digit, which a group's scales make a number of."""

    def __init__(
        self, builder: Builder, form: Format, inputs: Sequence[Value], rows: QuantizedRows
    ) -> None:
        self._builder, self._form, self._inputs, self._rows = builder, form, inputs, rows

    def begin(self, group: ScaleGroup, values: list[Value]) -> list[Value]:
        self._first = group.first
        self._groups = [
            activations.RowGroup(self._builder, self._rows, place, group.first)
            for place in self._inputs
        ]
        vectors, digits = len(values) // len(self._groups), range(self._rows.digits)
        if not self._rows.zero:
            return [_NO_WORDS] * (len(values) * len(digits))
        return [
            less
            for own in self._groups
            for digit in digits
            for less in [own.less_zero(digit)] * vectors
        ]

    def use(self, k: Value, words: list[Value], sums: list[Value]) -> None:
        builder, form = self._builder, self._form
        weights = panel.unsigned(builder, form, words)
        bits = 8 if self._rows.zero == 128 else form.bits
        at = 0
        for own in self._groups:
            for digit in range(self._rows.digits):
                x = own.four(builder.sub(k, self._first), digit)
                for weight in weights:
                    sums[at] = activations.dot(builder, sums[at], weight, x, bits)
                    at += 1

    def end(self, group: ScaleGroup, sums: list[Value], values: list[Value]) -> list[Value]:
        builder = self._builder
        scales, minima = group.factors(1.0)
        vectors, digits = len(scales), self._rows.digits
        result = []
        for row, own in enumerate(self._groups):
            for column, scale in enumerate(scales):
                first = row * digits * vectors + column
                total = self._number(sums[first : first + digits * vectors : vectors])
                factor = builder.fmul(scale, own.scale())
                value = builder.multiply_add(total, factor, values[row * vectors + column])
                if minima is not None:
                    value = builder.multiply_add(own.sum(), minima[column], value)
                result.append(value)
        return result

    def _number(self, digits: list[Value]) -> Value:
        """The number that sums of digits are, the highest first: all but this fit in 32 bits."""
        builder, (high, *low) = self._builder, digits
        number = builder.sitofp(high, VECTOR)
        if not low:
            return number
        rest = low[0]
        for digit in low[1:]:
            rest = builder.add(builder.shl(rest, ir.Constant(rest.type, [8] * LANES)), digit)
        base = ir.Constant(VECTOR, [256.0 ** len(low)] * LANES)
        return builder.multiply_add(number, base, builder.sitofp(rest, VECTOR))


def dequantize(module: ir.Module, number_format: str) -> ir.Function:
    """`dequantize(numbers, depth, to, ahead)`: a tile as float32."""
    builder = Builder(module, "dequantize", [POINTER, LONG, POINTER, POINTER])
    numbers, depth, to, ahead = builder.arguments

    def write(builder: Builder, k: Value, numbers: Sequence[Value], _: list[Value]) -> None:
        place = builder.add(builder.mul(k, long(COLUMNS)), columns.index)
        place = builder.at(to, place, FLOAT)
        for at, number in enumerate(numbers):
            builder.store(number, builder.at(place, LANES * at, FLOAT), align=64)

    vectors = vectors_at_once(0, number_format)
    columns = ForLoop(builder, long(0), long(COLUMNS), vectors * LANES)
    panel_ = Panel(numbers, depth, columns.index, vectors, ahead)
    for_each_k(builder, number_format, panel_, write, [])
    columns.close()
    builder.ret_void()
    return builder.function


def column(module: ir.Module, number_format: str) -> ir.Function:
    """`column(numbers, depth, column, to)`: a column of a tile as float32."""
    builder = Builder(module, "column", [POINTER, LONG, LONG, POINTER])
    numbers, depth, place, to = builder.arguments
    lane = builder.trunc(builder.urem(place, long(LANES)), WORD)

    def write(builder: Builder, k: Value, numbers: Sequence[Value], _: list[Value]) -> None:
        builder.store(builder.extract_element(numbers[0], lane), builder.at(to, k, FLOAT))

    first = builder.sub(place, builder.urem(place, long(LANES)))
    for_each_k(builder, number_format, Panel(numbers, depth, first, 1, None), write, [])
    builder.ret_void()
    return builder.function


def choose(
    builder: Builder, functions: Mapping[int, ir.Function], rows: Value, arguments: Sequence[Value]
) -> None:
    after = builder.append_basic_block("chosen")
    choice = builder.switch(rows, after)
    for count, function in functions.items():
        block = builder.append_basic_block(f"rows{count}")
        choice.add_case(long(count), block)
        builder.position_at_end(block)
        builder.call(function, arguments)
        builder.branch(after)
    builder.position_at_end(after)
