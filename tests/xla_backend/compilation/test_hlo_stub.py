"""Tests of `hlo_stub`: when code may lie under another function, and when it may not.

That what lies there is found and runs: `test_restoring`, in processes of their own.
"""

from collections.abc import Callable

import pytest
import tensorflow as tf

from xla_backend.compilation import hlo_stub, xla_files, xla_folder
from xla_backend.compilation.traced_function import TracedFunction

SCALE = {"scale": tf.Variable([2.0, 3.0])}


def scaled(run: tf.Tensor, x: tf.Tensor) -> list[tf.Tensor]:
    y = tf.where(run, x * SCALE["scale"], 0.0)
    return [y > 1.0, tf.cast(y, tf.int32), y, run]


def function(name: str, python: Callable[..., list[tf.Tensor]] = scaled) -> TracedFunction:
    specs = [tf.TensorSpec([], tf.bool), tf.TensorSpec([None, 2], tf.float32)]
    traced = TracedFunction(name, python, specs, SCALE, structure=[0] * 4)
    traced.trace()
    return traced


def files(name: str, rows: int = 3) -> tuple[bytes, bytes, list[tf.Tensor]]:
    """XLA's files for a function and for its HLO stub, and what the HLO stub returned."""
    traced, arguments = function(name), [tf.constant(False), tf.ones([rows, 2])]
    results = traced(*arguments)
    assert not hlo_stub.is_own_output(results)
    (own,) = xla_folder.collect(name).values()
    definition = hlo_stub.define(f"{name}_other", arguments, [None], results)
    left = traced.through(definition)(*arguments)
    (others,) = xla_folder.collect(f"{name}_other").values()
    return own, others, left


def test_a_hlo_stub_returns_the_same_shapes_and_returns_the_mark() -> None:
    own, others, left = files("hlo_stub_test_mark")
    assert hlo_stub.is_own_output(left)
    assert [(x.dtype, x.shape.as_list()) for x in left] == [
        (tf.bool, [3, 2]),
        (tf.int32, [3, 2]),
        (tf.float32, [3, 2]),
        (tf.bool, []),
    ]
    assert set(left[1].numpy().ravel().tolist()) == {hlo_stub.MARK}
    assert left[2].numpy().tolist() == [[1.0, 1.0]] * 3, "what was given, where it fits"
    assert set(left[0].numpy().ravel().tolist()) == {False}
    entry, _ = xla_files.file_messages()
    whole = entry.FromString(hlo_stub.with_code_of(own, others))
    assert whole.executable == entry.FromString(own).executable
    assert whole.executable != entry.FromString(others).executable
    assert (whole.key, whole.hlo_module) == (
        entry.FromString(others).key,
        entry.FromString(others).hlo_module,
    )


def test_code_lies_under_nothing_else_and_no_broken_file() -> None:
    own, _, _ = files("hlo_stub_test_three")
    _, others, _ = files("hlo_stub_test_four", rows=4)
    with pytest.raises(ValueError, match="other arguments or results"):
        hlo_stub.with_code_of(own, others)

    own, others, _ = files("hlo_stub_test_broken")
    for broken in (b"", b"\xff\xff", b"\x1a\x02no"):
        for pair in ((broken, others), (own, broken)):
            with pytest.raises(ValueError, match=r"another format|other arguments or results"):
                hlo_stub.with_code_of(*pair)


def test_where_nothing_can_carry_the_mark_there_is_no_hlo_stub() -> None:
    given = [tf.ones([2])]
    for results in ([tf.constant(True)], [tf.zeros([0])], []):
        with pytest.raises(ValueError, match="none of its results is a number"):
            hlo_stub.define("hlo_stub_test_none", given, [], results)


def test_an_argument_of_any_kind_may_come_first() -> None:
    """Its numbers do not matter: the mark is none of them."""
    for i, first in enumerate([tf.constant([float("nan")]), tf.zeros([0]), tf.constant(True)]):
        name = f"hlo_stub_test_first_{i}"
        spec = tf.TensorSpec(first.shape, first.dtype)
        traced = TracedFunction(name, lambda x: tf.shape(x)[:0], [spec], {}, structure=0)
        traced.trace()
        definition = hlo_stub.define(f"{name}_other", [first], [], [tf.zeros([2], tf.int32)])
        assert traced.through(definition)(first).numpy().tolist() == [hlo_stub.MARK] * 2
        xla_folder.clear()
