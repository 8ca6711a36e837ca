"""Sums over the lines of a tile, in registers: what products and attention consist of.

Knows the processor's registers. Must not know what is summed, nor who calls. Every number of a tile
is read once for all rows of a call and becomes float32 in a register; all sums are float32, line
after line, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from xla_backend.products import machine_code
from xla_backend.products.lines import VECTORS, Tile, for_lines
from xla_backend.products.machine_code import (
    BIT,
    FLOAT,
    LANES,
    LONG,
    POINTER,
    VECTOR,
    WORD,
    ZERO,
    Builder,
    Loop,
    Value,
    long,
)
from xla_backend.products.tiles import COLUMNS

ROWS = 6
"""Rows that share what is read: with 4 vectors of columns, sums fill 24 of 32 registers."""


def sums(module: ir.Module, rows: int, number_format: str, *, asks_ahead: bool) -> ir.Function:
    """`sums(x, x_width, numbers, lines, out, out_width, begins, ahead)`, for so many rows.

    Adds to `out` the product of `x` and a tile; or writes it, if it `begins`. As many columns
    at a time as registers hold the sums of. `ahead` is what will be read later: with each line, the
    second cache is asked for as much of it.
    """
    builder = Builder(
        module,
        f"sums{rows}_{number_format}",
        [POINTER, LONG, POINTER, LONG, POINTER, LONG, BIT, POINTER],
    )
    x, x_width, numbers, lines, out, out_width, begins, ahead = builder.arguments
    registers, lanes = machine_code.vector_registers()
    room = registers * 3 // 4 // (LANES // lanes)
    vectors = next(n for n in (4, 2, 1) if n * rows <= room or n == 1)
    inputs = [builder.at(x, builder.mul(x_width, long(row)), FLOAT) for row in range(rows)]
    parts = Loop(builder, long(0), long(COLUMNS), vectors * LANES)
    outputs = [
        builder.at(
            out,
            builder.add(builder.mul(out_width, long(row)), builder.add(parts.index, long(at))),
            FLOAT,
        )
        for row in range(rows)
        for at in range(0, vectors * LANES, LANES)
    ]
    before = [
        builder.select(begins, ZERO, builder.load(place, typ=VECTOR, align=4)) for place in outputs
    ]

    def add(builder: Builder, line: Value, numbers: Sequence[Value], sums: list[Value]) -> None:
        for row, place in enumerate(inputs):
            factor = builder.splat(builder.get(builder.at(place, line, FLOAT), FLOAT))
            for column, number in enumerate(numbers):
                at = row * vectors + column
                sums[at] = builder.multiply_add(factor, number, sums[at])

    tile = Tile(numbers, lines, parts.index, vectors, ahead if asks_ahead else None)
    after = for_lines(builder, number_format, tile, add, before)
    for place, value in zip(outputs, after, strict=True):
        builder.store(value, place, align=4)
    parts.close()
    builder.ret_void()
    return builder.function


def dequantize(module: ir.Module, number_format: str) -> ir.Function:
    """`dequantize(numbers, lines, to, ahead)`: lines of a tile as float32."""
    builder = Builder(module, "dequantize", [POINTER, LONG, POINTER, POINTER])
    numbers, lines, to, ahead = builder.arguments

    def write(builder: Builder, line: Value, numbers: Sequence[Value], _: list[Value]) -> None:
        place = builder.at(to, builder.mul(line, long(COLUMNS)), FLOAT)
        for at, number in enumerate(numbers):
            builder.store(number, builder.at(place, LANES * at, FLOAT), align=64)

    for_lines(builder, number_format, Tile(numbers, lines, long(0), VECTORS, ahead), write, [])
    builder.ret_void()
    return builder.function


def column(module: ir.Module, number_format: str) -> ir.Function:
    """`column(numbers, lines, column, to)`: a column of a tile as float32."""
    builder = Builder(module, "column", [POINTER, LONG, LONG, POINTER])
    numbers, lines, place, to = builder.arguments
    lane = builder.trunc(builder.urem(place, long(LANES)), WORD)

    def write(builder: Builder, line: Value, numbers: Sequence[Value], _: list[Value]) -> None:
        builder.store(builder.extract_element(numbers[0], lane), builder.at(to, line, FLOAT))

    first = builder.sub(place, builder.urem(place, long(LANES)))
    for_lines(builder, number_format, Tile(numbers, lines, first, 1, None), write, [])
    builder.ret_void()
    return builder.function


def choose(
    builder: Builder, functions: Mapping[int, ir.Function], rows: Value, arguments: Sequence[Value]
) -> None:
    """Calls the function for a number of rows."""
    after = builder.append_basic_block("chosen")
    choice = builder.switch(rows, after)
    for count, function in functions.items():
        block = builder.append_basic_block(f"rows{count}")
        choice.add_case(long(count), block)
        builder.position_at_end(block)
        builder.call(function, arguments)
        builder.branch(after)
    builder.position_at_end(after)
