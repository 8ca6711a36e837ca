"""The memory limit as a contender: only reads as many bytes as a token needs.

Each token needs every weight once, and the weights do not fit in any cache. So at batch size 1 the
limit is two threads that read the weights as fast as they can. A matrix-vector product was the
fastest reader: it takes several rows at a time, so it keeps more reads in flight than one long dot
product (12.4 ms against 13.8 for GPT-2 124M).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

import numpy as np
from safetensors import safe_open

from benchmarks.contenders import THREADS, Request

COLUMNS = 3072  # the vector stays in the first cache


class Reader:
    """An array of about this many bytes."""

    def __init__(self, size: int) -> None:
        """Fills the array, because pages that were never written share one page of memory."""
        values = np.ones((max(THREADS, size // 4 // COLUMNS), COLUMNS), np.float32)
        self._parts = np.array_split(values, THREADS)
        self._vector = np.ones(COLUMNS, np.float32)
        self._pool = ThreadPoolExecutor(THREADS)

    def read(self) -> None:
        """Reads all of it once."""
        # NumPy's product is vectorised and releases Python's lock.
        list(self._pool.map(lambda part: part @ self._vector, self._parts))


class Model:
    """A reader of a checkpoint's weights, in float32."""

    libraries = ("numpy",)

    def __init__(self, folder: Path, work: Path, weights: str) -> None:
        self._reader = Reader(float32_bytes(folder))

    def generate(self, request: Request) -> list[int]:
        """Reads the array once per token; returns no tokens."""
        for _ in range(request.new_tokens):
            self._reader.read()
        return []


def float32_bytes(folder: Path) -> int:
    """Size of a checkpoint's weights as float32; the embedding is the head, so it is read whole."""
    with safe_open(folder / "model.safetensors", "np") as file:
        return 4 * sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
