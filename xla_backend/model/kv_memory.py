"""`KVMemory`: blocks of memory for keys and values, allocated to rows one by one as they grow, and
rows' states.

Knows addresses and the limit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from xla_backend.model.large_pages import LargePages


class OutOfBlocks(Exception):
    """All blocks are in use."""


class KVMemory:
    """Allocates blocks, and states of rows, up to a limit; freed ones are reused first.

    Attributes:
        block_bytes, state_bytes: of one; 0 for a model without states.
        state_blocks: how many blocks a state counts as.
        limit: how many blocks there can be. used: how many are taken.
        make_room: called when too few are left; frees some if it can.
    """

    def __init__(self, block_bytes: int, limit_bytes: int, state_bytes: int = 0) -> None:
        """Allocates nothing yet; `limit` is at least one block."""
        self.block_bytes = block_bytes
        self.state_bytes = state_bytes
        self.state_blocks = -(-state_bytes // block_bytes)
        self.limit = max(1, limit_bytes // block_bytes)
        self.used = 0
        self.make_room: Callable[[], None] = lambda: None
        self._pages = LargePages()
        self._arrays: list[np.ndarray] = []  # keeps the memory
        self._free: dict[int, list[int]] = {block_bytes: [], state_bytes: []}

    def take(self) -> int:
        """The address of a block.

        Raises:
            OutOfBlocks: there is none, and no room could be made.
        """
        return self._take(1, self.block_bytes)

    def take_state(self) -> int:
        """The address of a row's state; raises as `take`."""
        return self._take(self.state_blocks, self.state_bytes)

    def _take(self, blocks: int, size: int) -> int:
        while self.used + blocks > self.limit:
            before = self.used
            self.make_room()
            if self.used == before:
                raise OutOfBlocks
        self.used += blocks
        free = self._free[size]
        if not free:
            self._arrays.append(self._pages.empty((size,), np.uint8))
            free.append(self._arrays[-1].ctypes.data)
        return free.pop()

    def content(self, address: int) -> np.ndarray:
        """A block's bytes, to be read or written."""
        return _bytes(address, self.block_bytes)

    def state(self, address: int) -> np.ndarray:
        """A state's bytes, to be read or written."""
        return _bytes(address, self.state_bytes)

    def copy(self, address: int) -> int:
        """The address of a new block with the same content; raises as `take`."""
        copied = self.take()
        ctypes.memmove(copied, address, self.block_bytes)
        return copied

    def give_back(self, address: int) -> None:
        """Frees a block."""
        self.used -= 1
        self._free[self.block_bytes].append(address)

    def give_back_state(self, address: int) -> None:
        """Frees a state; 0 is none."""
        if address:
            self.used -= self.state_blocks
            self._free[self.state_bytes].append(address)


def _bytes(address: int, size: int) -> np.ndarray:
    place = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memoryview(place), np.uint8)
