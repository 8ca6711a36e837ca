"""The physical limit as a contender: reads as many bytes as a token needs, and does nothing else.

Every token has to read every weight once, and the weights do not fit in any cache. So nobody who
reads float32 weights can be faster for one row than two threads that only read them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.contenders import THREADS, Request
from benchmarks.weights import bytes_of_a_token


class Model:
    """A float32 array as large as the weights that a token reads."""

    def __init__(self, folder: Path, work: Path, variant: str) -> None:
        """Fills the array: pages that were never written are all one page."""
        values = np.ones(bytes_of_a_token(folder) // 4, np.float32)
        self._parts = np.array_split(values, THREADS)
        self._pool = ThreadPoolExecutor(THREADS)
        self.details = {"bytes": values.nbytes}

    def versions(self) -> dict[str, str]:
        """Numpy's."""
        return {"numpy": np.__version__}

    def generate(self, request: Request) -> list[int]:
        """Reads the array once for each token."""
        for _ in range(request.new_tokens):
            # A dot product with itself: one read, vectorised, outside Python's lock.
            list(self._pool.map(lambda part: part @ part, self._parts))
        return []
