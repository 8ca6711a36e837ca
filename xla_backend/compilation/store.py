"""The store: traced and compiled functions on disk, and the history of earlier runs.

Knows files: names, checksums, sizes, ages. Must not know TensorFlow (the page's process predicts
from the store too) nor what the entries' bytes mean: `compiler` writes and reads them.

Layout: a folder with one sub-folder per fingerprint of all that compiled code depends on besides
its own definition, and in it one file per entry. Writes are atomic (to a temporary file, then
renamed). An entry has a checksum; one that does not match moves to `damaged/`. When the store
outgrows its bound, the least recently used entries are evicted. Weights as they lie in memory are
further files, with a bound of their own.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from xla_backend.compilation import device, processor, xla_folder
from xla_backend.compilation.startup import is_on

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "XLA_BACKEND_STORE"
"""Environment variable: the store's folder, or "off" for none."""

SIZE_BOUND = 4 * 2**30
"""Default bound on the size of all entries, in bytes."""

WEIGHTS_BOUND = 8 * 2**30
"""Bound on the size of all weights, in bytes."""

LEFTOVER_S = 3600.0
"""A temporary file older than this many seconds belongs to a process that was killed."""

_MAGIC = b"xla_backend entry 1\n"
_UNFINISHED = ".writing-"
_ENTRIES, _WEIGHTS = ("*/*.entry", "damaged/*"), ("*/*.weights",)


def default_folder() -> Path:
    """`xla_backend` in the user's cache directory (respects `XDG_CACHE_HOME`)."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # a container's user without HOME and without an entry in /etc/passwd
        cache = "/nonexistent"  # Debian's word for it; a folder that others share is not safe
    return Path(cache) / "xla_backend"


def fingerprint() -> str:
    """A hash of what stored functions depend on: package, TensorFlow, processor, XLA's flags."""
    parts = [f"xla_backend {_source_digest()}"]
    for package in ("tensorflow", "transformers"):
        parts.append(f"{package} {importlib.metadata.version(package)}")
    parts.append(f"{platform.machine()} {processor.features()}")
    parts.append(str(device.chosen()))
    parts.append(os.environ.get("XLA_FLAGS", ""))
    parts.append(xla_folder.other_xla_flags())
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


