"""`KVMemory`: blocks of memory for keys and values, allocated to rows one by one as they grow, and
rows' states; `SharedLimit`: the limit of all models' together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from xla_backend.model.large_pages import LargePages, release


class OutOfBlocks(Exception):
    """All blocks are in use."""


class KVMemory:
    """Allocates blocks, and states of rows, up to a limit; freed ones are reused first.

    Attributes:
        block_bytes, state_bytes: of one; 0 for a model without states.
        state_blocks: how many blocks a state counts as.
        limit: how many blocks there can be. used: how many are taken.
        resident_bytes: of memory that was taken once, and not released.
        make_room: called when too few are left; frees some if it can.
        shared: the limit that it has together with other models' memory, if there is one.
    """

    def __init__(self, block_bytes: int, limit_bytes: int, state_bytes: int = 0) -> None:
        """Allocates nothing yet; `limit` is at least one block."""
        self.block_bytes = block_bytes
        self.state_bytes = state_bytes
        self.state_blocks = -(-state_bytes // block_bytes)
        self.limit = max(1, limit_bytes // block_bytes)
        self.used = 0
        self.resident_bytes = 0
        self.make_room: Callable[[], None] = lambda: None
        self.shared: SharedLimit | None = None
        self._pages = LargePages()
        self._arrays: dict[int, np.ndarray] = {}  # the memory, by address
        self._released: set[int] = set()  # free, and not resident
        self._free_blocks: list[int] = []
        self._free_states: list[int] = []

    def take(self) -> int:
        """The address of a block.

        Raises:
            OutOfBlocks: there is none, and no room could be made.
        """
        return self._reused(1, self._free_blocks) or self._new(self.block_bytes)

    def take_state(self) -> int:
        """The address of a row's state; raises as `take`."""
        return self._reused(self.state_blocks, self._free_states) or self._new_state()

    def _reused(self, blocks: int, free: list[int]) -> int:
        """Counts `blocks`, and returns a free address for them; 0 if there is none."""
        while self.used + blocks > self.limit:
            before = self.used
            self.make_room()
            if self.used == before:
                raise OutOfBlocks
        if self.shared is not None:
            size = blocks * self.block_bytes
            self.shared.make_room(self, size, lambda: bool(free) and free[-1] not in self._released)
        self.used += blocks
        if not free:
            return 0
        if (address := free.pop()) in self._released:
            self._released.remove(address)
            self.resident_bytes += self._arrays[address].nbytes
        return address

    def release(self) -> None:
        """Gives the system back what is free."""
        for address in {*self._free_blocks, *self._free_states} & self._arrays.keys():
            if address not in self._released:
                release(self._arrays[address])
                self._released.add(address)
                self.resident_bytes -= self._arrays[address].nbytes

    def copy(self, address: int) -> int:
        """The address of a new block with the same content; raises as `take`."""
        copied = self.take()
        self.write(copied, self.content(address))
        return copied

    def copy_state(self, address: int, to: int) -> None:
        self.write_state(to, self.state(address))

    def give_back(self, address: int) -> None:
        self.used -= 1
        self._free_blocks.append(address)
        if self.shared is not None and self.shared.lacks(0):  # as rows of several models ran
            self.release()

    def give_back_state(self, address: int) -> None:
        """Frees a state; 0 is none."""
        if address:
            self.used -= self.state_blocks
            self._free_states.append(address)

    def content(self, address: int) -> np.ndarray:
        """A block's bytes; may change with the block."""
        return _bytes(address, self.block_bytes)

    def write(self, address: int, content: np.ndarray) -> None:
        self.content(address)[:] = content

    def state(self, address: int) -> np.ndarray:
        """A state's bytes; may change with the state."""
        return _bytes(address, self.state_bytes)

    def write_state(self, address: int, content: np.ndarray) -> None:
        self.state(address)[:] = content

    def _new(self, size: int) -> int:
        array = self._pages.empty((size,), np.uint8)
        self._arrays[address := int(array.ctypes.data)] = array
        self.resident_bytes += size
        return address

    def _new_state(self) -> int:
        return self._new(self.state_bytes)


class SharedLimit:
    """A limit of several models' memory together. For one thread."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._memories: list[KVMemory] = []  # the least recently used first

    def add(self, memory: KVMemory) -> None:
        self._memories.append(memory)
        memory.shared = self

    def make_room(self, memory: KVMemory, size: int, is_free: Callable[[], bool]) -> None:
        """Makes room for `size` bytes more, unless `is_free`: first in other models' memory.

        Only cached prefixes are evicted: rows of several models may exceed the limit together.
        """
        self._memories.remove(memory)
        others, self._memories = self._memories, [*self._memories, memory]
        for other in (*others, memory):
            while not is_free() and self.lacks(size):
                if other is not memory:
                    other.release()
                    if not self.lacks(size):
                        return
                before = other.used
                other.make_room()
                if other.used == before:
                    break

    def lacks(self, size: int) -> bool:
        """Whether there is no room for `size` bytes more."""
        return sum(each.resident_bytes for each in self._memories) + size > self._limit_bytes


def _bytes(address: int, size: int) -> np.ndarray:
    place = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memoryview(place), np.uint8)
