"""Parts of a mapped file, whose pages are freed with them."""

from __future__ import annotations

import mmap
import weakref

import numpy as np


def part(file: mmap.mmap, start: int, size: int) -> np.ndarray:
    """Some bytes of a file, `[size]` uint8, read-only; pages that only they use are freed with the
    array and its views.

    Raises:
        ValueError: the file ends before.
    """
    found = np.frombuffer(file, np.uint8, size, start)
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (start + size) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
        weakref.finalize(found, file.madvise, mmap.MADV_DONTNEED, first, length)
    return found
