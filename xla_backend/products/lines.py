"""The lines of a tile, one after the other, as float32 in registers.

Knows how the numbers of every format lie in a tile, and become float32. Must not know what is done
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from llvmlite import ir

from xla_backend.products import machine_code
from xla_backend.products.blocks import FORMATS, Format
from xla_backend.products.machine_code import (
    BYTE,
    FLOAT,
    HALF,
    LANES,
    VECTOR,
    WORD,
    Builder,
    Loop,
    Value,
    long,
)
from xla_backend.products.tiles import COLUMNS, header_rows, lines_of_step, rows_of_block

VECTORS = COLUMNS // LANES
UNROLLED = 4
"""Lines of floats in a round of the inner loop; of blocks twice as many, or what a word holds."""

_CACHE_LINE = 64
# llvm.prefetch: read, locality 2, data cache.
_TO_READ = [ir.Constant(WORD, value) for value in (0, 2, 1)]
_FLOAT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_WORDS = ir.VectorType(WORD, LANES)
_BYTES_OF_WORDS = ir.VectorType(BYTE, 4 * LANES)

_Use = Callable[[Builder, Value, Sequence[Value], list[Value]], None]


def size(builder: Builder, lines: Value, number_format: str) -> Value:
    """Bytes of so many lines of a tile: whole blocks."""
    if number_format in _FLOAT_BYTES:
        return builder.mul(lines, long(COLUMNS * _FLOAT_BYTES[number_format]))
    form = FORMATS[number_format]
    blocks = builder.udiv(lines, long(form.block))
    return builder.mul(blocks, long(COLUMNS * rows_of_block(form)))


class Tile(NamedTuple):
    """A part of a tile to be read.

    Attributes:
        at: its address. lines: how many. column, vectors: the first column, and vectors from there.
        ahead: with each line, the second cache is asked for what lies as far behind this address as
            the line lies behind `at`. None: for nothing.
    """

    at: Value
    lines: Value
    column: Value
    vectors: int
    ahead: Value | None

    def read(self, builder: Builder, start: Value, kind: ir.Type, bits: int) -> list[Value]:
        """The vectors of a line of numbers of so many bits, which begins at a byte."""
        start = builder.add(start, builder.mul(self.column, long(bits // 8)))
        if self.ahead is not None:
            for more in range(0, self.vectors * LANES * bits // 8, _CACHE_LINE):
                later = builder.at(self.ahead, builder.add(start, long(more)))
                builder.intrinsic("llvm.prefetch.p0", machine_code.VOID, [later, *_TO_READ])
        place, vector = builder.at(self.at, start), ir.VectorType(kind, LANES)
        return [
            builder.load(builder.at(place, at * LANES * bits // 8), typ=vector, align=bits // 8)
            for at in range(self.vectors)
        ]


def for_lines(
    builder: Builder, number_format: str, tile: Tile, use: _Use, values: Sequence[Value]
) -> list[Value]:
    """Adds a loop over the lines of a tile, which hands on values.

    `use(builder, line, numbers, values)` adds what is done with a line: with the vectors of its
    float32 numbers. It may replace the values.
    """
    if number_format in FORMATS:
        return _for_blocks(builder, FORMATS[number_format], tile, use, values)
    bytes_ = _FLOAT_BYTES[number_format]
    loop = Loop(builder, long(0), tile.lines, UNROLLED, values)
    values = list(loop.values)
    for more in range(UNROLLED):
        line = builder.add(loop.index, long(more))
        start = builder.mul(line, long(COLUMNS * bytes_))
        if number_format == "float32":
            found = tile.read(builder, start, FLOAT, 32)
        elif number_format == "bfloat16":
            read = tile.read(builder, start, HALF, 16)
            found = [_from_bfloat16(builder, bits) for bits in read]
        else:
            read = tile.read(builder, start, ir.HalfType(), 16)
            found = [builder.fpext(x, VECTOR) for x in read]
        use(builder, line, found, values)
    return loop.close(values)


def _from_bfloat16(builder: Builder, bits: Value) -> Value:
    """bfloat16 is the upper half of a float32."""
    upper = builder.shl(builder.zext(bits, _WORDS), ir.Constant(_WORDS, [16] * LANES))
    return builder.bitcast(upper, VECTOR)


def _for_blocks(
    builder: Builder, form: Format, tile: Tile, use: _Use, values: Sequence[Value]
) -> list[Value]:
    """As `for_lines`. Of a block the float16 are read, of each group its factors, then words."""
    step = lines_of_step(form)
    round_ = max(step, 2 * UNROLLED)
    unit = max(round_, form.group)
    halves_bytes, factors_bytes = (COLUMNS * rows for rows in header_rows(form))
    bits = form.bits

    blocks = Loop(builder, long(0), builder.udiv(tile.lines, long(form.block)), 1, values)
    block = builder.mul(blocks.index, long(COLUMNS * rows_of_block(form)))
    halves = [
        [
            builder.fpext(half, VECTOR)
            for half in tile.read(
                builder, builder.add(block, long(2 * COLUMNS * kind)), ir.HalfType(), 16
            )
        ]
        for kind in range(len(form.halves))
    ]
    units = Loop(builder, long(0), long(form.block // unit), 1, blocks.values)
    of_unit = long(factors_bytes * unit // form.block)
    factors_at = builder.add(
        block, builder.add(builder.mul(units.index, of_unit), long(halves_bytes))
    )
    groups = []
    for group in range(unit // form.group):
        more = long(factors_bytes * form.group // form.block * group)
        groups.append(_factors(builder, form, tile, builder.add(factors_at, more), halves))
    rounds = Loop(builder, long(0), long(unit // round_), 1, units.values)
    values = list(rounds.values)
    number = builder.add(builder.mul(units.index, long(unit // round_)), rounds.index)
    first = builder.add(
        builder.mul(blocks.index, long(form.block)), builder.mul(number, long(round_))
    )
    values_at = builder.add(block, long(halves_bytes + factors_bytes))
    values_at = builder.add(values_at, builder.mul(number, long(COLUMNS * round_ * bits // 8)))
    for in_round in range(0, round_, step):
        start = builder.add(values_at, long(COLUMNS * in_round * bits // 8))
        for place, words in enumerate(_words(builder, form, tile, start, step)):
            line = in_round + 4 * place
            scales, minima = groups[line // form.group]
            for byte in range(4):
                found = [
                    builder.multiply_add(_byte(builder, word, byte), scale, minimum)
                    for word, scale, minimum in zip(words, scales, minima, strict=True)
                ]
                use(builder, builder.add(first, long(line + byte)), found, values)
    return blocks.close(units.close(rounds.close(values)))


def _factors(
    builder: Builder, form: Format, tile: Tile, start: Value, halves: list[list[Value]]
) -> tuple[list[Value], list[Value]]:
    """The scales and the minima of a group: `value * scale + minimum` is a number."""
    found = list(halves)
    if form.factors is not None:
        words = [builder.sext(x, _WORDS) for x in tile.read(builder, start, BYTE, 8)]
        if form.nibbles:
            low = [builder.and_(x, _splat(15)) for x in words]
            kinds = [low, [builder.and_(builder.lshr(x, _splat(4)), _splat(15)) for x in words]]
        elif form.has_minima:
            more = tile.read(builder, builder.add(start, long(COLUMNS)), BYTE, 8)
            kinds = [words, [builder.sext(x, _WORDS) for x in more]]
        else:
            kinds = [words]
        found = [
            [
                builder.fmul(half, builder.sitofp(word, VECTOR))
                for half, word in zip(*each, strict=True)
            ]
            for each in zip(halves, kinds, strict=True)
        ]
    if form.has_minima:
        return found[0], found[1]
    # Exact: a scale has at most 19 bits, and zeros are powers of two.
    zero = ir.Constant(VECTOR, [float(-form.zero)] * LANES)
    return found[0], [builder.fmul(scale, zero) for scale in found[0]]


def _words(
    builder: Builder, form: Format, tile: Tile, start: Value, step: int
) -> list[list[Value]]:
    """The values of the lines of a step, four in the bytes of a word: `[step / 4][vectors]`."""
    result: list[list[Value]] = [[] for _ in range(step // 4)]
    shift = 0
    for plane in form.planes:
        in_word = 8 // plane.bits
        for word in range(step // 4 // in_word):
            read = tile.read(builder, start, WORD, 32)
            start = builder.add(start, long(4 * COLUMNS))
            mask = ((1 << plane.bits) - 1 << shift) * 0x01010101
            for neighbour in range(in_word):
                right = neighbour * plane.bits - shift
                fields = [_masked(builder, x, right, mask) for x in read]
                place = word * in_word + neighbour
                below = result[place]
                result[place] = (
                    [builder.or_(*pair) for pair in zip(below, fields, strict=True)]
                    if below
                    else fields
                )
        shift += plane.bits
    if form.table is not None:
        return [[_looked_up(builder, form, x) for x in words] for words in result]
    return result


def _masked(builder: Builder, word: Value, right: int, mask: int) -> Value:
    """Some bits of every byte, shifted to the right or, if that is negative, to the left."""
    if right > 0:
        word = builder.lshr(word, _splat(right))
    elif right < 0:
        word = builder.shl(word, _splat(-right))
    return word if mask == 0xFFFFFFFF else builder.and_(word, _splat(mask))


def _byte(builder: Builder, word: Value, byte: int) -> Value:
    """One byte of every word as float32."""
    if byte == 0:
        word = builder.and_(word, _splat(255))
    elif byte == 3:
        word = builder.lshr(word, _splat(24))
    else:
        # A shuffle instead of a shift and a mask.
        nothing = ir.Constant(_BYTES_OF_WORDS, [0] * 4 * LANES)
        places = [4 * (at // 4) + byte if at % 4 == 0 else 4 * LANES for at in range(4 * LANES)]
        shuffled = builder.shuffle_vector(
            builder.bitcast(word, _BYTES_OF_WORDS),
            nothing,
            ir.Constant(ir.VectorType(WORD, 4 * LANES), places),
        )
        word = builder.bitcast(shuffled, _WORDS)
    return builder.sitofp(word, VECTOR)


def _splat(number: int) -> ir.Constant:
    return ir.Constant(_WORDS, [number] * LANES)


def _looked_up(builder: Builder, form: Format, words: Value) -> Value:
    """What every byte of words stands for, and the format's zero more."""
    assert form.table is not None
    table = [number + form.zero for number in form.table]
    bytes_ = builder.bitcast(words, _BYTES_OF_WORDS)
    return builder.bitcast(machine_code.look_up(builder, table, bytes_), _WORDS)
