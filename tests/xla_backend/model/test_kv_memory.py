"""The memory of several models together: a limit for cached prefixes, and none for what runs."""

import mmap
import random

import numpy as np
import pytest

from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.model.kv_memory import KVMemory, SharedLimit
from xla_backend.model.large_pages import LargePages, release
from xla_backend.rows.prefix import PrefixTree

SIZE = 4 * mmap.PAGESIZE
"""Bytes of a block."""


def text(number: int, blocks: int) -> list[int]:
    return [number] * BLOCK * blocks


def cache(memory: KVMemory, tree: PrefixTree, number: int, blocks: int) -> None:
    """Writes a text's number into new blocks, and caches them."""
    addresses = [memory.take() for _ in range(blocks)]
    for address in addresses:
        memory.write(address, np.full(SIZE, number, np.uint8))
    tree.insert("", text(number, blocks), addresses, [])


@pytest.mark.parametrize("seed", range(8))
def test_models_share_a_limit_and_what_is_cached_stays_right(seed: int) -> None:
    dice, shared = random.Random(seed), SharedLimit(10 * SIZE)
    memories = [KVMemory(SIZE, 10 * SIZE) for _ in range(3)]
    trees = [PrefixTree(memory) for memory in memories]
    for memory in memories:
        shared.add(memory)
    for number in range(1, 60):
        place = dice.randrange(3)
        cache(memories[place], trees[place], number, blocks=dice.randint(1, 4))
        assert sum(memory.resident_bytes for memory in memories) <= 10 * SIZE
        assert trees[place].match("", text(number, 4))[0], "the newest is there"
        for tree, memory in zip(trees, memories, strict=True):
            for known in range(1, number + 1):
                for node in tree.match("", text(known, 4))[0]:
                    assert (memory.content(node.address) == known).all()
    assert sum(tree.nodes for tree in trees) >= 7, "no more is evicted than one text needs"


def test_rows_that_run_keep_their_memory_and_give_it_back_later() -> None:
    shared, memories = SharedLimit(4 * SIZE), [KVMemory(SIZE, 4 * SIZE) for _ in range(2)]
    for memory in memories:
        shared.add(memory)
    rows = [[memory.take() for _ in range(4)] for memory in memories]
    assert sum(memory.resident_bytes for memory in memories) == 8 * SIZE
    for memory, addresses in zip(memories, rows, strict=True):
        for address in addresses:
            memory.give_back(address)
    assert sum(memory.resident_bytes for memory in memories) == 4 * SIZE
    again = [memories[0].take() for _ in range(4)]
    assert sorted(again) == sorted(rows[0]), "memory is reused"
    assert sum(memory.resident_bytes for memory in memories) == 4 * SIZE


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="of Linux")
def test_what_is_released_is_zeros_and_its_neighbours_are_not() -> None:
    pages = LargePages()
    arrays = [pages.empty((SIZE + 64,), np.uint8) for _ in range(3)]
    for array in arrays:
        array[:] = 7
    release(arrays[1])
    assert (arrays[0] == 7).all()
    assert (arrays[2] == 7).all()
    assert np.count_nonzero(arrays[1]) <= 2 * mmap.PAGESIZE
