"""Memory for weights: large pages where Linux gives them, used by TensorFlow without a copy."""

import gc
import mmap
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xla_backend.model.families.blocks import WeightReader
from xla_backend.model.large_pages import ALIGNMENT, BLOCK, LargePages

MEBIBYTE = 2**20


def address(array: np.ndarray) -> int:
    """Where its first element lies."""
    return array.__array_interface__["data"][0]


def is_asked_for(array: np.ndarray) -> bool:
    """Whether the kernel knows that large pages are wanted around an array; how many it then gives
    depends on what else the machine has used its memory for."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address(array) < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("nothing is mapped there")


def test_arrays_stand_side_by_side_and_may_be_larger_than_a_block() -> None:
    memory = LargePages()
    arrays = [memory.empty(shape) for shape in ((3,), (7, 5), (), (0, 4), (1000, 1000), (2,))]
    for number, array in enumerate(arrays):
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert address(array) % ALIGNMENT == 0
        array[...] = number
    for number, array in enumerate(arrays):
        assert (array == number).all()

    memory = LargePages()
    small, large = memory.empty((4,)), memory.empty((BLOCK // 4 + 1,))
    small[:], large[:] = 1, 2
    assert small.sum() == 4
    assert large[-1] == 2


def test_a_variable_takes_memory_and_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[weakref.ref[mmap.mmap]] = []
    reserve = mmap.mmap

    def noted(*arguments: Any, **options: Any) -> mmap.mmap:
        block = reserve(*arguments, **options)
        blocks.append(weakref.ref(block))
        return block

    monkeypatch.setattr(mmap, "mmap", noted)
    values = np.arange(8 * MEBIBYTE, dtype=np.float32).reshape(1024, -1)  # 32 MiB
    reader = WeightReader({"kernel": values})
    variable = reader.transposed("kernel")
    [block] = blocks
    np.testing.assert_array_equal(variable.numpy(), values.T)
    held = np.asarray(memoryview(variable.read_value()))  # not `numpy()`, which copies
    start = address(np.frombuffer(block(), np.uint8))
    assert start <= address(held) < start + len(block())
    assert is_asked_for(held)
    del held
    del reader
    gc.collect()
    assert block() is not None
    del variable
    gc.collect()
    assert block() is None, "the memory outlives its last variable"
