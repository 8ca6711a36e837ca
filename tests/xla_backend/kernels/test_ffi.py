"""The offsets of XLA's structures, against the header that TensorFlow ships."""

import ctypes
import importlib.util
import re
from pathlib import Path

import pytest

from xla_backend.kernels import ffi

SIZES = {"int": 4, "int32_t": 4, "uint32_t": 4, "int64_t": 8, "size_t": 8, "void": 0}


class Header:
    """The structures of a C header, laid out as compilers of 64-bit systems do."""

    def __init__(self, path: Path) -> None:
        self.text = re.sub(r"//.*", "", path.read_text())
        structure = r"struct\s+(\w+)\s*\{([^{}]*)\}"
        self._structures = dict(re.findall(structure, self.text))
        self._enums = set(re.findall(r"typedef enum \{[^}]*\}\s*(\w+);", self.text))
        self._names = dict(re.findall(r"typedef (\w+) (\w+);", self.text))
        self._aliases = {name: kind for kind, name in self._names.items()}

    def fields(self, structure: str) -> dict[str, int]:
        """The offsets of a structure's fields."""
        return self._laid_out(structure)[0]

    def _laid_out(self, structure: str) -> tuple[dict[str, int], int, int]:
        """The fields' offsets, the structure's size and its alignment."""
        offsets, end, widest = {}, 0, 1
        for field in filter(None, map(str.strip, self._structures[structure].split(";"))):
            if function := re.fullmatch(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", field):
                kind, name = "*", function[1]
            else:
                *kinds, name = re.findall(r"\w+|\*", field)
                kind = "*" if "*" in kinds else kinds[-1]
            size, alignment = self._size(kind)
            offsets[name] = -(-end // alignment) * alignment
            end, widest = offsets[name] + size, max(widest, alignment)
        return offsets, -(-end // widest) * widest, widest

    def _size(self, kind: str) -> tuple[int, int]:
        kind = self._aliases.get(kind, kind)
        if kind == "*":
            return 8, 8
        if kind in self._structures:
            return self._laid_out(kind)[1:]
        size = 4 if kind in self._enums else SIZES[kind]
        return size, size


@pytest.fixture(scope="module")
def header() -> Header:
    tensorflow = importlib.util.find_spec("tensorflow")
    assert tensorflow is not None
    assert tensorflow.origin is not None
    return Header(Path(tensorflow.origin).parent / "include/xla/ffi/api/c_api.h")


def test_what_a_kernel_reads_of_a_call(header: Header) -> None:
    frame = header.fields("XLA_FFI_CallFrame")
    assert {
        "extension": frame["extension_start"],
        "api": frame["api"],
        "context": frame["ctx"],
        "operands": frame["args"] + header.fields("XLA_FFI_Args")["args"],
        "results": frame["rets"] + header.fields("XLA_FFI_Rets")["rets"],
    } == ffi.FRAME
    buffer = header.fields("XLA_FFI_Buffer")
    assert {"data": buffer["data"], "axes": buffer["dims"]} == ffi.BUFFER
    assert header.fields("XLA_FFI_Metadata_Extension")["metadata"] == ffi.METADATA
    metadata, version = (header.fields(f"XLA_FFI_{x}") for x in ("Metadata", "Api_Version"))
    begin = metadata["api_version"]
    numbers = (begin + version["major_version"], begin + version["minor_version"])
    assert (*numbers, metadata["traits"]) == ffi.METADATA_FIELDS
    named = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header.text))
    assert (int(named["MAJOR"]), int(named["MINOR"])) == ffi.VERSION


def test_the_functions_of_the_table(header: Header) -> None:
    table = header.fields("XLA_FFI_Api")
    assert {
        "Error_Create": ffi.API_CREATE_ERROR,
        "Error_Destroy": ffi.API_DESTROY_ERROR,
        "ThreadPool_Schedule": ffi.API_SCHEDULE,
        "ThreadPool_NumThreads": ffi.API_NUM_THREADS,
        "Error_GetMessage": ffi._API_MESSAGE,  # noqa: SLF001
        "Handler_Register": ffi._API_REGISTER,  # noqa: SLF001
    }.items() <= {name.removeprefix("XLA_FFI_"): at for name, at in table.items()}.items()
    version = header.fields("XLA_FFI_Api_Version")
    assert table["api_version"] + version["major_version"] == ffi._API_VERSION  # noqa: SLF001
    code = re.search(r"XLA_FFI_Error_Code_RESOURCE_EXHAUSTED = (\d+)", header.text)
    assert code is not None
    assert int(code[1]) == ffi.RESOURCE_EXHAUSTED
    # Each argument structure that machine code fills has 8 bytes a field.
    for function, fields in {
        "Error_Create": ("message", "errc"),
        "Error_Destroy": ("error",),
        "ThreadPool_Schedule": ("ctx", "task", "data"),
        "ThreadPool_NumThreads": ("ctx", "num_threads"),
    }.items():
        own = header.fields(f"XLA_FFI_{function}_Args")
        assert own == {
            name: 8 * at for at, name in enumerate(("struct_size", "extension_start", *fields))
        }


def test_the_structures_that_register_a_kernel(header: Header) -> None:
    def offsets(structure: type[ctypes.Structure]) -> list[int]:
        return [getattr(structure, name).offset for name, _ in structure._fields_]  # type: ignore[misc]

    span = header.fields("XLA_FFI_ByteSpan")
    own = header.fields("XLA_FFI_Handler_Register_Args")
    bundle = header.fields("XLA_FFI_Handler_Bundle").values()
    spans = [own[name] + at for name in ("name", "platform") for at in span.values()]
    assert offsets(ffi._Registration) == [  # noqa: SLF001
        own["struct_size"],
        own["extension_start"],
        *spans,
        *(own["bundle"] + at for at in bundle),
        own["traits"],
    ]
    message = header.fields("XLA_FFI_Error_GetMessage_Args")
    assert offsets(ffi._Message) == [*message.values()]  # noqa: SLF001
