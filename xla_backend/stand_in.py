"""Stand-ins: what TensorFlow is shown in place of a function whose machine code is on disk.

Knows how XLA's persistent cache finds code, and the file that it keeps. Must not know the store,
nor what the functions compute.

The cache finds code by the HLO that it was compiled from: before TensorFlow looks, it turns the
whole graph into HLO, which took more than half of the time of restoring. A stand-in has the same
arguments and results and computes nothing, so that its HLO is soon made; in the cache's file for it
lies the machine code of the function itself, and that is what is loaded and runs. Both must agree
about arguments and results, or there is no such file.

If TensorFlow did not find the file it would compile the stand-in. One result then holds nothing but
a mark, by which that is told.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

MARK = -31_415
"""No function's results consist of this number where it is compiled without being made to work."""


def define(
    name: str, arguments: Sequence[tf.Tensor], captures: int, results: Sequence[tf.Tensor]
) -> bytes:
    """The serialized `FunctionDef` of a stand-in.

    Args:
        name: its name.
        arguments: with which the function was called; only shapes and dtypes count.
        captures: how many variables follow them.
        results: what the function returned for these arguments; only shapes and dtypes count.

    Raises:
        ValueError: no result can carry the mark.
    """
    marked = _marked(results)

    def nothing(*given: tf.Tensor) -> list[tf.Tensor]:
        # Of an argument, because TensorFlow would not ask XLA for constants.
        zero = 0 * tf.reduce_sum(tf.cast(given[0], tf.int32))

        def result(i: int, x: tf.Tensor) -> tf.Tensor:
            if i == marked:
                return tf.fill(x.shape, tf.cast(zero + MARK, x.dtype))
            # A copy of what was given takes XLA no time to compile.
            same = [y for y in given if (y.dtype, y.shape) == (x.dtype, x.shape)]
            return tf.identity(same[0]) if same else tf.fill(x.shape, tf.cast(zero, x.dtype))

        return [result(i, x) for i, x in enumerate(results)]

    specs = [tf.TensorSpec(x.shape, x.dtype) for x in arguments]
    variables = [tf.TensorSpec([], tf.resource)] * captures
    traced = tf.function(nothing, jit_compile=True, autograph=False)
    definition = traced.get_concrete_function(*specs, *variables).function_def
    definition.signature.name = name
    return definition.SerializeToString(deterministic=True)


def has_run(results: Sequence[tf.Tensor]) -> bool:
    """Whether results are a stand-in's own."""
    return bool(np.all(results[_marked(results)].numpy() == MARK))


def with_code_of(function: bytes, stand_in: bytes) -> bytes:
    """The cache's file for a stand-in, with the code of the function that it stands in for.

    Args:
        function: the cache's file for the function.
        stand_in: the cache's file for the stand-in.

    Raises:
        ValueError: they differ in arguments or results, or are no such files.
    """
    entry, hlo = _messages()
    try:
        theirs, own = entry.FromString(function), entry.FromString(stand_in)
        shapes = [hlo.FromString(x.hlo_module).host_program_shape for x in (theirs, own)]
    except DecodeError as error:
        raise ValueError(f"XLA's cache has another form ({error})") from error
    if not theirs.executable or not shapes[0] or shapes[0] != shapes[1]:
        raise ValueError("its stand-in has other arguments or results")
    own.executable = theirs.executable
    return own.SerializeToString(deterministic=True)


def _marked(results: Sequence[tf.Tensor]) -> int:
    """Which result carries the mark."""
    for i, x in enumerate(results):
        if x.dtype != tf.bool and x.shape.num_elements() > 0:
            return i
    raise ValueError("none of its results is a number")


@functools.cache
def _messages() -> tuple[Any, Any]:
    """The parts of `XlaSerializedCacheEntry` and `HloModuleProto` that matter here.

    Source: tensorflow/compiler/jit/xla_compilation_cache.proto, xla/service/hlo.proto. TensorFlow's
    package has no Python form of the first.
    """
    fields = {
        "Entry": {"key": 1, "hlo_module": 2, "executable": 3},
        "Hlo": {"host_program_shape": 4},
    }
    file = descriptor_pb2.FileDescriptorProto(name="xla_backend/stand_in.proto", syntax="proto3")
    for name, numbers in fields.items():
        message = file.message_type.add(name=name)
        for field, number in numbers.items():
            message.field.add(
                name=field,
                number=number,
                type=descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
                label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    entry, hlo = (pool.FindMessageTypeByName(name) for name in fields)
    return message_factory.GetMessageClass(entry), message_factory.GetMessageClass(hlo)
