"""The files of XLA's persistent cache: the fields that are used here.

Knows their format. Must not import TensorFlow, which has no Python classes for them, so that the
store can be inspected without it.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


@functools.cache
def file_messages() -> tuple[Any, Any]:
    """Message classes with the fields of `XlaSerializedCacheEntry` and `HloModuleProto` used here.

    Source: tensorflow/compiler/jit/xla_compilation_cache.proto, xla/service/hlo.proto. TensorFlow's
    package has no Python class for the first.
    """
    fields = {
        "Entry": {"key": 1, "hlo_module": 2, "executable": 3},
        "Hlo": {"host_program_shape": 4},
    }
    file = descriptor_pb2.FileDescriptorProto(name="xla_backend/xla_files.proto", syntax="proto3")
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


def hlo_of(file: bytes) -> bytes:
    """The serialized `HloModuleProto` that XLA compiled for a cache file."""
    return file_messages()[0].FromString(file).hlo_module
