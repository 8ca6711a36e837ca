"""`PrefixStore`: blocks of cached prefixes on disk, which survive a restart.

Knows files, their names, sizes and permissions. A separate thread writes the files, which only the
user can read (modes 0700 and 0600). Damaged and other files are ignored.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

SUFFIX = ".kv"

logger = logging.getLogger(__name__)


class PrefixStore:
    """Blocks by name; each file also names the block before it."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Lists the files that are there.

        Args:
            folder: of the files; created if missing.
            limit_bytes: bound on their size; the least recently used are removed first.
        """
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._files: dict[str, tuple[Path, int]] = {}  # the least recently used first
        self._children: defaultdict[str, set[str]] = defaultdict(set)
        self._waiting: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob("*-*.[0-9]*"):  # incomplete: its process was killed
            if not Path(f"/proc/{left.suffix[1:]}").exists():
                left.unlink(missing_ok=True)
        found = [(path.stat(), path) for path in folder.glob(f"*-*{SUFFIX}")]
        for status, path in sorted(found, key=lambda pair: pair[0].st_mtime):
            parent, _, name = path.stem.partition("-")
            self._files[name] = (path, status.st_size)
            self._children[parent].add(name)
        self._writer = threading.Thread(target=self._write_all, daemon=True, name="prefix-store")
        self._writer.start()

    def save(self, parent: str, name: str, tokens: tuple[int, ...], block: np.ndarray) -> None:
        """Queues a block for writing, unless it is on disk; returns at once.

        Args:
            parent, name: name of the block before it, and its own.
            tokens: in the block.
            block: uint8; must not change afterwards.
        """
        with self._lock:
            is_there = name in self._files
        if not is_there:
            self._waiting.put((parent, name, tokens, block))

    def children(self, parent: str) -> list[str]:
        """Names of the blocks that follow one."""
        with self._lock:
            return list(self._children.get(parent, ()))

    def tokens(self, name: str) -> tuple[int, ...]:
        """The tokens of a block; none if its file cannot be read."""
        found = self._read(name, "tokens")
        return () if found is None else tuple(found.tolist())

    def load(self, name: str) -> np.ndarray | None:
        """A block's bytes; None if its file cannot be read."""
        return self._read(name, "block")

    def flush(self) -> None:
        """Waits until all is written, and ends the writing thread."""
        self._waiting.put(None)
        self._writer.join()

    def _read(self, name: str, what: str) -> np.ndarray | None:
        with self._lock:
            path, _ = self._files.get(name, (None, 0))
        if path is None:
            return None
        try:
            with safe_open(path, "numpy") as file:
                found = file.get_tensor(what)
                if what == "block":
                    if str(_sum(found)) != (file.metadata() or {}).get("crc32"):
                        raise ValueError("its checksum does not match")
                    os.utime(path)
                    with self._lock:  # now the most recently used
                        self._files[name] = self._files.pop(name)
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            logger.warning("A cached prefix on disk cannot be used (%s) and is removed.", error)
            self._remove(name)
            return None
        return found

    def _write_all(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                self._write(*work)
            except OSError as error:
                logger.warning("A prefix cannot be saved on disk (%s).", error)

    def _write(self, parent: str, name: str, tokens: tuple[int, ...], block: np.ndarray) -> None:
        arrays = {"tokens": np.array(tokens, np.int32), "block": block}
        content = save(arrays, {"crc32": str(_sum(block))})
        while self._files and self._size() + len(content) > self._limit_bytes:
            self._remove(next(iter(self._files)))
        path = self._folder / f"{parent}-{name}{SUFFIX}"
        written = path.with_suffix(f".{os.getpid()}")
        written.touch(0o600)
        written.write_bytes(content)
        written.replace(path)
        with self._lock:
            self._files[name] = (path, len(content))
            self._children[parent].add(name)

    def _size(self) -> int:
        with self._lock:
            return sum(size for _, size in self._files.values())

    def _remove(self, name: str) -> None:
        with self._lock:
            path, _ = self._files.pop(name, (None, 0))
            if path is not None:
                self._children[path.stem.partition("-")[0]].discard(name)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()


def _sum(block: np.ndarray) -> int:
    return zlib.crc32(block.data)
