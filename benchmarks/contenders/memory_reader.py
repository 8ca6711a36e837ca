"""The physical limit as a contender: reads as many bytes as a token needs, and does nothing else.

Every token has to read every weight once, and the weights do not fit in any cache. So for one row
of float32 weights the limit is two threads that only read them, as fast as they can. This is the
fastest reader that was found: a matrix times a vector takes several rows at a time, and so keeps
more reads under way than one long dot product (12.4 ms against 13.8 for GPT-2 124M).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.contenders import THREADS, Request
from benchmarks.weights import bytes_of_a_token

COLUMNS = 3072  # the vector stays in the first cache


class Model:
    """A float32 array as large as the weights that a token reads."""

    def __init__(self, folder: Path, work: Path, variant: str) -> None:
        """Fills the array: pages that were never written are all one page."""
        rows = round(bytes_of_a_token(folder) / 4 / COLUMNS)
        values = np.ones((rows, COLUMNS), np.float32)
        self._parts = np.array_split(values, THREADS)
        self._vector = np.ones(COLUMNS, np.float32)
        self._pool = ThreadPoolExecutor(THREADS)
        self.details = {"bytes": values.nbytes}

    def versions(self) -> dict[str, str]:
        """Numpy's."""
        return {"numpy": np.__version__}

    def generate(self, request: Request) -> list[int]:
        """Reads the array once for each token."""
        for _ in range(request.new_tokens):
            # One read, vectorised, outside Python's lock.
            list(self._pool.map(lambda part: part @ self._vector, self._parts))
        return []
