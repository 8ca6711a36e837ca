"""The files of XLA's persistent cache: the fields that are used here."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ONE = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
MANY = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES


@functools.cache
def file_messages() -> tuple[Any, Any]:
    """Message classes with the fields of `XlaSerializedCacheEntry` and `HloModuleProto` used here.

    Source: tensorflow/compiler/jit/xla_compilation_cache.proto, xla/service/hlo.proto. TensorFlow's
    package has no Python class for the first.
    """
    entry, hlo = message_classes(
        {
            "Entry": {"key": (1, ONE), "hlo_module": (2, ONE), "executable": (3, ONE)},
            "Hlo": {"host_program_shape": (4, ONE)},
        }
    )
    return entry, hlo


def message_classes(fields: Mapping[str, Mapping[str, tuple[int, int]]]) -> list[Any]:
    """A class for each message, with these fields as bytes.

    Args:
        fields: for each message its fields' names, each with its number, and `ONE` or `MANY`.
    """
    file = descriptor_pb2.FileDescriptorProto(name="xla_backend/files.proto", syntax="proto3")
    for name, numbers in fields.items():
        message = file.message_type.add(name=name)
        for field, (number, label) in numbers.items():
            message.field.add(name=field, number=number, type=_BYTES, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in fields]
