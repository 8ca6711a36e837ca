"""Products of rows and weights in every format, against NumPy over the same numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from xla_backend.products import foreign_calls, handler, machine_code, product
from xla_backend.products.grouped import Grouped, Weights, rounded, stacked
from xla_backend.products.matrix import Matrix

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
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 13, 96, 97, 250):
        x = GENERATOR.standard_normal((rows, 544), np.float32)
        expected = x.astype(np.float64) @ numbers.T.astype(np.float64)
        np.testing.assert_allclose(
            multiply(x).numpy(), expected, rtol=0, atol=3e-5, err_msg=f"{rows}"
        )


@pytest.mark.parametrize("number_format", FORMATS)
@pytest.mark.usefixtures("older_processor")
def test_a_processor_with_fewer_and_smaller_registers(number_format: str) -> None:
    own, numbers = weights(number_format, 600, 544)
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    for rows in (1, 3, 4, 6, 8, 13):
        x = GENERATOR.standard_normal((rows, 544), np.float32)
        expected = x.astype(np.float64) @ numbers.T.astype(np.float64)
        np.testing.assert_allclose(multiply(x).numpy(), expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("number_format", FORMATS)
def test_columns_are_the_numbers(number_format: str) -> None:
    own, numbers = weights(number_format, 1100, 544)
    columns = tf.function(matrix(own).columns, jit_compile=True, autograph=False)
    places = [0, 1099, 63, 64, 500, 63]
    np.testing.assert_allclose(columns(tf.constant(places)).numpy(), numbers[places], rtol=1e-6)


@pytest.mark.parametrize("leading", [(), (1,), (4,), (2, 2), (7, 1)])
@pytest.mark.parametrize("shape", [(32, 48), (523, 601), (512, 768)])
def test_the_last_axis_is_multiplied(leading: tuple[int, ...], shape: tuple[int, int]) -> None:
    """Of a matrix that is small, one that no group of lines fits, and one in tiles."""
    numbers = GENERATOR.standard_normal(shape[::-1], np.float32)
    x = GENERATOR.standard_normal((*leading, 3, shape[0]), np.float32)
    multiply = tf.function(matrix(numbers).multiply, jit_compile=True, autograph=False)
    found = multiply(tf.constant(x)).numpy()
    np.testing.assert_allclose(found, x.astype(np.float64) @ numbers.T, rtol=0, atol=2e-4)


@pytest.mark.parametrize("rows", [4, 9])
def test_a_row_without_end_is_no_other_row_s_concern(rows: int) -> None:
    """Rows may be texts of several visitors."""
    own, _ = weights("int8", 768, 512)
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    x = GENERATOR.standard_normal((rows, 512), np.float32)
    sound = multiply(tf.constant(x)).numpy()
    x[1, 0] = np.inf
    found = multiply(tf.constant(x)).numpy()
    assert not np.isfinite(found[1]).any()
    others = [row for row in range(rows) if row != 1]
    np.testing.assert_array_equal(found[others], sound[others])


def test_products_at_once_do_not_meet() -> None:
    """Several threads call at the same time, each with numbers of its own."""
    own, numbers = weights("float32", 768, 512)
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    inputs = [GENERATOR.standard_normal((rows, 512), np.float32) for rows in (1, 2, 5, 40) * 25]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda x: multiply(tf.constant(x)).numpy(), inputs))
    for x, y in zip(inputs, found, strict=True):
        np.testing.assert_allclose(y, x.astype(np.float64) @ numbers.T, rtol=0, atol=1e-4)


def test_rounding_to_eight_bits_errs_by_half_a_step() -> None:
    numbers = GENERATOR.standard_normal((64, 96), np.float32)
    numbers[3, 32:64] = 0.0
    found = rounded(numbers)
    assert found.shape == (64, 96)
    steps = np.repeat(found.scales.astype(np.float32), 32, axis=1)
    assert (abs(found.widened() - numbers) <= 0.51 * steps + 1e-9).all()
    assert (found.widened()[3, 32:64] == 0).all()


def test_matrices_of_one_input_are_stacked_as_they_are() -> None:
    first, second = four_bits(8, 64), four_bits(24, 64)
    both = stacked([first, second])
    assert isinstance(both, Grouped)
    np.testing.assert_array_equal(
        both.widened(), np.concatenate([first.widened(), second.widened()])
    )
    wide = GENERATOR.standard_normal((4, 64), np.float32)
    mixed = stacked([first, wide])
    assert isinstance(mixed, np.ndarray)
    np.testing.assert_array_equal(mixed, np.concatenate([first.widened(), wide]))


def test_a_product_that_xla_refused_is_tried_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "_begun", {})
    monkeypatch.setattr(product, "PRODUCT", "product_of_another_")
    taken = "product_of_another_int8"
    module = product._module("int8", taken)  # noqa: SLF001 (XLA takes a name once)
    foreign_calls.register("product_of_another_float32", machine_code.address(module, taken))
    own, numbers = weights("float32", 600, 544)
    with pytest.raises(RuntimeError, match="XLA refuses product_of_another_float32"):
        matrix(own).multiply(tf.zeros([1, 544]))
    monkeypatch.setattr(product, "PRODUCT", "product_tried_anew_")
    made = matrix(own)
    multiply = tf.function(made.multiply, jit_compile=True, autograph=False)
    x = GENERATOR.standard_normal((1, 544), np.float32)
    np.testing.assert_allclose(multiply(tf.constant(x)).numpy(), x @ numbers.T, atol=3e-5)
