"""XLA's foreign functions: how one is registered, and called in a graph.

Knows the C interface of XLA's foreign functions (xla/ffi/api/c_api.h, version 0.2, whose structures
grow but keep the offsets of their fields), which TensorFlow's library exports, and StableHLO's form
of a call. Must not know what such a function computes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf
from tensorflow.compiler.mlir.stablehlo import stablehlo
from tensorflow.compiler.tf2xla.python import xla

VERSION = (0, 2)
"""Version of the interface that a handler reports."""

# Offsets in the interface's structures, in bytes.
FRAME = {"extension": 8, "api": 16, "context": 24, "operands": 72, "results": 112}
"""In a call, the handler's only argument. Operands and results are arrays of buffers' addresses."""
BUFFER = {"data": 24, "axes": 40}
METADATA, METADATA_FIELDS = 24, (24, 28, 32)
"""In an extension, a handler's description of itself: major and minor version, traits."""
API_DESTROY_ERROR, API_SCHEDULE, API_NUM_THREADS = 64, 136, 144
"""Functions in the table that a handler gets."""
_API_MESSAGE, _API_REGISTER, _API_VERSION = 56, 72, 32

_TYPES = {
    tf.float32: "f32",
    tf.uint16: "ui16",
    tf.float16: "f16",
    tf.int8: "i8",
    tf.uint8: "ui8",
    tf.int32: "i32",
    tf.int64: "i64",
}


class _Registration(ctypes.Structure):
    """`XLA_FFI_Handler_Register_Args`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("name_length", ctypes.c_size_t),
        ("platform", ctypes.c_char_p),
        ("platform_length", ctypes.c_size_t),
        ("instantiate", ctypes.c_void_p),
        ("prepare", ctypes.c_void_p),
        ("initialize", ctypes.c_void_p),
        ("execute", ctypes.c_void_p),
        ("traits", ctypes.c_uint32),
    )


class _Message(ctypes.Structure):
    """`XLA_FFI_Error_GetMessage_Args`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("error", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
    )


@functools.cache
def _api() -> int | None:
    """The address of the table of functions; None if TensorFlow's library has none."""
    try:
        library = ctypes.CDLL(str(Path(tf.__file__).parent / "libtensorflow_framework.so.2"))
        library.XLA_FFI_GetApi.restype = ctypes.c_void_p
    except (OSError, AttributeError):
        return None
    table = library.XLA_FFI_GetApi()
    version = tuple((ctypes.c_int * 2).from_address(table + _API_VERSION))
    return table if version[0] == VERSION[0] and version >= VERSION else None


def are_possible() -> bool:
    """Whether this TensorFlow lets XLA call foreign functions, as on Linux."""
    return _api() is not None


def register(name: str, address: int) -> None:
    """Registers the handler at an address, for functions compiled or restored from now on.

    Raises:
        RuntimeError: XLA refuses it; the message says why.
    """
    table = _api()
    assert table is not None  # `are_possible`
    size = _Registration.traits.offset + _Registration.traits.size
    arguments = _Registration(
        size, None, name.encode(), len(name), b"Host", 4, None, None, None, address, 0
    )
    if error := _function(table, _API_REGISTER)(ctypes.byref(arguments)):
        said = _Message(ctypes.sizeof(_Message), None, error, None)
        _function(table, _API_MESSAGE)(ctypes.byref(said))
        raise RuntimeError(f"XLA refuses {name}: {(said.message or b'').decode(errors='replace')}")


def _function(table: int, place: int) -> ctypes._CFunctionType:
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
        ctypes.c_void_p.from_address(table + place).value or 0
    )


def call(
    name: str, operands: Sequence[tf.Tensor], columns: int, *, has_side_effect: bool = False
) -> tf.Tensor:
    """Calls a registered function in a graph that XLA compiles.

    Args:
        name: of the function.
        operands: the first is `[rows, ...]`, with any number of rows, known when XLA compiles.
        columns: of the result.
        has_side_effect: whether it also writes elsewhere. XLA then keeps every call, but orders two
            calls only if one needs the other's result.

    Returns:
        What the function writes, `[rows, columns]` float32.
    """
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
