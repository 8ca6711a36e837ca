"""Products of rows and weights in every format, against NumPy over the same numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from xla_backend.products.grouped import Grouped, rounded
from xla_backend.products.matrix import Matrix, Weights

GENERATOR = np.random.default_rng(5)


def four_bits(outputs: int, inputs: int) -> Grouped:
    groups = (outputs, inputs // 32)
    return Grouped(
        GENERATOR.integers(0, 16, (outputs, inputs), np.uint8),
        GENERATOR.uniform(0.001, 0.01, groups).astype(np.float16),
        GENERATOR.uniform(-0.1, 0.0, groups).astype(np.float16),
    )


def weights(number_format: str, outputs: int, inputs: int) -> tuple[Weights, np.ndarray]:
    """Weights `[out, in]`, and their numbers in float32."""
    if number_format == "int4":
        grouped = four_bits(outputs, inputs)
        return grouped, grouped.widened()
    numbers = 0.1 * GENERATOR.standard_normal((outputs, inputs), np.float32)
    if number_format == "int8":
        grouped = rounded(numbers)
        return grouped, grouped.widened()
    narrow = numbers.astype(getattr(ml_dtypes, number_format, number_format))
    return narrow, narrow.astype(np.float32)


def matrix(own: Weights) -> Matrix:
    return Matrix.of(own, lambda _, array: tf.Variable(array, trainable=False))


FORMATS = ("float32", "bfloat16", "float16", "int8", "int4")


@pytest.mark.parametrize("number_format", FORMATS)
def test_products_are_those_of_the_numbers(number_format: str) -> None:
    # 1,100 columns end within a tile, 544 lines within a part of the cache.
    own, numbers = weights(number_format, 1100, 544)
    made = matrix(own)
    assert made.shape == (544, 1100)
    assert made.numbers.dtype != tf.float32 or number_format == "float32"
    # The number of rows is not known to the graph, as in a prefill's.
    multiply = tf.function(
        made.multiply,
        input_signature=[tf.TensorSpec([None, 544], tf.float32)],
        jit_compile=True,
        autograph=False,
    )
    for rows in (1, 2, 3, 4, 5, 6, 7, 13, 96, 97, 250):
        x = GENERATOR.standard_normal((rows, 544), np.float32)
        expected = x.astype(np.float64) @ numbers.T.astype(np.float64)
        np.testing.assert_allclose(
            multiply(x).numpy(), expected, rtol=0, atol=3e-5, err_msg=f"{rows}"
        )


@pytest.mark.parametrize("number_format", FORMATS)
def test_columns_are_the_numbers(number_format: str) -> None:
    own, numbers = weights(number_format, 1100, 544)
    columns = tf.function(matrix(own).columns, jit_compile=True, autograph=False)
    places = [0, 1099, 63, 64, 500, 63]
    np.testing.assert_allclose(columns(tf.constant(places)).numpy(), numbers[places], rtol=1e-6)
