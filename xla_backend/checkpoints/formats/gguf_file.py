"""GGUF files: their metadata and their tensors, checked before anything is trusted.

Knows the container: where keys, values and tensors are, and that a count or an offset may be wrong
or malicious. The package `gguf` provides the types and dequantizes; its reader is not used, because
it trusts the file.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from xla_backend.checkpoints.formats import mapped
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.options import shown
from xla_backend.kernels.matmul.blocks import FORMATS, Blocks, Weights

SUFFIX = ".gguf"
_MAGIC = b"GGUF"
# As llama.cpp names the pieces of a large model.
_PIECE = re.compile(r"(.+-)(\d{5})-of-(\d{5})(|\.gguf)", re.IGNORECASE)

_Kind = TypeVar("_Kind", int, float, str, bool)

# The format's numbers for types of metadata, as `struct` writes them.
_SCALARS = dict(zip([*range(8), 10, 11, 12], "BbHhIif?Qqd", strict=True))
_TEXT, _ARRAY = 8, 9

_SIXTEEN_BITS = {"F16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16)}
# Far above what models have. Without them, a file full of zeros would take hours.
_MAX_KEYS = _MAX_TENSORS = 2**16
_MAX_ENTRIES = 2**22
_LONGEST_TEXT = 2**24  # bytes


@dataclass(frozen=True)
class _Array:
    """An array of the metadata that is not read yet: `count` entries of `kind` from `start`."""

    kind: int
    start: int
    count: int


@dataclass(frozen=True)
class _Stored:
    """A tensor in the file.

    Attributes:
        shape: rows first, as in numpy.
        kind: the number of its quantization.
        start, size: bytes.
    """

    data: mmap.mmap
    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


def is_one(path: Path) -> bool:
    """Whether a file is a GGUF file: by its first bytes, or by its name if it is damaged.

    Raises:
        OSError: it cannot be read.
    """
    if path.suffix.lower() == SUFFIX:
        return True
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def pieces(path: Path) -> list[Path]:
    """All files of a model that llama.cpp has split, of which `path` is one; otherwise `path`."""
    named = _PIECE.fullmatch(path.name)
    if named is None:
        return [path]
    before, _, count, after = named.groups()
    return [
        path.with_name(f"{before}{number:05}-of-{count}{after}")
        for number in range(1, int(count) + 1)
    ]


def find(place: Path) -> Path | None:
    """The GGUF file of a model: `place` itself, or the only one of a folder without config.json.

    Of a model in pieces, the first.
    """
    try:
        if place.is_file():
            return pieces(place)[0] if is_one(place) else None
        if (place / "config.json").is_file():
            return None
        ggufs = (path for path in place.glob("*") if path.is_file() and is_one(path))
        found = sorted({pieces(path)[0] for path in ggufs})
    except (OSError, ValueError) as error:  # also a name that is invalid for a file
        raise ModelUnavailable(f"{place} cannot be read: {error}.") from error
    if len(found) > 1:
        raise ModelUnavailable(
            f"{place} has {len(found)} GGUF files; give the path of one of them, {found[0]} for "
            "example."
        )
    return found[0] if found else None


class GGUFFile:
    """A GGUF file of version 2 or 3, mapped into memory; of a model in pieces, all of them."""

    def __init__(self, path: Path, piece: int = 0) -> None:
        """Reads all but arrays and tensors, and checks where those are.

        Args:
            path: of the file, or of the first piece.
            piece: number of the piece that this is; the first one reads the others.
        """
        self.path = path
        try:
            with path.open("rb") as file:
                start = file.read(8)
                if start == b"version ":
                    raise self.damaged("it is a Git LFS pointer, not the file itself")
                if start[:4] != _MAGIC or len(start) < 8:
                    raise self.damaged("it does not begin like a GGUF file")
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
        version = int.from_bytes(start[4:], "little")
        if version not in (2, 3):
            order = "for big-endian machines" if version % 2**16 == 0 else f"version {version}"
            raise ModelUnavailable(
                f"{path} is a GGUF file {order}, and only little-endian files of versions 2 "
                "and 3 are supported. Convert the model again with a current llama.cpp."
            )
        self._place = 8
        tensors = self._count(_MAX_TENSORS, "Q")
        keys = self._count(_MAX_KEYS, "Q")
        self._metadata: dict[str, Any] = {}
        for _ in range(keys):
            name = self._read_text()
            if name in self._metadata:
                raise self.damaged(f"it sets {shown(name, 60)} twice")
            self._metadata[name] = self._read_value()
        self._stored = self._read_tensors(tensors)
        if (number := self.value("split.no", int, 0)) != piece:
            raise ModelUnavailable(
                f"{path} is piece {number + 1} of a model, which its name does not say. Give it "
                "the name that it had."
            )
        if piece == 0:
            self._read_pieces(self.value("split.count", int, 1))
        self.tensors = frozenset(self._stored)

    def damaged(self, reason: str) -> ModelUnavailable:
        """The error to raise for a file whose contents cannot be right."""
        return ModelUnavailable(
            f"{self.path} is damaged: {reason}. Download or copy the file again."
        )

    # Metadata

    def value(self, key: str, kind: type[_Kind], default: _Kind | None = None) -> _Kind:
        """The value of a key, or `default` if the file does not set it."""
        found = self.optional(key, kind)
        if found is not None:
            return found
        if default is None:
            raise self.damaged(f"it does not set {key}")
        return default

    def optional(self, key: str, kind: type[_Kind]) -> _Kind | None:
        """The value of a key; None if the file does not set it."""
        found = self._metadata.get(key)
        if found is None:
            return None
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind or (isinstance(found, float) and not math.isfinite(found)):
            shape = "an array" if isinstance(found, _Array) else shown(found, 60)
            raise ModelUnavailable(
                f"{self.path} sets {key} to {shape}, and this kind of value is not supported. "
                "Choose another conversion of the model."
            )
        return found

    def is_array(self, key: str) -> bool:
        return isinstance(self._metadata.get(key), _Array)

    def texts(self, key: str) -> list[str]:
        """The entries of an array of texts; empty if the file does not set it."""
        array = self._array(key)
        if array is None:
            return []
        if array.kind != _TEXT:
            raise self.damaged(f"{key} is not an array of texts")
        self._place = array.start
        return [self._read_text() for _ in range(array.count)]

    def numbers(self, key: str) -> list[Any]:
        """The entries of an array of numbers; empty if the file does not set it."""
        array = self._array(key)
        if array is None:
            return []
        if array.kind not in _SCALARS:
            raise self.damaged(f"{key} is not an array of numbers")
        code = f"<{array.count}{_SCALARS[array.kind]}"
        return list(struct.unpack_from(code, self._data, array.start))

    def _array(self, key: str) -> _Array | None:
        found = self._metadata.get(key)
        if found is not None and not isinstance(found, _Array):
            raise self.damaged(f"{key} is not an array")
        return found

    # Tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, rows first."""
        return self._stored[name].shape

    def read_stored(self, name: str) -> Weights:
        """A tensor; a matrix of 16-bit numbers or blocks stays as it is in the file."""
        if len(self._stored[name].shape) == 2:
            [matrix] = self.read_matrices(name)
            return matrix
        return self.read(name)

    def read_matrices(self, name: str, *, as_stored: bool = True) -> list[Weights]:
        """The matrices that a tensor is a stack of, each as `read_stored` has it."""
        from gguf import GGMLQuantizationType

        stored = self._stored[name]
        if len(stored.shape) not in (2, 3):
            raise self.damaged(f"{shown(name, 60)} holds no matrices")
        rows, columns = stored.shape[-2:]
        kind = GGMLQuantizationType(stored.kind).name
        if not as_stored or kind not in {*FORMATS, *_SIXTEEN_BITS}:
            return [*self.read(name).reshape(-1, rows, columns)]
        raw = mapped.part(stored.data, stored.start, stored.size).reshape(
            math.prod(stored.shape[:-2]), rows, -1
        )
        if kind in _SIXTEEN_BITS:
            return [*raw.view(_SIXTEEN_BITS[kind])]
        return [Blocks(kind, matrix) for matrix in raw]

    def read(self, name: str) -> np.ndarray:
        """A tensor as float32; a float32 tensor is a read-only view of the file."""
        from gguf import GGMLQuantizationType, dequantize

        stored = self._stored[name]
        kind = GGMLQuantizationType(stored.kind)
        raw = mapped.part(stored.data, stored.start, stored.size)
        if kind is GGMLQuantizationType.F32:
            return raw.view("<f4").reshape(stored.shape)
        columns = stored.shape[-1]
        rows = math.prod(stored.shape[:-1])
        raw = raw.reshape(rows, -1)
        tensor = np.empty((rows, columns), np.float32)
        # In parts: the package needs several copies while it works.
        part = max(1, 2**20 // columns)
        try:
            with np.errstate(all="ignore"):  # a damaged scale may be infinite
                for row in range(0, rows, part):
                    tensor[row : row + part] = dequantize(raw[row : row + part], kind)
        except NotImplementedError as error:
            raise ModelUnavailable(
                f"{self.path} stores {name} as {kind.name}, which is not supported. Choose a "
                "conversion in Q4_K_M, Q8_0, F16 or BF16, for example."
            ) from error
        return tensor.reshape(stored.shape)

    def _read_pieces(self, count: int) -> None:
        paths = pieces(self.path)
        missing = [path.name for path in paths if not path.is_file()]
        if len(paths) != max(count, 1) or missing:
            which = f"{', '.join(missing[:3])} of its folder" if missing else "all of them"
            raise ModelUnavailable(
                f"{self.path} is the first of {count} pieces of a model, and {which} must lie "
                "beside it under the names that they had. Download or copy them, too."
            )
        for number, path in enumerate(paths[1:], start=1):
            more = GGUFFile(path, number)._stored
            if twice := more.keys() & self._stored.keys():
                raise self.damaged(f"{path.name} also has {shown(min(twice), 60)}")
            self._stored |= more

    def _read_tensors(self, count: int) -> dict[str, _Stored]:
        found: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(count):
            name = self._read_text()
            axes = tuple(self._scalar("Q") for _ in range(self._count(4, "I")))
            if name in found or not axes or not all(0 < axis < 2**31 for axis in axes):
                raise self.damaged(f"it lists the tensor {shown(name, 60)} wrongly")
            found[name] = (axes[::-1], self._scalar("I"), self._scalar("Q"))
        alignment = self.value("general.alignment", int, 32)
        if not 0 < alignment <= 2**16 or alignment & (alignment - 1):
            raise self.damaged(f"it aligns tensors to {alignment} bytes")
        begin = -(-self._place // alignment) * alignment
        tensors = {
            name: self._placed(name, shape, kind, begin + offset)
            for name, (shape, kind, offset) in found.items()
        }
        # Otherwise a small file with many names for one place could fill the memory.
        if sum(tensor.size for tensor in tensors.values()) > len(self._data):
            raise self.damaged("its tensors overlap")
        return tensors

    def _placed(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> _Stored:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (ValueError, KeyError) as error:
            raise ModelUnavailable(
                f"{self.path} stores {shown(name, 60)} in an unknown format (type "
                f"{kind}). Choose a conversion in Q4_K_M, Q8_0, F16 or BF16, for example."
            ) from error
        blocks, rest = divmod(shape[-1], block)
        length = math.prod(shape[:-1]) * blocks * size
        if rest:
            raise self.damaged(f"rows of {shown(name, 60)} are not a whole number of blocks")
        if start + length > len(self._data):
            raise self.damaged(
                f"it should have {start + length} bytes or more and ends after {len(self._data)}"
            )
        return _Stored(self._data, shape, kind, start, length)

    # Reading on from a place

    def _take(self, size: int) -> int:
        """Moves on by `size` bytes; returns where they begin."""
        start = self._place
        if size > len(self._data) - start:
            raise self.damaged(f"it ends after {len(self._data)} bytes, inside its header")
        self._place = start + size
        return start

    def _scalar(self, code: str) -> Any:
        code = f"<{code}"
        return struct.unpack_from(code, self._data, self._take(struct.calcsize(code)))[0]

    def _count(self, most: int, code: str) -> int:
        count = self._scalar(code)
        if count > most:
            raise self.damaged(f"it counts {count} where there are at most {most}")
        return count

    def _read_text(self) -> str:
        start = self._take(self._count(_LONGEST_TEXT, "Q"))
        try:
            return self._data[start : self._place].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged("a text in it is not UTF-8") from error

    def _read_value(self) -> Any:
        kind = self._scalar("I")
        if kind == _TEXT:
            return self._read_text()
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise self.damaged(f"it has a value of the unknown type {kind}")
        kind = self._scalar("I")
        count = self._count(_MAX_ENTRIES, "Q")
        start = self._place
        if kind in _SCALARS:
            self._take(count * struct.calcsize(f"<{_SCALARS[kind]}"))
        elif kind == _TEXT:
            for _ in range(count):
                self._take(self._scalar("Q"))
        else:
            raise self.damaged("it has arrays of arrays, which no model has")
        return _Array(kind, start, count)
