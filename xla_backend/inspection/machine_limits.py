"""The limits of this machine: bytes per second from memory, operations per second.

Knows how the two are measured, and the file beside the store with the best values so far, because
other load only makes a measurement worse. Must not know functions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf

from xla_backend.compilation.store import write_whole
from xla_backend.inspection.measurement import MachineLimits

FILE_NAME = "machine.json"
READ_BYTES = 256 * 2**20
"""Larger than any cache."""
WIDTH = 1536
"""Rows and columns of the matrices."""
REPEATS = 5


def measure(folder: Path) -> MachineLimits:
    """The best values so far, including a new measurement of about half a second.

    Args:
        folder: of the store, where the best values are saved.
    """
    now = MachineLimits(_read_bytes_s(), _flops_s())
    best = now
    with contextlib.suppress(OSError, ValueError, TypeError):
        before = MachineLimits(**json.loads((folder / FILE_NAME).read_text()))
        best = MachineLimits(
            max(before.read_bytes_s, now.read_bytes_s), max(before.flops_s, now.flops_s)
        )
    with contextlib.suppress(OSError):
        write_whole(folder / FILE_NAME, json.dumps(dataclasses.asdict(best)).encode())
    return best


def _read_bytes_s() -> float:
    """Every core sums its part of a large array; nothing is written."""
    cores = len(os.sched_getaffinity(0))
    parts = np.array_split(np.ones(READ_BYTES // 4, np.float32), cores)

    def read(part: np.ndarray) -> float:
        return float(np.dot(part, part))

    with ThreadPoolExecutor(cores) as pool:
        return READ_BYTES / _shortest(lambda: list(pool.map(read, parts)))


def _flops_s() -> float:
    matrix = tf.random.normal([WIDTH, WIDTH])
    return 2 * WIDTH**3 / _shortest(lambda: tf.matmul(matrix, matrix).numpy())


def _shortest(work: Callable[[], object]) -> float:
    work()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
