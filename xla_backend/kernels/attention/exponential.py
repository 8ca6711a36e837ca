"""The exponential function of vectors, in machine code.

Knows the bits of float32. After W. Cody and W. Waite, "Software Manual for the Elementary
Functions" (1980): x is n ln 2 + r, with ln 2 in two parts so that r is exact; exp(r) is a
polynomial with the least relative error on the range of r (Remez); 2^n is made from bits.
"""

from __future__ import annotations

import math

from llvmlite import ir

from xla_backend.kernels.machine_code import LANES, VECTOR, WORD, ZERO, Builder, Value

LEAST = -87.0
"""Below this the result is 0, so that subnormal numbers never occur."""

_LN2 = (0.693359375, -2.12194440e-4)
"""The first part has 9 bits, so its products with whole numbers are exact."""
# exp(r) = 1 + r + r^2 P(r) with a relative error below 5e-9, that is 0.07 of half a last bit.
_COEFFICIENTS = (0.49999994, 0.1666652, 0.0416684, 0.00836885, 0.001381432)
_WORDS = ir.VectorType(WORD, LANES)


def constant(number: float) -> ir.Constant:
    return ir.Constant(VECTOR, [number] * LANES)


def exponential(builder: Builder, x: Value) -> Value:
    """exp(x) of numbers not above 0, within 1.1 units of the last place; exactly 1 of 0."""
    power, rest = _parts(builder, x)
    is_zero = builder.fcmp_ordered("<", x, constant(LEAST))
    return builder.select(is_zero, ZERO, builder.multiply_add(power, rest, power))


def hyperbolic_tangent(builder: Builder, x: Value) -> Value:
    """tanh(x) = -e / (2 + e) with e = exp(-2 |x|) - 1, and the sign of x."""
    magnitude = builder.intrinsic(f"llvm.fabs.v{LANES}f32", VECTOR, [x])
    power, rest = _parts(builder, builder.fmul(magnitude, constant(-2.0)))
    less_one = builder.fsub(power, constant(1.0))
    e = builder.multiply_add(power, rest, less_one)
    ratio = builder.fdiv(e, builder.fsub(constant(-2.0), e))
    return builder.intrinsic(f"llvm.copysign.v{LANES}f32", VECTOR, [ratio, x])


def _parts(builder: Builder, x: Value) -> tuple[Value, Value]:
    """2^n, and exp(r) - 1."""
    # A comparison that is false for NaN, so that it stays NaN.
    x = builder.select(builder.fcmp_ordered("<", x, constant(LEAST)), constant(LEAST), x)
    scaled = builder.fmul(x, constant(1 / math.log(2)))
    n = builder.intrinsic(f"llvm.roundeven.v{LANES}f32", VECTOR, [scaled])
    r = x
    for part in _LN2:
        r = builder.multiply_add(n, constant(-part), r)
    polynomial = constant(_COEFFICIENTS[-1])
    for coefficient in (*reversed(_COEFFICIENTS[:-1]), 1.0):
        polynomial = builder.multiply_add(polynomial, r, constant(coefficient))
    bits = builder.add(builder.fptosi(n, _WORDS), ir.Constant(_WORDS, [127] * LANES))
    power = builder.shl(bits, ir.Constant(_WORDS, [23] * LANES))
    return builder.bitcast(power, VECTOR), builder.fmul(polynomial, r)
