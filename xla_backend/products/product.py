"""The product of rows and a matrix in tiles, as a function that XLA calls.

Knows how a processor multiplies quickly. Must not know models. XLA's own products read float32
alone, lay the weights out anew in each call, and of one row or few use a part of the memory's
speed. Here every number of the matrix is read once for few rows, in its own format, from end to
end, and becomes float32 in a register; all sums are float32.

With more rows, a part of a tile becomes float32 in the cache first, and all rows pass over it
(after K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). The
threads of XLA's pool take tiles one by one. One function serves matrices and rows of any number.
"""

from __future__ import annotations

import functools

from llvmlite import ir

from xla_backend.products import handler, sums
from xla_backend.products.handler import Handler
from xla_backend.products.machine_code import BIT, FLOAT, LONG, POINTER, Builder, Loop, Value, long
from xla_backend.products.pool import Job
from xla_backend.products.tiles import COLUMNS, FORMATS, PRODUCT

_FEW = dict.fromkeys(FORMATS, (1, 2, 3, 4)) | {
    "float32": (1, 2, 3, 4, 5, 6),
    "int8": (1, 2, 3, 4, 8),
    "int4": (1, 2, 3, 4, 8),
}
"""Numbers of rows with which numbers become float32 in registers, and never in memory."""
_LINES = 96
"""Lines of a tile that are float32 in the first cache at once: 24 KB."""
_CHUNK = 96
"""Rows that one thread takes at a time."""
_ALONE = 2**18
"""Multiplications that one thread does sooner than it can wake another."""
_AHEAD = 4096
"""Bytes between what is read and what the second cache is asked for: by itself, a processor asks
for nothing beyond a page."""

_JOB = Job("rows_at tiles_at scales_at out_at rows lines tiles")


def name_of(number_format: str) -> str:
    """The name that XLA knows a product by."""
    return PRODUCT + number_format


def prepare(number_format: str) -> None:
    """Begins to make the product of a format ready; see `handler.prepare`."""
    handler.prepare(name_of(number_format), functools.partial(_module, number_format))


def _module(number_format: str, name: str) -> ir.Module:
    module = ir.Module(name)
    _handler(module, name, number_format, _unit(module, number_format))
    return module


def _unit(module: ir.Module, number_format: str) -> ir.Function:
    """`unit(job, number)`: all that a thread does at a time, one tile for a chunk of rows."""
    of_lines = {
        # One row of float32 waits for memory alone; what became float32 is in the cache.
        rows: sums.sums(module, rows, "float32", asks_ahead=number_format == "float32" and rows > 1)
        for rows in range(1, sums.ROWS + 1)
    }
    as_they_are = of_lines
    if number_format != "float32":
        as_they_are = {
            rows: sums.sums(module, rows, number_format, asks_ahead=True)
            for rows in _FEW[number_format]
        }
        widen = sums.widen(module, number_format)
    builder = Builder(module, "unit", [POINTER, LONG])
    job, number = builder.arguments
    panel = builder.room(FLOAT, _LINES * COLUMNS)
    addresses = _JOB.get(builder, job, "rows_at tiles_at scales_at out_at", POINTER)
    rows_at, tiles_at, scales_at, out_at = addresses
    rows, lines, tiles = _JOB.get(builder, job, "rows lines tiles")
    tile, chunk = builder.urem(number, tiles), builder.udiv(number, tiles)
    width = builder.mul(tiles, long(COLUMNS))
    numbers = builder.at(tiles_at, builder.mul(tile, sums.size(builder, lines, number_format)))
    scales = builder.at(
        scales_at, builder.mul(tile, sums.scales_size(builder, lines, number_format))
    )
    out = builder.at(out_at, builder.mul(tile, long(COLUMNS)), FLOAT)
    is_few = _is_few(builder, rows, number_format)
    with builder.if_then(is_few):
        begins, ahead = ir.Constant(BIT, 1), builder.at(numbers, _AHEAD)
        arguments = [rows_at, lines, numbers, scales, lines, out, width, begins, ahead]
        sums.choose(builder, as_they_are, rows, arguments)
        builder.ret_void()
    first = builder.mul(chunk, long(_CHUNK))
    last = builder.least(builder.add(first, long(_CHUNK)), rows)
    parts = Loop(builder, long(0), lines, _LINES)
    count = builder.least(builder.sub(lines, parts.index), long(_LINES))
    part = builder.at(numbers, sums.size(builder, parts.index, number_format))
    ahead = builder.at(part, _AHEAD)
    if number_format != "float32":
        of_part = builder.at(scales, sums.scales_size(builder, parts.index, number_format))
        builder.call(widen, [part, of_part, count, panel, ahead])
        part = panel
    begins = builder.icmp_unsigned("==", parts.index, long(0))
    blocks = Loop(builder, first, last, sums.ROWS)
    block = builder.least(builder.sub(last, blocks.index), long(sums.ROWS))
    x = builder.at(rows_at, builder.add(builder.mul(blocks.index, lines), parts.index), FLOAT)
    to = builder.at(out, builder.mul(blocks.index, width), FLOAT)
    arguments = [x, lines, part, part, count, to, width, begins, ahead]
    sums.choose(builder, of_lines, block, arguments)
    blocks.close()
    parts.close()
    builder.ret_void()
    return builder.function


def _is_few(builder: Builder, rows: Value, number_format: str) -> Value:
    """Whether so many rows are among `_FEW`."""
    is_one_of = [builder.icmp_unsigned("==", rows, long(few)) for few in _FEW[number_format]]
    return functools.reduce(builder.or_, is_one_of)


def _handler(module: ir.Module, name: str, number_format: str, unit: ir.Function) -> None:
    """What XLA calls. Operands: rows, numbers and, if there are, scales."""
    call = Handler(module, name)
    rows_at, rows, lines = call.operand(0, 2)
    tiles_at, tiles = call.operand(1, 1)
    (scales_at,) = call.operand(2) if number_format in sums.SCALES else (tiles_at,)
    chunks = call.udiv(call.add(rows, long(_CHUNK - 1)), long(_CHUNK))
    is_few = _is_few(call, rows, number_format)
    units = call.mul(tiles, call.select(is_few, long(1), chunks))
    multiplications = call.mul(call.mul(rows, lines), call.mul(tiles, long(COLUMNS)))
    is_small = call.icmp_unsigned("<", multiplications, long(_ALONE))
    values = {"rows_at": rows_at, "tiles_at": tiles_at, "scales_at": scales_at}
    values |= {"out_at": call.result, "rows": rows, "lines": lines, "tiles": tiles}
    _JOB.share(call, unit, values, units, is_small)
    call.close()
