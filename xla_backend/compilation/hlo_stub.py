"""HLO stubs: tiny functions under which XLA's persistent cache finds another function's code.

XLA looks code up by its HLO. To get that, TensorFlow lowers the whole graph, which took more than
half of the time of restoring. An HLO stub has the same arguments and results as the function and
computes nothing, so lowering it is fast. We put the function's machine code into the stub's cache
file: XLA loads and runs it when the stub is called. Arguments and results must be equal.

If XLA does not find the file, it compiles the stub. One of its results then consists of a mark, by
which we notice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.compiler.tf2xla.python import xla

from xla_backend.compilation.xla_files import file_messages

MARK = -31_415
"""A real function that is called without work never returns a tensor of only this number."""


def define(
    name: str,
    arguments: Sequence[tf.Tensor],
    captures: Sequence[tf.TensorSpec | None],
    results: Sequence[tf.Tensor],
) -> bytes:
    """The serialized `FunctionDef` of an HLO stub.

    Args:
        captures: the variables that follow the arguments; None for those that do not change.
        results: of the function for these arguments; only shapes and dtypes count.

    Raises:
        ValueError: no result can hold the mark.
    """
    marked = _marked(results)

    def nothing(*given: tf.Tensor) -> list[tf.Tensor]:
        # Depends on an argument, because TensorFlow folds constants without XLA.
        zero = 0 * tf.reduce_sum(tf.cast(given[0], tf.int32))

        def result(i: int, x: tf.Tensor) -> tf.Tensor:
            if i == marked:
                return tf.fill(x.shape, tf.cast(zero + MARK, x.dtype))
            # XLA compiles a copy of an argument fastest.
            same = [y for y in given if (y.dtype, y.shape) == (x.dtype, x.shape)]
            return tf.identity(same[0]) if same else tf.fill(x.shape, tf.cast(zero, x.dtype))

        for handle, variable in zip(given[len(arguments) :], captures, strict=True):
            if variable is not None:
                _assign(handle, variable, zero)
        return [result(i, x) for i, x in enumerate(results)]

    specs = [tf.TensorSpec(x.shape, x.dtype) for x in arguments]
    variables = [tf.TensorSpec([], tf.resource)] * len(captures)
    traced = tf.function(nothing, jit_compile=True, autograph=False)
    definition = traced.get_concrete_function(*specs, *variables).function_def
    definition.signature.name = name
    return definition.SerializeToString(deterministic=True)


def _assign(handle: tf.Tensor, variable: tf.TensorSpec, zero: tf.Tensor) -> None:
    """Changes a variable as far as XLA sees: one of its numbers is written where it was."""
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype)
    value = tf.ensure_shape(value, variable.shape)
    start, rank = tf.repeat(zero, variable.shape.rank), variable.shape.rank
    number = xla.dynamic_slice(value, start, [1] * rank)
    value = xla.dynamic_update_slice(value, number, start)
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def is_own_output(results: Sequence[tf.Tensor]) -> bool:
    """Whether the stub itself returned these results, not the code in its cache file."""
    return bool(np.all(results[_marked(results)].numpy() == MARK))


def with_code_of(function: bytes, hlo_stub: bytes) -> bytes:
    """The cache file of an HLO stub, with the function's machine code in it.

    Args:
        function: cache file of the function.
        hlo_stub: cache file of the stub.

    Raises:
        ValueError: arguments or results differ, or the files have another format.
    """
    entry, hlo = file_messages()
    try:
        theirs, own = entry.FromString(function), entry.FromString(hlo_stub)
        shapes = [hlo.FromString(x.hlo_module).host_program_shape for x in (theirs, own)]
    except DecodeError as error:
        raise ValueError(f"XLA's cache files have another format ({error})") from error
    if not theirs.executable or not shapes[0] or shapes[0] != shapes[1]:
        raise ValueError("its HLO stub has other arguments or results")
    own.executable = theirs.executable
    return own.SerializeToString(deterministic=True)


def _marked(results: Sequence[tf.Tensor]) -> int:
    for i, x in enumerate(results):
        if x.dtype != tf.bool and x.shape.num_elements() > 0:
            return i
    raise ValueError("none of its results is a number")
