"""The elementary operations against TensorFlow's own, and that nothing takes the slow way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef

from xla_backend import Backend, GenerationOptions, operations
from xla_backend.models import BUNDLED_FOLDER

pytestmark = pytest.mark.as_shipped

VALUES = np.concatenate(
    [np.linspace(-30, 30, 4001), [0.0, -0.0, 1e-30, -1e-30, -80.0, 80.0, -1e9]]
).astype(np.float32)

SLOW = {"Exp", "Expm1", "Tanh", "Sigmoid", "Sqrt", "Rsqrt", "Abs", "Relu", "Relu6", "Einsum"}
SLOW |= {"Softmax", "LogSoftmax", "Log1p", "Floor", "Ceil", "Cos", "Sin"}
"""Operations that TensorFlow 2.21 lowers through MLIR, found by timing each of them."""


def compiled(function: Callable[[tf.Tensor], tf.Tensor], values: np.ndarray) -> np.ndarray:
    return tf.function(function, jit_compile=True, autograph=False)(tf.constant(values)).numpy()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (operations.sigmoid, tf.sigmoid),
        (operations.relu, tf.nn.relu),
        (operations.silu, tf.nn.silu),
        (operations.gelu_exact, lambda x: tf.nn.gelu(x, approximate=False)),
        (operations.gelu_tanh, lambda x: tf.nn.gelu(x, approximate=True)),
    ],
)
def test_of_one_number(ours: Callable, theirs: Callable) -> None:
    expected = theirs(tf.constant(VALUES, tf.float64)).numpy()
    # Where a factor next to 0 or 1 is rounded, the error grows with what it multiplies.
    error = np.abs(compiled(ours, VALUES) - expected)
    assert (error <= 3e-7 * np.maximum(np.abs(VALUES), 1.0)).all()


def test_exp_below_zero() -> None:
    x = -np.abs(VALUES)
    expected = np.exp(x.astype(np.float64))
    result = compiled(operations.exp_below_zero, x)
    np.testing.assert_allclose(result, expected, rtol=3e-5, atol=1e-12)
    np.testing.assert_allclose(result, expected, rtol=0, atol=3e-7)


@pytest.mark.parametrize("score", [-14.0, -17.0, -18.0, -20.0])
def test_the_long_tail_of_a_vocabulary_counts(score: float) -> None:
    """50,256 tokens that are next to impossible, each, share up to 4% of the probability."""
    scores = np.full([1, 50_257], score, np.float32)
    scores[0, 0] = 0.0
    tail = 50_256 * np.exp(score)
    logprobs = compiled(operations.log_softmax, scores)[0]
    assert logprobs[0] == pytest.approx(-np.log1p(tail), rel=2e-2)
    weights = compiled(operations.softmax, scores)[0].astype(np.float64)
    assert weights[1:].sum() == pytest.approx(tail / (1 + tail), rel=1e-3)


def test_rsqrt_and_mean() -> None:
    x = np.geomspace(1e-12, 1e12, 999).astype(np.float32)
    np.testing.assert_allclose(compiled(operations.rsqrt, x), x.astype(np.float64) ** -0.5, 1e-6)
    rows = VALUES[:4000].reshape(4, 1000)
    np.testing.assert_allclose(
        compiled(operations.mean, rows), rows.mean(-1, keepdims=True, dtype=np.float64), 1e-5
    )


def test_softmax_over_the_last_axis() -> None:
    scores = np.random.default_rng(0).normal(0, 8, [3, 5, 999]).astype(np.float32)
    scores[0, 0, 5:] = -1e9  # what hides a position
    scores[1] = -1e9  # every position hidden: an even distribution, not NaN
    wide = tf.constant(scores, tf.float64)
    weights = compiled(operations.softmax, scores)
    np.testing.assert_allclose(weights, tf.nn.softmax(wide), rtol=0, atol=1e-6)
    assert not weights[0, 0, 5:].any()
    np.testing.assert_allclose(
        compiled(operations.log_softmax, scores), tf.nn.log_softmax(wide), rtol=1e-6, atol=1e-5
    )


@pytest.mark.parametrize(
    "name", sorted(path.parent.name for path in BUNDLED_FOLDER.glob("*/model.safetensors"))
)
def test_no_layer_takes_the_slow_way(name: str) -> None:
    backend = Backend(store="off")
    backend.load(name)
    engine = backend._engines[name]
    engine.trace(backend.key_for(name, 1, GenerationOptions(num_beams=2)))
    for function in (engine._prefill, engine._decodes[2, 1]):
        used = {
            node.op
            for serialized in function.definition.functions
            for node in FunctionDef.FromString(serialized).node_def
        }
        assert not used & SLOW
