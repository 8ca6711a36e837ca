"""The product of rows and a matrix in tiles, as a function that XLA calls.

Knows how a processor multiplies fast. XLA's own products read only float32, rearrange the weights
in each call, and with few rows use only a part of the memory's speed. Here, with few rows, every
number of the matrix is read once, in its own format, from end to end, and dequantized in a
register; all sums are float32. Scales of blocks multiply the sums of their groups, which saves a
multiplication per number.

With more rows, a part of a tile is dequantized into the cache first, and all rows use it (after
K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). The threads
of XLA's pool take tiles one by one. One function serves matrices and rows of any number.

Blocks need no float32 where the processor has dot products of bytes: rows are rounded to integers
first, of 24 bits unless 8 were chosen (`activations`), and the sums of groups are exact.

Unused rows are NaN. Those before and after all others are not multiplied, because every sum of a
row whose first number is NaN is NaN. So a function for many rows costs only the rows in use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from llvmlite import ir

from xla_backend.kernels import machine_code
from xla_backend.kernels.handler import Handler
from xla_backend.kernels.machine_code import (
    BIT,
    FLOAT,
    LANES,
    LONG,
    POINTER,
    WORD,
    Builder,
    ForLoop,
    Value,
    long,
)
from xla_backend.kernels.matmul import activations, micro_kernel, panel
from xla_backend.kernels.matmul.activations import QuantizedRows
from xla_backend.kernels.matmul.blocks import FORMATS
from xla_backend.kernels.matmul.packing import COLUMNS, MATMUL, READING
from xla_backend.kernels.threads import Job

_FEW = {"float32": (1, 2, 3, 4, 5, 6), "bfloat16": (1, 2, 3, 4), "float16": (1, 2, 3, 4)}
"""Row counts for which numbers are dequantized only in registers."""
_FEW_OF_BLOCKS = 16
"""The same for blocks: up to this many rows, four or eight at a time, so that a row has the same
sums for any number of rows of a decode step. Sums of integers are the same for any number."""
_DEPTH = 96
"""Numbers along k that are dequantized into the first-level cache at once, 24 KB; for longer
blocks, one block."""
_CHUNK = 96
"""QuantizedRows that one thread takes at a time."""
_ALONE = 2**18
"""Number of multiplications below which waking another thread does not pay."""
_RUNS = 8
"""About how many times a thread takes tiles. Neighbours are read faster: Q4_K at 27 to 29 GB/s
instead of 25, on an EPYC that reads 34."""
_AHEAD = 8192
"""Prefetch distance in bytes, into the second-level cache: the hardware prefetcher stops at the end
of a page."""

NAN_BYTE = ir.Constant(WORD, 0xFF)
"""Four of them are a NaN in float32: `memset` fills unused rows with it."""

_ROUNDED = 8
"""Rows that one thread rounds to integers at a time."""

_JOB = Job("rows_at tiles_at out_at rows used depth tiles quantized_at quantizing")
_COLUMNS_JOB = Job("places_at tiles_at out_at depth")


def name_of(number_format: str, *, in_eight_bits: bool = False, is_split: bool = False) -> str:
    """A product's name in XLA: of float32 or 8-bit rows, and of a matrix or one of several."""
    return f"{MATMUL}{'int8_' * in_eight_bits}{'split_' * is_split}{number_format}"


def columns_name_of(number_format: str) -> str:
    """The name in XLA of the function that reads columns of a matrix."""
    return READING + number_format


def build(number_format: str, in_eight_bits: bool, is_split: bool, name: str) -> ir.Module:
    module = ir.Module(name)
    integers = quantized_rows(number_format, in_eight_bits)
    if integers is None:
        unit = _unit(module, number_format)
    else:
        unit = _unit_of_integers(module, number_format, integers)
    _handler(module, name, number_format, unit, integers, is_split)
    return module


