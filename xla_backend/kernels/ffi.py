"""XLA's foreign function interface: its structures in memory, and how a function is registered.

Knows the C interface (xla/ffi/api/c_api.h, version 0.2, whose structures grow but keep the offsets
of their fields), which TensorFlow's library exports. Importing it does not import TensorFlow.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import mmap
from pathlib import Path

VERSION = (0, 2)
"""Version of the interface that a handler reports."""

# Offsets in the interface's structures, in bytes.
FRAME = {"extension": 8, "api": 16, "context": 24, "operands": 72, "results": 112}
"""In a call, the handler's only argument. Operands and results are arrays of buffers' addresses."""
BUFFER = {"data": 24, "axes": 40}
METADATA, METADATA_FIELDS = 24, (24, 28, 32)
"""In an extension, a handler's description of itself: major and minor version, traits."""
API_CREATE_ERROR, API_DESTROY_ERROR, API_SCHEDULE, API_NUM_THREADS = 48, 64, 136, 144
"""Functions in the table that a handler gets."""
RESOURCE_EXHAUSTED = 8
"""Code of an error."""
_API_MESSAGE, _API_REGISTER, _API_VERSION = 56, 72, 32


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
def _api() -> int:
    """The address of the table of functions."""
    library = ctypes.CDLL(str(_library()))
    library.XLA_FFI_GetApi.restype = ctypes.c_void_p
    table = library.XLA_FFI_GetApi()
    version = tuple((ctypes.c_int * 2).from_address(table + _API_VERSION))
    if version[0] != VERSION[0] or version < VERSION:
        raise RuntimeError(f"XLA's interface of foreign functions has version {version}")
    return int(table)


def _library() -> Path:
    tensorflow = importlib.util.find_spec("tensorflow")
    folder = Path((tensorflow and tensorflow.origin) or "").parent
    return folder / "libtensorflow_framework.so.2"


@functools.cache
def are_possible() -> bool:
    """Whether this TensorFlow lets XLA call foreign functions, as on Linux.

    Looks into the library's file, so that a process without TensorFlow can ask.
    """
    try:
        with _library().open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return False
    with content:
        return content.find(b"XLA_FFI_GetApi\0") >= 0


def register(name: str, address: int) -> None:
    """Registers the handler at an address, for functions compiled or restored from now on.

    Raises:
        RuntimeError: XLA refuses it; the message says why.
    """
    table = _api()
    size = _Registration.traits.offset + _Registration.traits.size
    arguments = _Registration(
        size, None, name.encode(), len(name), b"Host", 4, None, None, None, address, 0
    )
    if error := _function(table, _API_REGISTER)(ctypes.byref(arguments)):
        reply = _Message(ctypes.sizeof(_Message), None, error, None)
        _function(table, _API_MESSAGE)(ctypes.byref(reply))
        raise RuntimeError(f"XLA refuses {name}: {(reply.message or b'').decode(errors='replace')}")


def _function(table: int, place: int) -> ctypes._CFunctionType:
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
        ctypes.c_void_p.from_address(table + place).value or 0
    )
