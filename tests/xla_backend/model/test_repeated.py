"""Layers that are traced once: the same numbers as one by one, none in the place of another."""

from typing import Any

import numpy as np
import tensorflow as tf

from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.model.families.blocks import Linear, Norm, Repeated

WIDTH = 6


def linear(seed: int, has_bias: bool = True) -> Linear:
    draw = np.random.default_rng(seed).standard_normal
    weights = tf.Variable(draw((WIDTH, WIDTH)).astype(np.float32))
    return Linear(
        Matrix(weights, None, WIDTH, WIDTH),
        tf.Variable(draw(WIDTH).astype(np.float32)) if has_bias else None,
    )


def run(layers: list[Any]) -> tuple[np.ndarray, np.ndarray, int]:
    """What the layers make of some rows, called and written out; and how often they were traced."""
    traced = []

    def block(layer: Any, x: tf.Tensor) -> tf.Tensor:
        traced.append(layer)
        return tf.sin(layer(x))

    @tf.function(jit_compile=True, autograph=False)
    def called(x: tf.Tensor) -> tf.Tensor:
        each = Repeated(block)
        for layer in layers:
            x = each(layer, x)
        return x

    rows = np.random.default_rng(0).standard_normal((3, WIDTH)).astype(np.float32)
    result = called(rows).numpy()
    times, expected = len(traced), tf.constant(rows)
    for layer in layers:
        expected = tf.sin(layer(expected))
    return result, expected.numpy(), times


def test_alike_layers_are_traced_once_and_keep_their_own_weights() -> None:
    result, expected, times = run([linear(seed) for seed in range(5)])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert times == 1


def test_layers_that_differ_in_what_is_no_weight_are_traced_apart() -> None:
    scale, bias = (tf.Variable(tf.fill([WIDTH], value)) for value in (1.5, 0.5))
    norms = [Norm(scale, bias, 1e-5), Norm(scale, None, 1e-5), Norm(scale, bias, 0.5)]
    result, expected, times = run([linear(1), linear(2, has_bias=False), linear(3), *norms])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert times == 5
