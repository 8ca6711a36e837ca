"""The physical limit as a contender: only reads as many bytes as a token needs.

Each token needs every weight once, and the weights do not fit in any cache. So at batch size 1 the
limit is two threads that read the float32 weights as fast as they can. A matrix-vector product was
the fastest reader: it takes several rows at a time, so it keeps more reads in flight than one long
dot product (12.4 ms against 13.8 for GPT-2 124M).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.contenders import THREADS, Request
from benchmarks.weights import bytes_of_a_token

COLUMNS = 3072  # the vector stays in the first cache


class Model:
    """A float32 array of the size of the weights that a token reads."""

    libraries = ("numpy",)

    def __init__(self, folder: Path, work: Path, variant: str) -> None:
        """Fills the array: all pages that were never written share one page of memory."""
        rows = round(bytes_of_a_token(folder) / 4 / COLUMNS)
        values = np.ones((rows, COLUMNS), np.float32)
        self._parts = np.array_split(values, THREADS)
        self._vector = np.ones(COLUMNS, np.float32)
        self._pool = ThreadPoolExecutor(THREADS)
        self.details = {"bytes": values.nbytes}

    def generate(self, request: Request) -> list[int]:
        """Reads the array once per token; returns no tokens."""
        for _ in range(request.new_tokens):
            # NumPy's product is vectorised and releases Python's lock.
            list(self._pool.map(lambda part: part @ self._vector, self._parts))
        return []
