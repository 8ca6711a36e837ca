"""`SavedWeights`: a model's weights on disk in their memory layout, mapped at the next start.

Knows the file, its name and how it is checked. A file has the arrays, at multiples of 64 bytes,
then their names, places and sums as JSON. Processes share its memory, and the system can take it
back and read it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from xla_backend.checkpoints.models import ModelFiles
from xla_backend.checkpoints.weights import weight_files
from xla_backend.compilation.store import Store
from xla_backend.model.large_pages import ALIGNMENT, LargePages

logger = logging.getLogger(__name__)

LEAST = 2**25
"""Bytes of weights below which a checkpoint is read as fast."""

_MAGIC = b"xla_backend weights 1\n\0\0"
_END = 8 + 16 + len(_MAGIC)
"""Bytes after the JSON: its length, its digest, `_MAGIC`."""
_WORDS = 2**17
"""Numbers of 64 bits that share a sum: 1 MiB. Sums are read at the speed of memory; any other
checksum would take longer than all the rest of loading."""

_LARGE_PAGE = 2**21


class SavedWeights:
    """A checked file.

    Attributes:
        arrays: by name. Writable, as TensorFlow requires, but changes are private.
        facts: what else was saved.
    """

    def __init__(self, path: Path) -> None:
        """Maps and checks a file.

        Raises:
            OSError: it cannot be read.
            ValueError: it is damaged.
        """
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _END))
            end = file.read()
            if len(end) != _END or not end.endswith(_MAGIC):
                raise ValueError("it does not end like a file of weights")
            length = int.from_bytes(end[:8], "little")
            if length > size - _END:
                raise ValueError("it is too short")
            file.seek(size - _END - length)
            header = file.read(length)
            if _digest(header) != end[8:24]:
                raise ValueError("its header is damaged")
            content = json.loads(header)
            data = _mapped(file, size - _END - length)
        if _sums(data) != content["sums"]:
            raise ValueError("its checksum does not match")
        self.facts: dict[str, Any] = content["facts"]
        self.arrays = {
            name: np.frombuffer(data.data, kind, math.prod(shape), start).reshape(shape)
            for name, (kind, shape, start) in content["arrays"].items()
        }


def name_of(files: ModelFiles) -> str:
    """The name in the store, which changes with the checkpoint, its config and the format.

    Raises:
        ModelUnavailable: there are no weights.
    """
    paths = [path.resolve() for path in weight_files(files.folder)]
    stats = [(str(path), path.stat()) for path in paths]
    parts = [
        f"{files.info.weights} {files.info.kernels}",
        files.config.to_json_string(use_diff=False),
        *(f"{path} {of.st_size} {of.st_mtime_ns}" for path, of in stats),
    ]
    return _digest("\n".join(parts).encode()).hex()


def find(store: Store, name: str) -> SavedWeights | None:
    """The weights of this name; None if there are none. Damaged ones are removed."""
    path = store.weights(name)
    try:
        found = SavedWeights(path)
        os.utime(path)  # the store removes the least recently used
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("Saved weights are made again: %s cannot be used (%s).", path, error)
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    return found


def save(store: Store, name: str, arrays: Mapping[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Writes weights into the store, which says so if it cannot.

    Args:
        arrays: by name, in C order; must not change meanwhile.
        facts: what JSON can hold.
    """

    def write(file: IO[bytes]) -> None:
        places, size = {}, 0
        for at, array in arrays.items():
            places[at] = (array.dtype.name, array.shape, size)
            size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        for piece in _pieces(arrays.values()):
            file.write(piece)
        file.flush()
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            sums = _sums(np.frombuffer(mapped, np.uint8))
        header = json.dumps({"arrays": places, "sums": sums, "facts": facts}).encode()
        file.write(header + len(header).to_bytes(8, "little") + _digest(header) + _MAGIC)

    size = sum(array.nbytes for array in arrays.values())
    if size >= LEAST:
        store.save_weights(name, size, write)


def _pieces(arrays: Iterable[np.ndarray]) -> Iterator[bytearray]:
    """The arrays in pieces of large pages, so that the file is cached in large pages."""
    piece = bytearray()
    for array in arrays:
        rest = array.reshape(-1).view(np.uint8).data
        while len(rest):
            filling, rest = rest[: _LARGE_PAGE - len(piece)], rest[_LARGE_PAGE - len(piece) :]
            piece += filling
            if not len(rest):
                piece += bytes(-len(piece) % ALIGNMENT)
            if len(piece) == _LARGE_PAGE:
                yield piece
                piece = bytearray()
    yield piece


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _sums(data: np.ndarray) -> list[int]:
    words = data.view(np.uint64)
    return np.add.reduceat(words, range(0, len(words), _WORDS)).tolist()


def _mapped(file: IO[bytes], size: int) -> np.ndarray:
    """The first bytes of a file, mapped; or read into memory where mapping has no large pages.

    Linux maps a file by large pages only in file systems that keep it in such (XFS since Linux
    5.18, ext4 since 6.16), if it was written so. Without them reading takes a third longer.
    """
    mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    data = np.frombuffer(mapped, np.uint8)
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return data
    mapped.madvise(mmap.MADV_HUGEPAGE)
    np.add.reduce(data[:: mmap.PAGESIZE], dtype=np.int64)  # maps all pages
    if _in_large_pages(data.ctypes.data) >= size / 2:
        return data
    data = LargePages().empty((size,), np.uint8)
    file.seek(0)
    if file.readinto(data) != size:  # type: ignore[attr-defined]
        raise ValueError("it is too short")
    return data


def _in_large_pages(address: int) -> int:
    """Bytes of the mapping around an address that are mapped by large pages of a file."""
    is_inside, lines = False, []
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/smaps").read_text().splitlines()
    for line in lines:
        head, _, rest = line.partition(" ")
        first, dash, last = head.partition("-")
        if dash:
            is_inside = int(first, 16) <= address < int(last, 16)
        elif is_inside and head == "FilePmdMapped:":
            return int(rest.split()[0]) * 1024
    return 0
