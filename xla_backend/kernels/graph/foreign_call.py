"""A foreign function's call as an operation of a graph that XLA compiles."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.compiler.mlir.stablehlo import stablehlo
from tensorflow.compiler.tf2xla.python import xla

from xla_backend.kernels import registration

_TYPES = {
    tf.float32: "f32",
    tf.uint16: "ui16",
    tf.float16: "f16",
    tf.int8: "i8",
    tf.uint8: "ui8",
    tf.int32: "i32",
    tf.int64: "i64",
}


def call(
    name: str, operands: Sequence[tf.Tensor], columns: int, *, has_side_effect: bool = False
) -> tf.Tensor:
    """Calls a registered function in a graph that XLA compiles.

    Args:
        operands: the first is `[rows, ...]`, with any number of rows, known when XLA compiles.
        columns: of the result.
        has_side_effect: whether it also writes elsewhere. XLA then keeps every call, but orders two
            calls only if one needs the other's result.

    Returns:
        What the function writes, `[rows, columns]` float32.
    """
    registration.wait_until_ready()
    types = [_tensor_type(operand.shape, operand.dtype) for operand in operands]
    rows = operands[0].shape[0]
    result = _tensor_type([rows, columns], tf.float32)
    module = _module(name, tuple(types), result, columns, has_side_effect)
    return xla.call_module(
        operands,
        version=9,
        module=module,
        Tout=[tf.float32],
        Sout=[[rows, columns]],
        platforms=["CPU"],
    )[0]


def _tensor_type(shape: tf.TensorShape | Sequence[int | None], dtype: tf.DType) -> str:
    axes = ["?" if axis is None else str(axis) for axis in shape]
    return f"tensor<{'x'.join([*axes, _TYPES[dtype]])}>"


@functools.cache
def _module(
    name: str, types: tuple[str, ...], result: str, columns: int, has_side_effect: bool
) -> bytes:
    """A StableHLO module with only the call.

    If the number of rows is known only when XLA compiles, another operand has the result's shape.
    """
    arguments = [f"%operand{place}" for place in range(len(types))]
    declared = ", ".join(f"{a}: {t}" for a, t in zip(arguments, types, strict=True))
    shape, more, operands, kinds = "", "", arguments, list(types)
    if result.startswith("tensor<?"):
        shape = f"""
          %rows = stablehlo.get_dimension_size %operand0, dim = 0 : ({types[0]}) -> tensor<i32>
          %row = stablehlo.reshape %rows : (tensor<i32>) -> tensor<1xi32>
          %columns = stablehlo.constant dense<{columns}> : tensor<1xi32>
          %shape = stablehlo.concatenate %row, %columns, dim = 0
            : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>"""
        more = f", indices_of_shape_operands = dense<{len(types)}> : tensor<1xi64>"
        operands, kinds = [*arguments, "%shape"], [*types, "tensor<2xi32>"]
    text = f"""
      module attributes {{jax.uses_shape_polymorphism = true}} {{
        func.func public @main({declared}) -> {result} {{{shape}
          %result = "stablehlo.custom_call"({", ".join(operands)}) {{
            call_target_name = "{name}", api_version = 4 : i32, backend_config = {{}},
            has_side_effect = {str(has_side_effect).lower()}{more}
          }} : ({", ".join(kinds)}) -> {result}
          return %result : {result}
        }}
      }}"""
    return bytes(stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version()))
