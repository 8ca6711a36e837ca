"""Rows of a product rounded to 8 bits: layout, rounding, and dot products with bytes of weights.

Knows the processor's instructions for them. Must not know matrices, nor who calls it. 32 neighbours
of a row share a scale, their largest magnitude over 127; all sums of a group are exact integers. A
row that begins with NaN has a NaN scale, and so NaN products.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir

from xla_backend.matmul.blocks import GROUP
from xla_backend.matmul.machine_code import (
    BYTE,
    FLOAT,
    HALF,
    LANES,
    LONG,
    POINTER,
    VECTOR,
    WORD,
    Builder,
    Loop,
    Value,
    long,
)

_SCALE, _SUM, _SUMS_OF_HALVES = GROUP, GROUP + 4, GROUP + 8
_GROUP_BYTES = GROUP + 16
"""A group: its numbers, int8; the scale; the scaled sums of all and of each half, float32."""
_LARGE, _BITS_OF_LARGE = 1.5 * 2.0**23, 0x4B400000
_WORDS = ir.VectorType(WORD, LANES)
_BYTES = ir.VectorType(BYTE, 4 * LANES)


def size(builder: Builder, lines: Value) -> Value:
    """Bytes of `lines` numbers of a row, in whole groups."""
    return builder.mul(builder.udiv(lines, long(GROUP)), long(_GROUP_BYTES))


def quantize(module: ir.Module) -> ir.Function:
    """`quantize(row, lines, to)`: rounds a row of float32."""
    builder = Builder(module, "quantize", [POINTER, LONG, POINTER])
    row, lines, to = builder.arguments
    groups = Loop(builder, long(0), lines, GROUP)
    place, out = builder.at(row, groups.index, FLOAT), builder.at(to, size(builder, groups.index))
    numbers = [
        builder.load(builder.at(place, at, FLOAT), typ=VECTOR, align=4)
        for at in range(0, GROUP, LANES)
    ]
    # Without their signs, the bits of floats are in the floats' order, and NaN is the greatest.
    sizes = [builder.and_(builder.bitcast(x, _WORDS), _splat(0x7FFFFFFF)) for x in numbers]
    pairs = builder.select(builder.icmp_unsigned(">", *sizes), *sizes)
    greatest = builder.intrinsic(f"llvm.vector.reduce.umax.v{LANES}i32", WORD, [pairs])
    greatest = builder.bitcast(greatest, FLOAT)
    scale = builder.fmul(greatest, ir.Constant(FLOAT, 1 / 127))
    inverse = builder.fdiv(ir.Constant(FLOAT, 127.0), greatest)
    is_zero = builder.fcmp_ordered("==", greatest, ir.Constant(FLOAT, 0.0))
    factor = builder.splat(builder.select(is_zero, ir.Constant(FLOAT, 0.0), inverse))
    builder.store(scale, builder.at(out, _SCALE), align=4)
    sums: list[Value] = []
    for at, x in enumerate(numbers):
        # Adding a large number rounds to an integer, which the lowest bits of the sum are.
        rounded = builder.multiply_add(x, factor, ir.Constant(VECTOR, [_LARGE] * LANES))
        words = builder.bitcast(rounded, _WORDS)
        bytes_ = builder.trunc(words, ir.VectorType(BYTE, LANES))
        builder.store(bytes_, builder.at(out, at * LANES), align=4)
        words = builder.sub(words, _splat(_BITS_OF_LARGE))
        total = builder.intrinsic(f"llvm.vector.reduce.add.v{LANES}i32", WORD, [words])
        sums.append(builder.fmul(builder.sitofp(total, FLOAT), scale))
        builder.store(sums[-1], builder.at(out, _SUMS_OF_HALVES + 4 * at), align=4)
    builder.store(builder.fadd(*sums), builder.at(out, _SUM), align=4)
    groups.close()
    builder.ret_void()
    return builder.function


class Group:
    """16 or 32 neighbours of a row, each broadcast to a vector."""

    def __init__(self, builder: Builder, row: Value, first: Value, lines: int) -> None:
        self._builder = builder
        self._group = builder.at(row, size(builder, first))
        half = builder.and_(first, long(GROUP // 2))
        self._numbers = builder.at(self._group, half) if lines < GROUP else self._group
        self._sum = builder.at(self._group, _SUM)
        if lines < GROUP:
            halves = builder.at(self._group, _SUMS_OF_HALVES)
            self._sum = builder.at(halves, builder.udiv(half, long(4)))

    def four(self, line: Value) -> Value:
        """The numbers of four lines of the group as a word."""
        return self._splat(self._builder.at(self._numbers, line), WORD)

    def scale(self) -> Value:
        """What the numbers are multiplied by."""
        return self._splat(self._builder.at(self._group, _SCALE), FLOAT)

    def sum(self) -> Value:
        """The sum of the numbers, scaled."""
        return self._splat(self._sum, FLOAT)

    def _splat(self, place: Value, kind: ir.Type) -> Value:
        return self._builder.splat(self._builder.load(place, typ=kind, align=4))


def dot(builder: Builder, sums: Value, weights: Value, x: Value, bits: int) -> Value:
    """Adds to each word of `sums` the products of four unsigned bytes and four signed ones.

    Args:
        sums, weights, x: vectors of words.
        bits: of the weights' bytes at most.
    """
    features = llvm.get_host_cpu_features()
    if features.get("avx512vnni"):
        a, b = (builder.bitcast(each, _BYTES) for each in (weights, x))
        return builder.intrinsic("llvm.x86.avx512.vpdpbusd.512", _WORDS, [sums, a, b])
    if features.get("avx2"):
        return builder.add(sums, _by_pairs(builder, weights, x, bits))
    for byte in range(4):
        weight = builder.and_(builder.lshr(weights, _splat(8 * byte)), _splat(255))
        number = builder.ashr(builder.shl(x, _splat(24 - 8 * byte)), _splat(24))
        sums = builder.add(sums, builder.mul(weight, number))
    return sums


def _by_pairs(builder: Builder, weights: Value, x: Value, bits: int) -> Value:
    """Products summed by pairs in 16 bits. Two of 8 bits each would overflow, so these are
    split."""
    masks = (0x00FF00FF, 0xFF00FF00) if bits == 8 else (0xFFFFFFFF,)
    half, pairs, words = ir.VectorType(BYTE, 32), ir.VectorType(HALF, 16), ir.VectorType(WORD, 8)
    ones = ir.Constant(pairs, [1] * 16)
    found = []
    for begin in (0, 8):
        lanes = ir.Constant(ir.VectorType(WORD, 8), [*range(begin, begin + 8)])
        number = builder.bitcast(builder.shuffle_vector(x, x, lanes), half)
        total = None
        for mask in masks:
            weight = builder.and_(weights, _splat(mask)) if mask != 0xFFFFFFFF else weights
            weight = builder.bitcast(builder.shuffle_vector(weight, weight, lanes), half)
            products = builder.intrinsic("llvm.x86.avx2.pmadd.ub.sw", pairs, [weight, number])
            sums = builder.intrinsic("llvm.x86.avx2.pmadd.wd", words, [products, ones])
            total = sums if total is None else builder.add(total, sums)
        found.append(total)
    return builder.shuffle_vector(*found, ir.Constant(_WORDS, [*range(LANES)]))


def _splat(number: int) -> ir.Constant:
    return ir.Constant(_WORDS, [number] * LANES)
