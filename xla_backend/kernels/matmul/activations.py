"""Rows as integers: layout, rounding, and dot products with bytes of weights.

Knows the processor's instructions for them. A number is an integer of one digit, 8 bits, or of
three, times a scale that it shares with its neighbours. Sums of integers are exact, so products of
three digits are no less accurate than sums of float32. A row that begins with NaN has a NaN scale,
and so NaN products.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir

from xla_backend.kernels.machine_code import (
    BYTE,
    FLOAT,
    HALF,
    LANES,
    LONG,
    POINTER,
    VECTOR,
    WORD,
    Builder,
    ForLoop,
    Value,
    long,
)

_WORDS = ir.VectorType(WORD, LANES)
_BYTES = ir.VectorType(BYTE, 4 * LANES)
EXACT_DIGITS = 3
"""Digits with which products are as accurate as float32's."""
_LEAST = 2.0**-100
"""A group below this power of 2 counts as zeros: the inverse of its scale would be infinite."""


def has_dot() -> bool:
    """Whether `dot` is one instruction: then `EXACT_DIGITS` are faster than float32."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx512vnni") or features.get("avxvnni"))


class QuantizedRows(NamedTuple):
    """Rows in groups of neighbours that share a scale.

    A group is the highest digits of all its numbers, then the lower ones, int8; the scale, float32;
    the scaled sum of the numbers, float32; and for each digit `-zero` times its sum, int32.

    Attributes:
        group: how many numbers share a scale. digits: of a number, in base 256, from -128 to 127.
        zero: what the bytes of weights are too large by.
    """

    group: int
    digits: int
    zero: int

    @property
    def scale_at(self) -> int:
        """Where in a group the scale is, in bytes."""
        return self.group * self.digits

    def size(self, builder: Builder, depth: Value) -> Value:
        """Bytes of `depth` numbers of a row, in whole groups."""
        bytes_ = self.scale_at + 8 + 4 * self.digits
        return builder.mul(builder.udiv(depth, long(self.group)), long(bytes_))

    def write(self, module: ir.Module) -> ir.Function:
        """`write(row, depth, to)`: rounds a row of float32."""
        builder = Builder(module, "round", [POINTER, LONG, POINTER])
        row, depth, to = builder.arguments
        groups = ForLoop(builder, long(0), depth, self.group)
        place = builder.at(row, groups.index, FLOAT)
        out = builder.at(to, self.size(builder, groups.index))
        numbers = [
            builder.load(builder.at(place, at, FLOAT), typ=VECTOR, align=4)
            for at in range(0, self.group, LANES)
        ]
        # Without their signs, the bits of floats are in the floats' order, and NaN is the greatest.
        sizes = [builder.and_(builder.bitcast(x, _WORDS), _splat(0x7FFFFFFF)) for x in numbers]
        most = functools.reduce(builder.greatest, sizes)
        most = builder.intrinsic(f"llvm.vector.reduce.umax.v{LANES}i32", WORD, [most])
        scale, factor = self._factors(builder, most)
        builder.store(scale, builder.at(out, self.scale_at), align=4)
        factor = builder.splat(factor)
        words = []
        for x in numbers:
            whole = builder.intrinsic(f"llvm.rint.v{LANES}f32", VECTOR, [builder.fmul(x, factor)])
            words.append(builder.fptosi(whole, _WORDS))
        total = builder.sitofp(self._total(builder, words), FLOAT)
        builder.store(builder.fmul(total, scale), builder.at(out, self.scale_at + 4), align=4)
        for digit in reversed(range(self.digits)):
            signed = []
            for at, word in enumerate(words):
                byte = builder.trunc(word, ir.VectorType(BYTE, LANES))
                builder.store(byte, builder.at(out, digit * self.group + at * LANES), align=4)
                signed.append(builder.sext(byte, _WORDS))
            less = builder.mul(self._total(builder, signed), ir.Constant(WORD, -self.zero))
            builder.store(less, builder.at(out, self.scale_at + 8 + 4 * digit), align=4)
            words = [
                builder.ashr(builder.sub(word, low), _splat(8))
                for word, low in zip(words, signed, strict=True)
            ]
        groups.close()
        builder.ret_void()
        return builder.function

    def _factors(self, builder: Builder, most: Value) -> tuple[Value, Value]:
        """A group's scale, and what its numbers are multiplied by."""
        nothing = ir.Constant(FLOAT, 0.0)
        greatest = builder.bitcast(most, FLOAT)
        if self.digits == 1:
            scale = builder.fmul(greatest, ir.Constant(FLOAT, 1 / 127))
            factor = builder.fdiv(ir.Constant(FLOAT, 127.0), greatest)
            is_zero = builder.fcmp_ordered("==", greatest, nothing)
            return scale, builder.select(is_zero, nothing, factor)
        # The scale is a power of 2, so that dividing by it is exact. A highest digit of 128 would
        # not fit: where it would be, the power is the next.
        power = builder.add(most, ir.Constant(WORD, 0x10102))
        power = builder.bitcast(builder.and_(power, ir.Constant(WORD, 0x7F800000)), FLOAT)
        of_digits = 2.0 ** (8 * self.digits - 2)
        scale = builder.fmul(power, ir.Constant(FLOAT, 1 / of_digits))
        scale = builder.fadd(scale, builder.fsub(greatest, greatest))  # NaN if that is not finite
        factor = builder.fdiv(ir.Constant(FLOAT, of_digits), power)
        is_zero = builder.fcmp_ordered("<", power, ir.Constant(FLOAT, _LEAST))
        return scale, builder.select(is_zero, nothing, factor)

    def _total(self, builder: Builder, words: list[Value]) -> Value:
        words = functools.reduce(builder.add, words)
        return builder.intrinsic(f"llvm.vector.reduce.add.v{LANES}i32", WORD, [words])