@functools.cache
def _source_digest() -> str:
    """A hash of this package's code: a stored definition is valid only for the source that it was
    traced from, and a version number is easily forgotten."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Store:
    """Entries by name, for one fingerprint. Thread-safe; processes may share the folder."""

    def __init__(self, folder: Path, size_bound: int = SIZE_BOUND) -> None:
        """Does not check that the folder can be written; `open_store` does.

        Args:
            size_bound: bound on the size of all entries, in bytes.
        """
        self.root = folder
        self.folder = folder / fingerprint()
        self._size_bound = size_bound
        self._lock = threading.Lock()
        self._has_warned = False

    def holds(self, name: str) -> bool:
        """Whether there is an entry of this name; does not read it."""
        return self._path(name).is_file()

    def inode(self, name: str) -> int:
        """A number that changes when an entry is rewritten; 0 if there is none."""
        with contextlib.suppress(OSError):
            return self._path(name).stat().st_ino
        return 0

    def names(self) -> list[str]:
        """Names of all entries of this fingerprint."""
        with contextlib.suppress(OSError):
            return sorted(path.stem for path in self.folder.glob("*.entry"))
        return []

    def size(self) -> int:
        """Size of all entries in bytes, other fingerprints included."""
        return sum(size for _, size, _ in self._files(_ENTRIES))

    def load(self, name: str) -> tuple[dict[str, Any], list[bytes]] | None:
        """An entry's description and blobs; None if it is missing or damaged."""
        path = self._path(name)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.set_aside(name, f"it cannot be read ({error})")
            return None
        try:
            entry = _unpack(content, name)
        except (ValueError, KeyError, TypeError) as error:
            self.set_aside(name, str(error))
            return None
        # Records the time of last use: many file systems do not update the access time.
        with contextlib.suppress(OSError):
            os.utime(path)
        return entry

    def save(self, name: str, description: Mapping[str, Any], blobs: Sequence[bytes]) -> bool:
        """Writes an entry; returns False, and warns once, if the disk does not allow it."""
        try:
            write_whole(self._path(name), _pack(name, description, blobs))
        except OSError as error:
            self._warn(error)
            return False
        with self._lock, contextlib.suppress(OSError):
            self._make_room(_ENTRIES, self._size_bound)
        return True

    def weights(self, name: str) -> Path:
        return self.folder / f"{name}.weights"

    def save_weights(self, name: str, size: int, write: Callable[[IO[bytes]], object]) -> None:
        """Writes a model's weights, unless they are beyond the bound; warns if the disk is full.

        Args:
            size: bytes, about.
            write: writes them.
        """
        if size > WEIGHTS_BOUND:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(self.folder).free < 2 * size:  # other programs need some, too
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            _write_with(self.weights(name), write)
        except OSError as error:
            logger.warning(
                "Weights of %.1f GB cannot be saved in %s (%s). Everything works, but each start "
                "reads the checkpoint again; free some space or choose another folder with "
                "--store.",
                *(size / 1e9, self.root, error.strerror or error),
            )
            return
        with self._lock, contextlib.suppress(OSError):
            self._make_room(_WEIGHTS, WEIGHTS_BOUND)

    def set_aside(self, name: str, reason: str) -> None:
        """Moves an unusable entry to `damaged/`."""
        path = self._path(name)
        logger.warning("Stored entry %s is set aside: %s. It is made again.", path.name, reason)
        try:
            aside = self.root / "damaged"
            aside.mkdir(exist_ok=True)
            path.replace(aside / f"{path.name}.{time.time_ns()}")
        except OSError:
            with contextlib.suppress(OSError):
                _remove(path)

    def clear(self, names: Sequence[str] | None = None) -> int:
        """Removes these entries, or all of this fingerprint and its weights; returns how many."""
        removed = 0
        for path in self.folder.glob("*.weights") if names is None else ():
            path.unlink(missing_ok=True)
        for name in self.names() if names is None else names:
            with contextlib.suppress(OSError):
                self._path(name).unlink()
                removed += 1
        return removed

    def read_history(self, weights: str) -> object:
        """The JSON value that `write_history` wrote; None if there is no readable one.

        Args:
            weights: format of the models' weights: each has other times.
        """
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.folder / _history(weights)).read_text())
        return None

    def write_history(self, weights: str, values: object) -> None:
        """Replaces a format's history. If two processes write at once, the last one wins."""
        try:
            write_whole(self.folder / _history(weights), json.dumps(values).encode())
        except OSError as error:
            self._warn(error)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.entry"

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "Compiled functions cannot be stored in %s (%s). Everything works, but each start "
                "compiles again; free some space or choose another folder with --store.",
                self.root,
                error.strerror or error,
            )

    def _files(self, patterns: Sequence[str]) -> list[tuple[float, int, Path]]:
        files = []
        for pattern in patterns:
            for path in self.root.glob(pattern):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    files.append((status.st_mtime, status.st_size, path))
        return files

    def _make_room(self, patterns: Sequence[str], bound: int) -> None:
        for path in self.folder.glob(f"{_UNFINISHED}*"):
            if time.time() - path.stat().st_mtime > LEFTOVER_S:
                path.unlink()
        files = sorted(set(self._files(patterns)))
        total = sum(size for _, size, _ in files)
        for _, size, path in files[:-1]:  # the newest was just written: never evict it
            if total <= bound:
                return
            _remove(path)
            total -= size


def chosen_folder(folder: Path | str | None = None) -> Path | None:
    """The folder that `open_store` opens; None if the store is switched off."""
    chosen = folder if folder is not None else os.environ.get(FOLDER_VARIABLE) or default_folder()
    try:
        return default_folder() if is_on(str(chosen)) else None
    except ValueError:  # a folder's name
        return Path(chosen)


def open_store(folder: Path | str | None = None) -> Store | None:
    """Opens the store in a folder; None if it is switched off or the folder cannot be written.

    Args:
        folder: "off" for no store; None for the environment variable's or else the default folder.
    """
    chosen = chosen_folder(folder)
    if chosen is None:
        return None
    store = Store(chosen)
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=store.folder) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        store._warn(error)
        return None
    return store


def _pack(name: str, description: Mapping[str, Any], blobs: Sequence[bytes]) -> bytes:
    header = json.dumps(
        {"name": name, "description": description, "sizes": [len(blob) for blob in blobs]}
    ).encode()
    body = len(header).to_bytes(8, "little") + header + b"".join(blobs)
    return _MAGIC + hashlib.sha256(body).digest() + body


def _unpack(content: bytes, name: str) -> tuple[dict[str, Any], list[bytes]]:
    start = len(_MAGIC) + 32
    if not content.startswith(_MAGIC):
        raise ValueError("it is not an entry of this store")
    if hashlib.sha256(memoryview(content)[start:]).digest() != content[len(_MAGIC) : start]:
        raise ValueError("its checksum does not match")
    end = start + 8 + int.from_bytes(content[start : start + 8], "little")
    header = json.loads(content[start + 8 : end])
    if header["name"] != name:
        raise ValueError(f"it belongs to {header['name']}")
    blobs = []
    for size in header["sizes"]:
        blobs.append(content[end : end + size])
        end += size
    return header["description"], blobs


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _history(weights: str) -> str:
    return f"history-{weights}.json"


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file atomically, even if other processes write it at the same time.

    Raises:
        OSError: it cannot be written.
    """
    _write_with(path, lambda file: file.write(content))


def _write_with(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        Path(aside).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(aside).unlink()
        raise
