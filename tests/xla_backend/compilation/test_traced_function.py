"""Tests of `TracedFunction`: definitions that look the same whatever was traced before them."""

import logging
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef

from xla_backend.compilation import traced_function
from xla_backend.compilation.traced_function import TracedFunction


class Pair(NamedTuple):
    """A nest, as the decoding loops use them."""

    sums: tf.Tensor
    parts: list[tf.Tensor]


def computation(weights: dict[str, tf.Variable]) -> Any:
    """A function with what the engine's have: variables, a loop, a branch inside it, a nest."""

    def run(steps: tf.Tensor, state: Pair) -> Pair:
        def one(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            y = tf.cond(i % 2 == 0, lambda: x * weights["scale"], lambda: x + weights["shift"])
            return i + 1, y

        _, x = tf.while_loop(lambda i, _: i < steps, one, (0, state.sums))
        return Pair(x, [part * 2.0 for part in state.parts])

    return run


def traced(name: str, weights: dict[str, tf.Variable]) -> TracedFunction:
    vector = tf.TensorSpec([None], tf.float32)
    function = TracedFunction(
        name=name,
        function=computation(weights),
        specs=[tf.TensorSpec([], tf.int32), Pair(vector, [vector, vector])],
        variables=weights,
        structure=Pair(0, [0, 0]),
    )
    function.trace()
    return function


def weights() -> dict[str, tf.Variable]:
    return {"unused": tf.Variable(7.0), "scale": tf.Variable(2.0), "shift": tf.Variable(1.0)}


def names(function: TracedFunction) -> list[str]:
    definition = function.definition
    return [FunctionDef.FromString(f).signature.name for f in definition.functions]


def readable(function: TracedFunction) -> list[str]:
    """The definition as text. TensorFlow numbers the arguments that a loop's condition does not
    use; XLA drops them, and its cache finds entries all the same (tested in `test_backend`)."""
    texts = [str(FunctionDef.FromString(f)) for f in function.definition.functions]
    return [re.sub(r"_\d+___redundant_placeholder", "___redundant_placeholder", t) for t in texts]


def assert_computes(function: TracedFunction, size: int = 3) -> None:
    ones, twos = tf.ones([size]), tf.fill([size], 2.0)
    result = function(tf.constant(3), Pair(ones, [ones, twos]))
    assert isinstance(result, Pair)
    np.testing.assert_array_equal(result.sums, np.full(size, 6.0))  # ((1 * 2) + 1) * 2
    np.testing.assert_array_equal(result.parts, np.outer([2.0, 4.0], np.ones(size)))


def test_one_trace_serves_every_size_and_reads_variables_anew() -> None:
    function = traced("jit_test_sizes", weights())
    for size in (3, 1, 8, 3):
        assert_computes(function, size)
    assert [spec.shape.as_list() for spec in function.output_specs.parts] == [[None], [None]]

    values = weights()
    function = traced("jit_test_variables", values)
    assert_computes(function)
    values["scale"].assign(3.0)
    one = tf.ones([1])
    result = function(tf.constant(3), Pair(one, [one, one]))
    np.testing.assert_array_equal(result.sums, [12.0])
    assert function.definition.captures == ("scale", "shift")


def test_every_function_in_a_definition_is_named_after_it() -> None:
    function = traced("jit_test_named", weights())
    own = names(function)
    assert own[0] == "jit_test_named"
    assert len(own) >= 5, "condition and body of the loop, and two branches"
    assert own[1:] == [f"jit_test_named_{i}" for i in range(1, len(own))]
    for serialized in function.definition.functions:
        for node in FunctionDef.FromString(serialized).node_def:
            called = [v.func.name for v in node.attr.values() if v.HasField("func")]
            assert set(called) <= set(own)
            assert "__inference" not in str(node)


def test_definitions_do_not_depend_on_what_was_traced_before() -> None:
    first = traced("jit_test_order", weights())
    for i in range(3):
        traced(f"jit_test_between_{i}", weights())
        tf.function(lambda x: x + 1, autograph=False)(tf.constant(i))
    # Registered already under this name, it is defined again, from other variables of equal shapes.
    second = traced("jit_test_order", weights())
    assert readable(second) == readable(first)
    assert second.definition.captures == first.definition.captures
    assert second.definition.outputs == first.definition.outputs
    assert_computes(second)


def test_a_definition_runs_where_it_was_not_traced_if_its_variables_are_there() -> None:
    definition = traced("jit_test_adopted", weights()).definition
    vector = tf.TensorSpec([None], tf.float32)
    other = TracedFunction(
        name="jit_test_adopted",
        function=lambda *_: pytest.fail("it must not be traced"),
        specs=[tf.TensorSpec([], tf.int32), Pair(vector, [vector, vector])],
        variables=weights(),
        structure=Pair(0, [0, 0]),
    )
    assert not other.is_traced
    other.adopt(definition)
    assert other.is_traced
    assert_computes(other)
    assert other.output_specs.sums.shape.as_list() == [None]

    definition = traced("jit_test_unknown", weights()).definition
    other = TracedFunction("jit_test_unknown", lambda: None, [], {}, Pair(0, [0, 0]))
    with pytest.raises(KeyError, match="scale"):
        other.adopt(definition)
    assert not other.is_traced


@pytest.fixture
def no_renaming(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TensorFlow whose calls outside the public interface are gone."""

    def gone(*_: Any) -> Any:
        raise AttributeError("'Context' object has no attribute 'add_function_def'")

    monkeypatch.setattr(TracedFunction, "adopt", gone)
    traced_function.warn_of_numbered_names.cache_clear()


def test_without_renaming_it_works(no_renaming: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="xla_backend.compilation.traced_function")
    for name in ("jit_test_plain", "jit_test_plain_too"):
        function = traced(name, weights())
        assert function.definition is None
        assert function.is_traced
        assert_computes(function)
        assert_computes(function, 5)
        assert function.output_specs.sums.shape.as_list() == [None]
    assert [
        record.message
        for record in caplog.records
        if record.name == "xla_backend.compilation.traced_function"
    ] == [
        "This TensorFlow does not let functions be renamed: compiled functions will not be found "
        "again on disk."
    ]