def quantized_rows(number_format: str, in_eight_bits: bool) -> QuantizedRows | None:
    """What rows are rounded to; None for products of float32."""
    if number_format not in FORMATS or not (in_eight_bits or activations.has_dot()):
        return None
    form = FORMATS[number_format]
    return QuantizedRows(
        form.group, 1 if in_eight_bits else activations.EXACT_DIGITS, panel.zero_of(form)
    )


def _unit_of_integers(
    module: ir.Module, number_format: str, integers: QuantizedRows
) -> ir.Function:
    """`unit(job, number)`: first rounds rows, then multiplies a chunk of them with one tile."""
    write = integers.write(module)
    functions = {
        rows: micro_kernel.micro_kernel(
            module, rows, number_format, prefetches=True, integers=integers
        )
        for rows in _rows_of_blocks()
    }
    builder = Builder(module, "unit", [POINTER, LONG])
    job, number = builder.arguments
    addresses = _JOB.get(builder, job, "rows_at tiles_at out_at quantized_at", POINTER)
    rows_at, tiles_at, out_at, quantized_at = addresses
    used, count, tiles, quantizing = _JOB.get(builder, job, "used depth tiles quantizing")
    row_size = integers.size(builder, count)
    with builder.if_then(builder.icmp_unsigned("<", number, quantizing)):
        first = builder.mul(number, long(_ROUNDED))
        end = builder.least(builder.add(first, long(_ROUNDED)), used)
        row = ForLoop(builder, first, end, 1)
        from_ = builder.at(rows_at, builder.mul(row.index, count), FLOAT)
        to = builder.at(quantized_at, builder.mul(row.index, row_size))
        builder.call(write, [from_, count, to])
        row.close()
        builder.ret_void()
    _JOB.wait(builder, job, quantizing)
    number = builder.sub(number, quantizing)
    tile, chunk = builder.urem(number, tiles), builder.udiv(number, tiles)
    width = builder.mul(tiles, long(COLUMNS))
    tile_size = panel.size(builder, count, number_format)
    numbers = builder.at(tiles_at, builder.mul(tile, tile_size))
    out = builder.at(out_at, builder.mul(tile, long(COLUMNS)), FLOAT)
    begin = builder.mul(chunk, long(_CHUNK))
    starts, ahead = ir.Constant(BIT, 1), builder.at(numbers, _AHEAD)

    def multiply(first: Value, number: Value) -> None:
        first = builder.add(first, begin)
        x = builder.at(quantized_at, builder.mul(first, row_size))
        to = builder.at(out, builder.mul(first, width), FLOAT)
        arguments = [x, count, numbers, count, to, width, starts, ahead]
        micro_kernel.choose(builder, functions, number, arguments)

    rows = builder.least(builder.sub(used, begin), long(_CHUNK))
    _for_some_rows(builder, rows, multiply)
    builder.ret_void()
    return builder.function


