"""Rows times a kernel, however they are cut: the product that NumPy gets with twice the digits."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from xla_backend.model.families import blocks

WIDE = (512, 768)
"""A kernel of more than a megabyte, which is cut."""


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def compiled(kernel: np.ndarray) -> tf.types.experimental.PolymorphicFunction:
    """A projection, of what is cheap to compute, as norms and activations before it are."""
    variable = tf.Variable(kernel)
    return tf.function(
        lambda x: blocks.project(tf.nn.relu(x) + 0.5, variable) - 0.25, jit_compile=True
    )


def wide_dots(x: np.ndarray, kernel: np.ndarray) -> tuple[int, list[str]]:
    """How many products XLA makes by itself, and its loops that go over lines of the kernel."""
    optimized = compiled(kernel).experimental_get_compiler_ir(tf.constant(x))("optimized_hlo")
    assert str(kernel.shape[1]) in optimized
    products = len(re.findall(r"= f32\S* dot\(", optimized))
    return products, re.findall(r"= \(f32.* fusion\((.*?)\), kind=kLoop", optimized)


# A row alone, few, as many as are cut and one more; kernels that are and are not cut, the last
# three of more than a megabyte: with a width that no part fits, and with one that some do.
@pytest.mark.parametrize("leading", [(1,), (2,), (3,), (4,), (5,), (1, 4), (2, 2), (1, 1)])
@pytest.mark.parametrize("shape", [(32, 48), WIDE, (523, 601), (520, 768)])
def test_the_product_is_that_of_numpy(leading: tuple[int, ...], shape: tuple[int, int]) -> None:
    x, kernel = drawn(*leading, shape[0]), drawn(*shape)
    result = compiled(kernel)(tf.constant(x)).numpy()
    exact = (np.maximum(x, 0) + np.float32(0.5)).astype(np.float64) @ kernel - 0.25
    assert result.shape == (*leading, shape[1])
    # Of sums of some 500 products of about 1, in numbers of 24 bits.
    np.testing.assert_allclose(result, exact, rtol=0, atol=2e-4)


def test_a_row_without_end_is_no_other_row_s_concern() -> None:
    """Rows may be texts of several visitors."""
    x, kernel = drawn(4, WIDE[0]), drawn(*WIDE)
    sound = compiled(kernel)(tf.constant(x)).numpy()
    x[1, 0] = np.inf
    result = compiled(kernel)(tf.constant(x)).numpy()
    assert not np.isfinite(result[1]).any()
    np.testing.assert_array_equal(result[[0, 2, 3]], sound[[0, 2, 3]])


def test_few_rows_stay_apart_from_what_made_them() -> None:
    """Else XLA computes them anew for every number in the kernel: several times as long."""
    dots, loops = wide_dots(drawn(4, WIDE[0]), drawn(*WIDE))
    assert dots == 0
    [reads] = loops
    assert len(reads.split(", ")) == 2, "the rows as they are, and the kernel"
    assert "divide" in reads


def test_more_rows_are_one_product() -> None:
    assert wide_dots(drawn(blocks.FEW_ROWS + 1, WIDE[0]), drawn(*WIDE)) == (1, [])