class RowGroup:
    """A group of a row, its values broadcast to vectors."""

    def __init__(self, builder: Builder, rows: QuantizedRows, row: Value, first: Value) -> None:
        self._builder, self._rows, self._scale_at = builder, rows, rows.scale_at
        self._place = builder.at(row, rows.size(builder, first))

    def four(self, k: Value, digit: int) -> Value:
        """A digit of four neighbours, from a k of the group on, as a word."""
        place = self._builder.at(self._place, k)
        return self._splat(self._builder.at(place, digit * self._rows.group), WORD)

    def scale(self) -> Value:
        return self._splat(self._builder.at(self._place, self._scale_at), FLOAT)

    def sum(self) -> Value:
        return self._splat(self._builder.at(self._place, self._scale_at + 4), FLOAT)

    def less_zero(self, digit: int) -> Value:
        """`-zero` times the sum of a digit."""
        return self._splat(self._builder.at(self._place, self._scale_at + 8 + 4 * digit), WORD)

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
    if features.get("avxvnni"):
        return _in_halves(builder, sums, weights, x)
    if features.get("avx2"):
        return builder.add(sums, _by_pairs(builder, weights, x, bits))
    for byte in range(4):
        weight = builder.and_(builder.lshr(weights, _splat(8 * byte)), _splat(255))
        number = builder.ashr(builder.shl(x, _splat(24 - 8 * byte)), _splat(24))
        sums = builder.add(sums, builder.mul(weight, number))
    return sums


def _in_halves(builder: Builder, sums: Value, weights: Value, x: Value) -> Value:
    """`dot` with registers of 256 bits."""
    words, bytes_, found = ir.VectorType(WORD, 8), ir.VectorType(BYTE, 32), []
    for begin in (0, 8):
        lanes = ir.Constant(words, [*range(begin, begin + 8)])
        half, *factors = (builder.shuffle_vector(each, each, lanes) for each in (sums, weights, x))
        a, b = (builder.bitcast(each, bytes_) for each in factors)
        found.append(builder.intrinsic("llvm.x86.avx512.vpdpbusd.256", words, [half, a, b]))
    return builder.shuffle_vector(*found, ir.Constant(_WORDS, [*range(LANES)]))


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
