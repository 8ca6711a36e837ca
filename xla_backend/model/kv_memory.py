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
        self._free_blocks: list[int] = []
        self._free_states: list[int] = []

    def take(self) -> int:
        """The address of a block.

        Raises:
            OutOfBlocks: there is none, and no room could be made.
        """
        self._count(1)
        return self._free_blocks.pop() if self._free_blocks else self._new(self.block_bytes)

    def take_state(self) -> int:
        """The address of a row's state; raises as `take`."""
        self._count(self.state_blocks)
        return self._free_states.pop() if self._free_states else self._new_state()

    def _count(self, blocks: int) -> None:
        while self.used + blocks > self.limit:
            before = self.used
            self.make_room()
            if self.used == before:
                raise OutOfBlocks
        self.used += blocks

    def copy(self, address: int) -> int:
        """The address of a new block with the same content; raises as `take`."""
        copied = self.take()
        self.write(copied, self.content(address))
        return copied

    def copy_state(self, address: int, to: int) -> None:
        """Copies a state over another."""
        self.write_state(to, self.state(address))

    def give_back(self, address: int) -> None:
        """Frees a block."""
        self.used -= 1
        self._free_blocks.append(address)

    def give_back_state(self, address: int) -> None:
        """Frees a state; 0 is none."""
        if address:
            self.used -= self.state_blocks
            self._free_states.append(address)

    def content(self, address: int) -> np.ndarray:
        """A block's bytes; may change with the block."""
        return _bytes(address, self.block_bytes)

    def write(self, address: int, content: np.ndarray) -> None:
        """Writes a block's bytes."""
        self.content(address)[:] = content

    def state(self, address: int) -> np.ndarray:
        """A state's bytes; may change with the state."""
        return _bytes(address, self.state_bytes)

    def write_state(self, address: int, content: np.ndarray) -> None:
        """Writes a state's bytes."""
        self.state(address)[:] = content

    def _new(self, size: int) -> int:
        self._arrays.append(self._pages.empty((size,), np.uint8))
        return int(self._arrays[-1].ctypes.data)

    def _new_state(self) -> int:
        return self._new(self.state_bytes)


def _bytes(address: int, size: int) -> np.ndarray:
    place = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memoryview(place), np.uint8)
