"""The layout in which products read a matrix: tiles of 64 columns, one whole tile after the other.

Knows NumPy and the numbers' formats. Must not know TensorFlow, nor how products are computed. So a
product reads memory from end to end, whatever of it each core takes, and a line of a tile is what
the vector registers hold of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xla_backend.products.grouped import GROUP, Grouped, Weights

COLUMNS = 64
"""Columns of a tile. A matrix with other columns gets zeros behind them."""
BLOCK = COLUMNS
"""Positions in a block of KV memory: a block's keys are a tile, a line for each number of a head.
Its values are tiles with a line for each position."""

PRODUCT = "product_"
"""How the names begin that XLA knows products by; the format follows."""

FORMATS = ("float32", "bfloat16", "float16", "int8", "int4")


class Tiles(NamedTuple):
    """A matrix `[in, out]` for products; `out` is divided into tiles of `COLUMNS`.

    Attributes:
        format: of the numbers, one of `FORMATS`.
        numbers: `[tiles, in, COLUMNS]`; of bfloat16 the bits, uint16; of int4 uint8,
            `[tiles, in / 2, COLUMNS]`, where the byte j of a group of 32 lines holds line j in its
            lower half and line j + 16 in its upper.
        scales: of int8 and int4: float16, for each group of 32 lines the scales of all columns, for
            int4 then their minima: `[tiles, in / 32, 1 or 2, COLUMNS]`. Otherwise None.
    """

    format: str
    numbers: np.ndarray
    scales: np.ndarray | None


def tiled(matrix: Weights) -> Tiles:
    """The tiles of a matrix that is `[out, in]`, as checkpoints have it.

    Args:
        matrix: float32, bfloat16, float16, or in groups. `in` is a multiple of `GROUP`.
    """
    if not isinstance(matrix, Grouped):
        name = str(matrix.dtype)
        assert name in FORMATS, name
        # TensorFlow takes no bfloat16 from NumPy's memory: its bits as whole numbers.
        numbers = matrix.view(np.uint16) if name == "bfloat16" else matrix
        return Tiles(name, _cut(numbers), None)
    values = _cut(matrix.values)
    if matrix.minima is None:
        return Tiles("int8", values, _cut(matrix.scales)[:, :, None])
    tiles, lines, _ = values.shape
    halves = values.reshape(tiles, lines // GROUP, 2, GROUP // 2, COLUMNS)
    pairs = halves[:, :, 0] | halves[:, :, 1] << 4
    scales = np.stack([_cut(matrix.scales), _cut(matrix.minima)], axis=2)
    return Tiles("int4", pairs.reshape(tiles, lines // 2, COLUMNS), scales)


def _cut(array: np.ndarray) -> np.ndarray:
    """`[out, lines]` as `[tiles, lines, COLUMNS]`."""
    outputs, lines = array.shape
    if rest := -outputs % COLUMNS:
        array = np.concatenate([array, np.zeros((rest, lines), array.dtype)])
    return np.ascontiguousarray(array.reshape(-1, COLUMNS, lines).transpose(0, 2, 1))
