"""Loops along k over a panel of a tile, whose numbers they unpack in registers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from llvmlite import ir

from xla_backend.kernels import machine_code
from xla_backend.kernels.machine_code import (
    BYTE,
    FLOAT,
    HALF,
    LANES,
    VECTOR,
    WORD,
    Builder,
    ForLoop,
    Value,
    long,
)
from xla_backend.kernels.matmul.blocks import FORMATS, Format
from xla_backend.kernels.matmul.packing import (
    COLUMNS,
    depth_of_step,
    depth_of_unit,
    lines_of_block,
    lines_of_unit,
)

VECTORS = COLUMNS // LANES
UNROLLED = 4
"""k of floats per iteration of the inner loop; for blocks twice as many, or those in a word."""

FLOAT_UNIT = 2.0**-24
"""The factor for `floats`."""

_CACHE_LINE = 64
# llvm.prefetch: read, locality 2, data cache.
_TO_READ = [ir.Constant(WORD, value) for value in (0, 2, 1)]
_FLOAT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_WORDS = ir.VectorType(WORD, LANES)
_BYTES_OF_WORDS = ir.VectorType(BYTE, 4 * LANES)

Use = Callable[[Builder, Value, Sequence[Value], list[Value]], None]


def size(builder: Builder, depth: Value, number_format: str) -> Value:
    """Bytes of a tile of this depth, in whole blocks."""
    if number_format in _FLOAT_BYTES:
        return builder.mul(depth, long(COLUMNS * _FLOAT_BYTES[number_format]))
    form = FORMATS[number_format]
    blocks = builder.udiv(depth, long(form.block))
    return builder.mul(blocks, long(COLUMNS * lines_of_block(form)))


def vectors_at_once(rows: int, number_format: str) -> int:
    """Vectors of columns whose sums for these rows fit in three quarters of the registers.

    With few registers, dequantizing blocks takes as many as two rows.
    """
    registers, lanes = machine_code.vector_registers()
    room = registers * 3 // 4 // (LANES // lanes)
    each = rows + (2 if number_format in FORMATS else 0)
    return next(n for n in (4, 2, 1) if n * each <= room or n == 1)


class Panel(NamedTuple):
    """A panel of a tile: some vectors of columns, along k.

    Attributes:
        at: the tile's address. depth: numbers along k. column, vectors: first column, and number of
        vectors. ahead: address to prefetch from into the second-level cache: for each k, as far
            after it as its numbers are after `at`. None: no prefetch.
    """

    at: Value
    depth: Value
    column: Value
    vectors: int
    ahead: Value | None

    def read(self, builder: Builder, start: Value, kind: ir.Type, bits: int) -> list[Value]:
        """The vectors of numbers of `bits` bits that begin at byte `start`."""
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


def for_each_k(
    builder: Builder, number_format: str, panel: Panel, use: Use, values: Sequence[Value]
) -> list[Value]:
    """Adds a loop along k over a panel, with loop-carried values.

    `use(builder, k, numbers, values)` adds the code for one k, with its float32 vectors. It may
    replace the values.
    """
    if number_format in FORMATS:
        form = FORMATS[number_format]
        return for_groups(builder, form, panel, _Dequantized(builder, form, use), values)
    bytes_ = _FLOAT_BYTES[number_format]
    loop = ForLoop(builder, long(0), panel.depth, UNROLLED, values)
    values = list(loop.values)
    for more in range(UNROLLED):
        k = builder.add(loop.index, long(more))
        start = builder.mul(k, long(COLUMNS * bytes_))
        if number_format == "float32":
            found = panel.read(builder, start, FLOAT, 32)
        elif number_format == "bfloat16":
            read = panel.read(builder, start, HALF, 16)
            found = [_from_bfloat16(builder, bits) for bits in read]
        else:
            read = panel.read(builder, start, ir.HalfType(), 16)
            found = [builder.fpext(x, VECTOR) for x in read]
        use(builder, k, found, values)
    return loop.close(values)


def _from_bfloat16(builder: Builder, bits: Value) -> Value:
    """bfloat16 is the upper half of a float32."""
    upper = builder.shl(builder.zext(bits, _WORDS), ir.Constant(_WORDS, [16] * LANES))
    return builder.bitcast(upper, VECTOR)


class ScaleGroup(NamedTuple):
    """Numbers along k that share a scale and a minimum.

    Attributes:
        first, depth: its first k, and how many. factors: adds code that reads the
        scales, times a constant, and the minima (None if there are none), as vectors:
            a number is `value * scale + minimum`.
    """

    first: Value
    depth: int
    factors: Callable[[float], tuple[list[Value], list[Value] | None]]


class ForGroup(Protocol):
    """Adds the code for a group. `sums` are values carried only through it."""

    def begin(self, group: ScaleGroup, values: list[Value]) -> list[Value]:
        """Adds the beginning; returns the sums."""

    def use(self, k: Value, words: list[Value], sums: list[Value]) -> None:
        """Adds the code for the values of four k, the bytes of `words`; may replace the sums."""

    def end(self, group: ScaleGroup, sums: list[Value], values: list[Value]) -> list[Value]:
        """Adds the end; returns the values for the next group."""


class _Dequantized:
    """Dequantizes blocks, for code that takes any format."""

    def __init__(self, builder: Builder, form: Format, use: Use) -> None:
        self._builder, self._form, self._use = builder, form, use
        self._factors: tuple[list[Value], list[Value] | None]

    def begin(self, group: ScaleGroup, values: list[Value]) -> list[Value]:
        self._factors = group.factors(FLOAT_UNIT)
        return values

    def use(self, k: Value, words: list[Value], sums: list[Value]) -> None:
        scales, minima = self._factors
        for more, numbers in enumerate(floats(self._builder, self._form, words)):
            if minima is None:
                scaled = [self._builder.fmul(*pair) for pair in zip(numbers, scales, strict=True)]
            else:
                triples = zip(numbers, scales, minima, strict=True)
                scaled = [self._builder.multiply_add(*each) for each in triples]
            self._use(self._builder, self._builder.add(k, long(more)), scaled, sums)

    def end(self, group: ScaleGroup, sums: list[Value], values: list[Value]) -> list[Value]:
        return sums


def for_groups(
    builder: Builder, form: Format, panel: Panel, do: ForGroup, values: Sequence[Value]
) -> list[Value]:
    """Adds a loop over the groups of a panel of blocks, with loop-carried values."""
    step, unit = depth_of_step(form), depth_of_unit(form)
    round_ = max(step, 2 * UNROLLED)
    factor_rows, value_rows = lines_of_unit(form)
    blocks = ForLoop(builder, long(0), builder.udiv(panel.depth, long(form.block)), 1, values)
    block = builder.mul(blocks.index, long(COLUMNS * lines_of_block(form)))
    units = ForLoop(builder, long(0), long(form.block // unit), 1, blocks.values)
    factors_at = builder.add(block, long(2 * COLUMNS * len(form.halves)))
    unit_bytes = long(COLUMNS * (factor_rows + value_rows))
    factors_at = builder.add(factors_at, builder.mul(units.index, unit_bytes))
    words_at = builder.add(factors_at, long(COLUMNS * factor_rows))
    first = builder.mul(blocks.index, long(form.block))
    first = builder.add(first, builder.mul(units.index, long(unit)))

    def words(k: Value, depth: int) -> list[list[Value]]:
        """The words of `depth` numbers from a k of this unit."""
        bytes_ = COLUMNS * form.bits // 8
        start = builder.add(words_at, builder.mul(k, long(bytes_)))
        found = []
        for at in range(0, depth, step):
            found += _words(builder, form, panel, builder.add(start, long(at * bytes_)), step)
        return found

    def use(k: Value, words: list[list[Value]], sums: list[Value]) -> None:
        k = builder.add(first, k)
        for place, word in enumerate(words):
            do.use(builder.add(k, long(4 * place)), word, sums)

    values = list(units.values)
    whole = words(long(0), round_) if round_ >= form.group else []
    for number in range(unit // form.group):
        at = long(number * form.group)
        start = builder.add(factors_at, long(COLUMNS * factor_rows * form.group // unit * number))
        group = ScaleGroup(
            builder.add(first, at),
            form.group,
            functools.partial(_factors, builder, form, panel, block, start),
        )
        sums = do.begin(group, values)
        if whole:
            in_group = form.group // 4
            use(at, whole[number * in_group : (number + 1) * in_group], sums)
        else:
            rounds = ForLoop(builder, long(0), long(form.group), round_, sums)
            sums, k = list(rounds.values), builder.add(at, rounds.index)
            use(k, words(k, round_), sums)
            sums = rounds.close(sums)
        values = do.end(group, sums, values)
    return blocks.close(units.close(values))


def _factors(
    builder: Builder, form: Format, panel: Panel, block: Value, start: Value, constant: float
) -> tuple[list[Value], list[Value] | None]:
    found = [
        [
            builder.fpext(half, VECTOR)
            for half in panel.read(
                builder, builder.add(block, long(2 * COLUMNS * kind)), ir.HalfType(), 16
            )
        ]
        for kind in range(len(form.halves))
    ]
    if form.factors is not None:
        words = [builder.sext(x, _WORDS) for x in panel.read(builder, start, BYTE, 8)]
        if form.nibbles:
            low = [builder.and_(x, _splat(15)) for x in words]
            kinds = [low, [builder.and_(builder.lshr(x, _splat(4)), _splat(15)) for x in words]]
        elif form.has_minima:
            more = panel.read(builder, builder.add(start, long(COLUMNS)), BYTE, 8)
            kinds = [words, [builder.sext(x, _WORDS) for x in more]]
        else:
            kinds = [words]
        found = [
            [
                builder.fmul(half, builder.sitofp(word, VECTOR))
                for half, word in zip(*each, strict=True)
            ]
            for each in zip(found, kinds, strict=True)
        ]
    times = ir.Constant(VECTOR, [constant] * LANES)
    scales = [builder.fmul(scale, times) for scale in found[0]] if constant != 1 else found[0]
    return scales, found[1] if form.has_minima else None


def _words(
    builder: Builder, form: Format, panel: Panel, start: Value, step: int
) -> list[list[Value]]:
    """The values of a step along k, four in a word: `[step / 4][vectors]`."""
    result: list[list[Value]] = [[] for _ in range(step // 4)]
    shift = 0
    for plane in form.planes:
        in_word = 8 // plane.bits
        for word in range(step // 4 // in_word):
            read = panel.read(builder, start, WORD, 32)
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
    return result


def _masked(builder: Builder, word: Value, right: int, mask: int) -> Value:
    """Some bits of every byte, shifted to the right or, if that is negative, to the left."""
    if right > 0:
        word = builder.lshr(word, _splat(right))
    elif right < 0:
        word = builder.shl(word, _splat(-right))
    return word if mask == 0xFFFFFFFF else builder.and_(word, _splat(mask))


def floats(builder: Builder, form: Format, words: list[Value]) -> list[list[Value]]:
    """The numbers of four k, one after the other, over `FLOAT_UNIT`."""
    signed = [_signed(builder, form, x) for x in words]
    return [[_byte(builder, x, byte) for x in signed] for byte in range(4)]


def unsigned(builder: Builder, form: Format, words: list[Value]) -> list[Value]:
    """The numbers of the values in every byte, plus `zero_of` the format: none is negative."""
    if form.table is not None:
        table = [number + zero_of(form) for number in form.table]
        bytes_ = [builder.bitcast(x, _BYTES_OF_WORDS) for x in words]
        found = [machine_code.table_lookup(builder, table, x) for x in bytes_]
        return [builder.bitcast(x, _WORDS) for x in found]
    if form.bits == 8:  # signed
        return [builder.xor(x, _splat(0x80808080)) for x in words]
    return words


def zero_of(form: Format) -> int:
    """What is added to values to make them unsigned bytes."""
    return 128 if form.table is not None or form.bits == 8 else form.zero


def _signed(builder: Builder, form: Format, words: Value) -> Value:
    """The numbers of the values in every byte."""
    if form.table is None and not form.zero:
        return words
    bytes_ = builder.bitcast(words, _BYTES_OF_WORDS)
    if form.table is not None:
        bytes_ = machine_code.table_lookup(builder, form.table, bytes_)
    else:
        zeros = ir.Constant(_BYTES_OF_WORDS, [form.zero] * 4 * LANES)
        bytes_ = builder.sub(bytes_, zeros)
    return builder.bitcast(bytes_, _WORDS)


def _byte(builder: Builder, word: Value, byte: int) -> Value:
    """One byte of every word as float32 times 2^24: as the highest byte it keeps its sign."""
    if byte == 0:
        word = builder.shl(word, _splat(24))
    elif byte == 3:
        word = builder.and_(word, _splat(0xFF000000))
    else:
        # A shuffle instead of a shift and a mask.
        nothing = ir.Constant(_BYTES_OF_WORDS, [0] * 4 * LANES)
        places = [at - 3 + byte if at % 4 == 3 else 4 * LANES for at in range(4 * LANES)]
        shuffled = builder.shuffle_vector(
            builder.bitcast(word, _BYTES_OF_WORDS),
            nothing,
            ir.Constant(ir.VectorType(WORD, 4 * LANES), places),
        )
        word = builder.bitcast(shuffled, _WORDS)
    return builder.sitofp(word, VECTOR)


def _splat(number: int) -> ir.Constant:
    return ir.Constant(_WORDS, [number] * LANES)
