"""XLA's and TensorFlow's messages, without TensorFlow.

Knows where their Python classes are in TensorFlow's package. TensorFlow takes seconds to import;
these files of its package do not need it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

from xla_backend.compilation.xla_files import MANY, ONE, message_classes

_EXECUTABLE = {"hlo": (1, ONE), "buffers": (2, ONE), "object_files": (8, MANY)}
"""The fields of XLA's `CompilationResultProto` (xla/service/cpu/executable.proto) used here;
TensorFlow's package has no Python class for it."""
_FIRST = {"value": (1, ONE)}
"""Messages whose first field alone is read: a module with its configuration, an object file with
its name."""


@functools.cache
def hlo() -> Any:
    """The module with `HloModuleProto` and `BufferAssignmentProto`."""
    with _package_alone():
        from tensorflow.compiler.xla.service import hlo_pb2
    return hlo_pb2


@functools.cache
def shapes() -> Any:
    """The module with `PrimitiveType`."""
    with _package_alone():
        from tensorflow.compiler.xla import xla_data_pb2
    return xla_data_pb2


@functools.cache
def graphs() -> tuple[Any, Any]:
    """The classes `FunctionDef` and `GraphDebugInfo`."""
    with _package_alone():
        from tensorflow.core.framework import function_pb2, graph_debug_info_pb2
    return function_pb2.FunctionDef, graph_debug_info_pb2.GraphDebugInfo


@functools.cache
def executable() -> tuple[Any, Any]:
    """Classes for XLA's serialized machine code, and for messages whose first field is read.

    All their fields are bytes.
    """
    whole, first = message_classes({"Executable": _EXECUTABLE, "First": _FIRST})
    return whole, first


@contextlib.contextmanager
def _package_alone() -> Iterator[None]:
    """Lets modules below `tensorflow` be imported without the package itself."""
    if "tensorflow" in sys.modules:
        yield
        return
    found = importlib.util.find_spec("tensorflow")
    assert found is not None and found.submodule_search_locations is not None
    package = types.ModuleType("tensorflow")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["tensorflow"] = package
    try:
        yield
    finally:
        del sys.modules["tensorflow"]
