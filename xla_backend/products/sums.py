"""Sums over the lines of a tile, in registers: what products and attention consist of.

Knows the formats of numbers in tiles and the processor's registers. Must not know what is summed,
nor who calls. Every number of a tile is read once for all rows of a call and becomes float32 in a
register; all sums are float32, line after line, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from xla_backend.products import machine_code
from xla_backend.products.grouped import GROUP
from xla_backend.products.machine_code import (
    BIT,
    BYTE,
    FLOAT,
    HALF,
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
UNROLLED = 4
"""Lines in a round of the inner loop."""

_VECTORS = COLUMNS // LANES
_CACHE_LINE = 64
# llvm.prefetch: read, locality 2, data cache.
_TO_READ = [ir.Constant(WORD, value) for value in (0, 2, 1)]

# Bytes of a line of a tile; of int4, of two lines.
_BYTES = {"float32": 4 * COLUMNS, "bfloat16": 2 * COLUMNS, "float16": 2 * COLUMNS} | dict.fromkeys(
    ("int8", "int4"), COLUMNS
)
SCALES = {"int8": 1, "int4": 2}
"""Lines of scales of each group of a tile."""

_Use = Callable[[Builder, Value, Sequence[Value], list[Value]], None]


def size(builder: Builder, lines: Value, number_format: str) -> Value:
    """Bytes of so many lines of a tile."""
    bytes_ = builder.mul(lines, long(_BYTES[number_format]))
    return builder.udiv(bytes_, long(2)) if number_format == "int4" else bytes_


def scales_size(builder: Builder, lines: Value, number_format: str) -> Value:
    """Bytes of the scales of so many lines."""
    of_group = 2 * COLUMNS * SCALES.get(number_format, 0)
    return builder.mul(builder.udiv(lines, long(GROUP)), long(of_group))


def sums(module: ir.Module, rows: int, number_format: str, *, asks_ahead: bool) -> ir.Function:
    """`sums(x, x_width, numbers, scales, lines, out, out_width, begins, ahead)`, for so many rows.

    Adds to `out` the product of `x` and a tile; or writes it, if it `begins`. As many columns
    at a time as registers hold the sums of. `ahead` is what will be read later: with each line, the
    second cache is asked for as much of it.
    """
    builder = Builder(
        module,
        f"sums{rows}_{number_format}",
        [POINTER, LONG, POINTER, POINTER, LONG, POINTER, LONG, BIT, POINTER],
    )
    x, x_width, numbers, scales, lines, out, out_width, begins, ahead = builder.arguments
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

    after = _for_lines(
        builder,
        *(number_format, numbers, scales, lines, add, before, parts.index, vectors),
        ahead=ahead if asks_ahead else None,
    )
    for place, value in zip(outputs, after, strict=True):
        builder.store(value, place, align=4)
    parts.close()
    builder.ret_void()
    return builder.function


def widen(module: ir.Module, number_format: str) -> ir.Function:
    """`widen(numbers, scales, lines, to, ahead)`: lines of a tile as float32."""
    builder = Builder(module, "widen", [POINTER, POINTER, LONG, POINTER, POINTER])
    numbers, scales, lines, to, ahead = builder.arguments

    def write(builder: Builder, line: Value, numbers: Sequence[Value], _: list[Value]) -> None:
        place = builder.at(to, builder.mul(line, long(COLUMNS)), FLOAT)
        for at, number in enumerate(numbers):
            builder.store(number, builder.at(place, LANES * at, FLOAT), align=64)

    _for_lines(
        builder,
        *(number_format, numbers, scales, lines, write, [], long(0), _VECTORS),
        ahead=ahead,
    )
    builder.ret_void()
    return builder.function


def _for_lines(
    builder: Builder,
    number_format: str,
    numbers: Value,
    scales: Value,
    lines: Value,
    use: _Use,
    values: list[Value],
    column: Value,
    vectors: int,
    *,
    ahead: Value | None,
) -> list[Value]:
    """Adds a loop over the lines of a tile, which hands on values.

    `use(builder, line, numbers, values)` adds what is done with a line: with so many vectors of
    its float32 numbers, from a column on. It may replace the values.
    """
    size = _BYTES[number_format]
    columns = range(0, vectors * LANES, LANES)

    def read(line: Value, kind: ir.Type, width: int) -> list[Value]:
        place = builder.at(numbers, builder.mul(line, long(size)))
        if ahead is not None:
            later = builder.at(ahead, builder.mul(line, long(size)))
            later = builder.at(later, builder.mul(column, long(width // 8)))
            for at in range(0, size * vectors // _VECTORS, _CACHE_LINE):
                prefetched = [builder.at(later, at), *_TO_READ]
                builder.intrinsic("llvm.prefetch.p0", machine_code.VOID, prefetched)
        places = [builder.mul(builder.add(column, long(at)), long(width // 8)) for at in columns]
        vector = ir.VectorType(kind, LANES)
        return [builder.load(builder.at(place, at), typ=vector, align=width // 8) for at in places]

    if number_format not in SCALES:
        loop = Loop(builder, long(0), lines, UNROLLED, values)
        values = list(loop.values)
        for more in range(UNROLLED):
            line = builder.add(loop.index, long(more))
            if number_format == "float32":
                found = read(line, FLOAT, 32)
            elif number_format == "bfloat16":
                found = [_from_bfloat16(builder, bits) for bits in read(line, HALF, 16)]
            else:
                found = [builder.fpext(x, VECTOR) for x in read(line, ir.HalfType(), 16)]
            use(builder, line, found, values)
        return loop.close(values)

    count = SCALES[number_format]
    groups = Loop(builder, long(0), builder.udiv(lines, long(GROUP)), 1, values)
    scale_at = builder.at(scales, builder.mul(groups.index, long(2 * COLUMNS * count)))
    halves = ir.VectorType(ir.HalfType(), LANES)
    factors = [
        [
            builder.fpext(
                builder.load(
                    builder.at(
                        scale_at,
                        builder.mul(builder.add(column, long(COLUMNS * kind + at)), long(2)),
                    ),
                    typ=halves,
                    align=2,
                ),
                VECTOR,
            )
            for at in columns
        ]
        for kind in range(count)
    ]
    of_group = builder.mul(groups.index, long(GROUP))
    in_bytes = GROUP if number_format == "int8" else GROUP // 2
    loop = Loop(builder, long(0), long(in_bytes), UNROLLED, groups.values)
    values = list(loop.values)
    for more in range(UNROLLED):
        place = builder.add(loop.index, long(more))
        line = builder.add(of_group, place)
        if number_format == "int8":
            whole = [builder.sitofp(x, VECTOR) for x in read(line, BYTE, 8)]
            found = [builder.fmul(x, scale) for x, scale in zip(whole, factors[0], strict=True)]
            use(builder, line, found, values)
            continue
        line_of_bytes = builder.add(builder.udiv(of_group, long(2)), place)
        pairs = read(line_of_bytes, BYTE, 8)
        for half in (0, 1):
            found = []
            for pair, scale, minimum in zip(pairs, *factors, strict=True):
                vector = pair.type
                bits = (
                    builder.lshr(pair, ir.Constant(vector, [4] * LANES))
                    if half
                    else builder.and_(pair, ir.Constant(vector, [15] * LANES))
                )
                number = builder.uitofp(bits, VECTOR)
                found.append(builder.multiply_add(number, scale, minimum))
            use(builder, builder.add(line, long(half * GROUP // 2)), found, values)
    return groups.close(loop.close(values))


def _from_bfloat16(builder: Builder, bits: Value) -> Value:
    """bfloat16 is the upper half of a float32."""
    words = ir.VectorType(WORD, LANES)
    upper = builder.shl(builder.zext(bits, words), ir.Constant(words, [16] * LANES))
    return builder.bitcast(upper, VECTOR)


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
