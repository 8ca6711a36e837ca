"""Tests of `xla_backend.jit`: any TensorFlow function or Keras model, and Keras's own way."""

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.xla_backend.compilation.code_folder import code_folder
from xla_backend import CacheOutcome, CallResult, jit

# As the guide writes it; Keras 3 takes it, and would rather have a layer `Input`.
pytestmark = pytest.mark.filterwarnings("ignore:Do not pass an `input_shape`")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def two_layers() -> tf.keras.Model:
    """The two-layer model of the XLA guide."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(10, input_shape=(10,), activation="relu"),
            tf.keras.layers.Dense(5, activation="softmax"),
        ],
        name="two_layers",
    )


def test_a_keras_model_is_traced_once_for_each_shape() -> None:
    model = two_layers()
    fast = jit(model)
    first, again, other = fast(numbers(8, 10)), fast(numbers(8, 10, seed=1)), fast(numbers(3, 10))

    assert [result.cache.value for result in (first, again, other)] == ["miss", "hit", "miss"]
    np.testing.assert_allclose(again.output, model(numbers(8, 10, seed=1)), atol=1e-6)
    np.testing.assert_allclose(other.output, model(numbers(3, 10)), atol=1e-6)

    for result in (first, other):
        timing = result.timing
        assert min(timing.trace_s, timing.compile_s, timing.run_s) > 0
        assert timing.trace_s + timing.compile_s + timing.run_s <= timing.total_s
        assert result.speedup is None
    assert again.timing.trace_s == again.timing.compile_s == 0
    assert again.first_call == first.first_call
    assert again.speedup == pytest.approx(first.first_call.total_s / again.timing.run_s)

    entries = fast.cached_functions()
    assert [str(entry.key) for entry in entries] == ["float32[8, 10]", "float32[3, 10]"]
    assert [entry.model for entry in entries] == ["two_layers"] * 2
    assert [entry.hits for entry in entries] == [1, 0]
    assert entries[0].first_call == first.first_call
    assert entries[0].cached.n == 1
    assert entries[1].cached is None


def test_a_small_convolution_that_was_never_called() -> None:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(8, 3, activation="relu"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(3),
        ]
    )
    fast = jit(model)
    images = numbers(4, 12, 12, 3)
    result = fast(images)
    assert model.built
    np.testing.assert_allclose(result.output, model(images), atol=1e-5)
    assert fast(numbers(5, 12, 12, 3)).cache is CacheOutcome.MISS
    assert fast(images).cache is CacheOutcome.HIT
    # What training mode is, is part of the signature.
    trained = fast(images, training=True)
    assert str(trained.signature) == "float32[4, 12, 12, 3], training=True"
    assert np.abs(trained.output - result.output).max() > 1e-3


def test_a_method_and_weights_that_change() -> None:
    class Scaled(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__(name="scaled")
            self.scale = tf.Variable(2.0)

        def double_up(self, x: tf.Tensor, times: int = 1) -> tf.Tensor:
            for _ in range(times):
                x = x * self.scale
            return x

    model = Scaled()
    fast = jit(model.double_up)
    np.testing.assert_allclose(fast(numbers(3)).output, 2 * numbers(3))
    np.testing.assert_allclose(fast(numbers(3), times=3).output, 8 * numbers(3))
    model.scale.assign(5.0)
    changed = fast(numbers(3))
    assert changed.cache is CacheOutcome.HIT
    np.testing.assert_allclose(changed.output, 5 * numbers(3))
    assert [entry.model for entry in fast.cached_functions()] == ["scaled.double_up"] * 2


def test_compiling_runs_nothing_also_where_a_shape_is_found_out_late() -> None:
    """Or a first call would count twice what it counts."""
    counter = tf.Variable(0)

    @jit
    def count(x: tf.Tensor) -> None:
        counter.assign_add(tf.reduce_sum(x))

    assert count(np.int32([1, 2])).output is None
    assert counter.numpy() == 3
    count(np.int32([4, 0]))
    count(np.int32([1, 1, 1]))
    assert counter.numpy() == 10

    # There compiling counts as running, and still nothing runs twice.
    counter = tf.Variable(0)

    @jit
    def late(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        counter.assign_add(1)
        return tf.reshape(x, [rows, -1])

    result = late(numbers(6), np.int32(2))
    assert result.output.shape == (2, 3)
    assert counter.numpy() == 1
    assert result.timing.compile_s == 0
    assert late(numbers(6), np.int32(2)).cache is CacheOutcome.HIT


def test_what_is_part_of_the_signature_and_what_is_not() -> None:
    @jit
    def mixed(pair: tuple, *, options: dict) -> dict:
        first, second = pair
        if tf.reduce_sum(first) > 0:  # a branch that the tensor's value decides
            first = -first
        return {"sum": first + second, "rest": [options["offset"] + 1.0, None]}

    result = mixed((tf.ones([2]), np.zeros(2, np.float32)), options={"offset": 3.0, "name": "x"})
    np.testing.assert_allclose(result.output["sum"], [-1, -1])
    assert float(result.output["rest"][0]) == 4.0
    assert result.output["rest"][1] is None
    assert str(result.signature) == (
        "(float32[2], float32[2]), options={'name': 'x', 'offset': 3.0}"
    )

    fast = jit(lambda x: x + 1)
    assert [fast(tf.constant(value)).cache.value for value in (1, 2, 3)] == ["miss", "hit", "hit"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(2, np.float32), np.zeros(2, np.int32)),
        (np.zeros(2, np.float32), np.zeros((1, 2), np.float32)),
        (1, 2),
        (1, 1.0),
        (1, True),
        ((1, 2), [1, 2]),
        (np.float32(1), np.zeros(1, np.float32)),
    ],
)
def test_arguments_of_another_kind_are_another_function(one: Any, other: Any) -> None:
    fast = jit(lambda x: tf.nest.map_structure(tf.identity, x))
    assert fast(one).cache is CacheOutcome.MISS
    assert fast(other).cache is CacheOutcome.MISS
    assert fast(one).cache is CacheOutcome.HIT


def test_two_threads_trace_once() -> None:
    traces = []

    @jit
    def slow(x: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return tf.linalg.matmul(x, x)

    outcomes = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(slow(numbers(50, 50)).cache.value))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["hit", "hit", "hit", "miss"]
    assert len(traces) == 1


def test_a_function_that_cannot_be_compiled_is_an_error_in_words() -> None:
    with pytest.raises(TypeError, match="jit takes a function or a Keras model, not 3"):
        jit(3)
    with pytest.raises(TypeError, match="numbers, strings, booleans and None, not object"):
        jit(lambda x: x)(object())
    fast = jit(lambda x: x @ x)
    with pytest.raises(ValueError, match="Dimensions must be equal"):
        fast(numbers(2, 3))
    assert fast.cached_functions() == []
    assert fast(numbers(2, 2)).cache is CacheOutcome.MISS


def test_keras_compiles_its_own_training_with_xla() -> None:
    inputs = numbers(256, 10)
    labels = (inputs.sum(axis=1) > 0).astype(np.int32)
    tf.keras.utils.set_random_seed(0)
    model = two_layers()
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.02),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=True,
    )
    history = model.fit(inputs, labels, batch_size=32, epochs=6, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] / 2
    predicted = model.predict(inputs, batch_size=64, verbose=0)
    assert (predicted.argmax(axis=1) == labels).mean() > 0.9
    # The same trained weights, through `jit`.
    np.testing.assert_allclose(jit(model)(inputs).output, predicted, atol=1e-5)


def test_code_that_xla_leaves_on_disk_is_removed() -> None:
    """A numbered name is not met again: each new signature would fill the folder a little more."""
    before = set(code_folder().iterdir())
    assert jit(lambda x: tf.sin(x) * 3.0)(tf.ones([7])).cache is CacheOutcome.MISS
    assert set(code_folder().iterdir()) == before


def test_a_tape_gets_the_gradient_that_tensorflow_gives() -> None:
    """Of arguments, of variables and of Keras weights, and of a gradient."""
    weight = tf.Variable(3.0)
    x = tf.constant([1.0, 2.0])

    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(weight * x * x)

    for function in (jit(loss), tf.function(loss, jit_compile=True)):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                tape.watch(x)
                outer.watch(x)
                result = function(x)
                value = result.output if isinstance(result, CallResult) else result
            of_x, of_weight = tape.gradient(value, [x, weight])
            slope = tf.reduce_sum(of_x)
        assert (of_x.numpy().tolist(), of_weight.numpy()) == ([6.0, 12.0], 5.0)
        assert outer.gradient(slope, x).numpy().tolist() == [6.0, 6.0]
    assert jit(loss)(x).output == 15.0