def _unit(module: ir.Module, number_format: str) -> ir.Function:
    """`unit(job, number)`: one tile for a chunk of rows."""
    of_floats = {
        # A single float32 row is limited by memory anyway; dequantized numbers are in the cache.
        rows: micro_kernel.micro_kernel(
            module, rows, "float32", prefetches=number_format == "float32" and rows > 1
        )
        for rows in range(1, micro_kernel.ROWS + 1)
    }
    of_format = of_floats
    if number_format != "float32":
        of_format = {
            rows: micro_kernel.micro_kernel(module, rows, number_format, prefetches=True)
            for rows in _FEW.get(number_format, _rows_of_blocks())
        }
        dequantize = micro_kernel.dequantize(module, number_format)
    builder = Builder(module, "unit", [POINTER, LONG])
    job, number = builder.arguments
    at_once = max(_DEPTH, FORMATS[number_format].block if number_format in FORMATS else 0)
    unpacked = builder.room(FLOAT, at_once * COLUMNS)
    rows_at, tiles_at, out_at = _JOB.get(builder, job, "rows_at tiles_at out_at", POINTER)
    rows, used, count, tiles = _JOB.get(builder, job, "rows used depth tiles")
    tile, chunk = builder.urem(number, tiles), builder.udiv(number, tiles)
    width = builder.mul(tiles, long(COLUMNS))
    tile_size = panel.size(builder, count, number_format)
    numbers = builder.at(tiles_at, builder.mul(tile, tile_size))
    out = builder.at(out_at, builder.mul(tile, long(COLUMNS)), FLOAT)
    is_few = _is_few(builder, rows, number_format)
    with builder.if_then(is_few):
        starts, ahead = ir.Constant(BIT, 1), builder.at(numbers, _AHEAD)

        def multiply(first: Value, number: Value) -> None:
            x = builder.at(rows_at, builder.mul(first, count), FLOAT)
            to = builder.at(out, builder.mul(first, width), FLOAT)
            arguments = [x, count, numbers, count, to, width, starts, ahead]
            micro_kernel.choose(builder, of_format, number, arguments)

        if number_format in FORMATS:
            _for_some_rows(builder, used, multiply)
        else:
            multiply(long(0), used)
        builder.ret_void()
    first = builder.mul(chunk, long(_CHUNK))
    last = builder.least(builder.add(first, long(_CHUNK)), used)
    depths = ForLoop(builder, long(0), count, at_once)
    some = builder.least(builder.sub(count, depths.index), long(at_once))
    panel_at = builder.at(numbers, panel.size(builder, depths.index, number_format))
    ahead = builder.at(panel_at, _AHEAD)
    if number_format != "float32":
        builder.call(dequantize, [panel_at, some, unpacked, ahead])
        panel_at = unpacked
    starts = builder.icmp_unsigned("==", depths.index, long(0))
    blocks = ForLoop(builder, first, last, micro_kernel.ROWS)
    block = builder.least(builder.sub(last, blocks.index), long(micro_kernel.ROWS))
    x = builder.at(rows_at, builder.add(builder.mul(blocks.index, count), depths.index), FLOAT)
    to = builder.at(out, builder.mul(blocks.index, width), FLOAT)
    arguments = [x, count, panel_at, some, to, width, starts, ahead]
    micro_kernel.choose(builder, of_floats, block, arguments)
    blocks.close()
    depths.close()
    builder.ret_void()
    return builder.function


def _rows_of_blocks() -> tuple[int, ...]:
    """Row counts that are multiplied with blocks at a time, limited by the registers."""
    registers, lanes = machine_code.vector_registers()
    return (1, 2, 3, 4, 8) if registers * lanes >= 512 else (1, 2, 3, 4)


def _for_some_rows(builder: Builder, rows: Value, multiply: Callable[[Value, Value], None]) -> None:
    """Adds `multiply(first, number)` for all rows, in groups of `_rows_of_blocks`."""
    most, done = max(_rows_of_blocks()), long(0)
    if most > 4:
        done = builder.and_(rows, long(-most))
        with builder.if_then(builder.icmp_unsigned(">", done, long(0))):
            several = ForLoop(builder, long(0), done, most)
            multiply(several.index, long(most))
            several.close()
    with builder.if_then(builder.icmp_unsigned("<", done, rows)):
        some = ForLoop(builder, done, rows, 4)
        multiply(some.index, builder.least(builder.sub(rows, some.index), long(4)))
        some.close()


def _is_few(builder: Builder, rows: Value, number_format: str) -> Value:
    """Whether numbers are dequantized in registers for this many rows."""
    if number_format in FORMATS:
        return builder.icmp_unsigned("<=", rows, long(_FEW_OF_BLOCKS))
    is_one_of = [builder.icmp_unsigned("==", rows, long(few)) for few in _FEW[number_format]]
    return functools.reduce(builder.or_, is_one_of)


