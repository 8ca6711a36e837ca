"""`KVMemory`: blocks of memory for keys and values, allocated to rows one by one as they grow.

Knows addresses and the limit. Must not know what is in a block, nor which row has it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from xla_backend.model.large_pages import LargePages


class OutOfBlocks(Exception):
    """All blocks are in use."""


class KVMemory:
    """Allocates blocks up to a limit; freed blocks are reused first.

    Attributes:
        block_bytes: of one block. limit: how many blocks there can be. used: how many are taken.
        make_room: called when no block is left; frees some if it can.
    """

    def __init__(self, block_bytes: int, limit_bytes: int) -> None:
        """Allocates nothing yet; `limit` is at least one block."""
        self.block_bytes = block_bytes
        self.limit = max(1, limit_bytes // block_bytes)
        self.used = 0
        self.make_room: Callable[[], None] = lambda: None
        self._pages = LargePages()
        self._arrays: list[np.ndarray] = []  # keeps the memory
        self._free: list[int] = []

    def take(self) -> int:
        """The address of a block.

        Raises:
            OutOfBlocks: there is none, and no room could be made.
        """
        if self.used >= self.limit:
            self.make_room()
        if self.used >= self.limit:
            raise OutOfBlocks
        self.used += 1
        if not self._free:
            self._arrays.append(self._pages.empty((self.block_bytes,), np.uint8))
            self._free.append(self._arrays[-1].ctypes.data)
        return self._free.pop()

    def content(self, address: int) -> np.ndarray:
        """A block's bytes, to be read or written."""
        place = (ctypes.c_uint8 * self.block_bytes).from_address(address)
        return np.frombuffer(memoryview(place), np.uint8)

    def copy(self, address: int) -> int:
        """The address of a new block with the same content; raises as `take`."""
        copied = self.take()
        ctypes.memmove(copied, address, self.block_bytes)
        return copied

    def give_back(self, address: int) -> None:
        """Frees a block."""
        self.used -= 1
        self._free.append(address)