def _handler(
    module: ir.Module,
    name: str,
    number_format: str,
    unit: ir.Function,
    integers: QuantizedRows | None,
    is_split: bool,
) -> None:
    """XLA's handler. Operands: rows and tiles; of several matrices also the number of one, int32,
    which has as many tiles as the result.
    """
    call = Handler(module, name)
    rows_at, rows, count = call.operand(0, 2)
    tiles_at, tiles = call.operand(1, 1)
    if is_split:
        tiles = call.udiv(call.result_columns, long(COLUMNS))
        (number_at,) = call.operand(2)
        number = call.zext(call.get(number_at, WORD), LONG)
        size = call.mul(tiles, panel.size(call, count, number_format))
        tiles_at = call.at(tiles_at, call.mul(number, size))
    # The rows in use, or the first if none is: from `begin` up to `end`.
    each = ForLoop(call, long(0), rows, 1, [long(0), long(0)])
    begin, end = each.values
    first = call.get(call.at(rows_at, call.mul(each.index, count), FLOAT), FLOAT)
    following = call.add(each.index, long(1))
    end = call.select(call.fcmp_ordered("ord", first, first), following, end)
    is_none = call.icmp_unsigned("==", end, long(0))
    begin, end = each.close([call.select(is_none, following, begin), end])
    end = call.greatest(end, long(1))
    begin = call.least(begin, call.sub(end, long(1)))
    row_size = call.mul(tiles, long(4 * COLUMNS))
    for unused, after in ((long(0), begin), (end, rows)):
        place = call.at(call.result, call.mul(unused, row_size))
        size = call.mul(call.sub(after, unused), row_size)
        call.intrinsic("memset", POINTER, [place, NAN_BYTE, size])
    used = call.sub(end, begin)
    rows_at = call.at(rows_at, call.mul(begin, count), FLOAT)
    out_at = call.at(call.result, call.mul(begin, row_size))
    units = call.udiv(call.add(used, long(_CHUNK - 1)), long(_CHUNK))
    if integers is None:
        units = call.select(_is_few(call, rows, number_format), long(1), units)
    units = call.mul(tiles, units)
    multiplications = call.mul(call.mul(used, count), call.mul(tiles, long(COLUMNS)))
    is_small = call.icmp_unsigned("<", multiplications, long(_ALONE))
    values = {"rows_at": rows_at, "tiles_at": tiles_at, "out_at": out_at}
    values |= {"rows": rows, "used": used, "depth": count, "tiles": tiles}
    if integers is not None:
        quantizing = call.udiv(call.add(used, long(_ROUNDED - 1)), long(_ROUNDED))
        space = call.mul(used, integers.size(call, count))
        quantized_at = call.allocate(space)
        values |= {"quantized_at": quantized_at, "quantizing": quantizing}
        units = call.add(units, quantizing)
    _JOB.share(call, unit, values, units, is_small, _RUNS)
    call.close()


def build_columns(number_format: str, name: str) -> ir.Module:
    """XLA's handler for columns. Operands: places, int32, and tiles; result `[places, in]`."""
    module = ir.Module(name)
    read = micro_kernel.column(module, number_format)
    builder = Builder(module, "unit", [POINTER, LONG])
    job, number = builder.arguments
    addresses = _COLUMNS_JOB.get(builder, job, "places_at tiles_at out_at", POINTER)
    places_at, tiles_at, out_at = addresses
    (count,) = _COLUMNS_JOB.get(builder, job, "depth")
    place = builder.zext(builder.get(builder.at(places_at, number, WORD), WORD), LONG)
    tile_size = panel.size(builder, count, number_format)
    tile = builder.at(tiles_at, builder.mul(builder.udiv(place, long(COLUMNS)), tile_size))
    to = builder.at(out_at, builder.mul(number, count), FLOAT)
    builder.call(read, [tile, count, builder.urem(place, long(COLUMNS)), to])
    builder.ret_void()

    call = Handler(module, name)
    places_at, places = call.operand(0, 1)
    (tiles_at,) = call.operand(1)
    count = call.result_columns
    values = {"places_at": places_at, "tiles_at": tiles_at, "out_at": call.result, "depth": count}
    is_small = call.icmp_unsigned("<", call.mul(places, count), long(_ALONE // LANES))
    _COLUMNS_JOB.share(call, builder.function, values, places, is_small)
    call.close()
    return module
