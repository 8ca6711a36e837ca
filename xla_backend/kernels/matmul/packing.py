"""The layout of a matrix for products: tiles of 64 columns, one whole tile after the other.

A tile of a matrix in blocks has, for each block along k, in lines of 64 bytes: the scale and the
minimum in float16; then for each unit along k the factors of its groups, a byte each, and the
values. The values of a column at four k are the four bytes of a 32-bit word; of each plane a word
has those of as many neighbours as fit (`Format.planes`); words of planes that belong to the same k
are neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xla_backend.kernels.matmul.blocks import Blocks, Format, Weights

COLUMNS = 64
"""Columns of a tile. A matrix with another number of columns is padded with zeros."""

MATMUL, READING = "matmul_", "columns_"
"""Prefixes of the names of products and of the reading of columns in XLA; the format follows."""

FLOATS = ("float32", "bfloat16", "float16")


def depth_of_step(form: Format) -> int:
    """The least numbers along k for which every plane has whole words."""
    return 32 // min(plane.bits for plane in form.planes)


def depth_of_unit(form: Format) -> int:
    """Numbers along k whose factors and values are neighbours: whole steps and groups."""
    return max(8, depth_of_step(form), form.group)


def lines_of_unit(form: Format) -> tuple[int, int]:
    """Lines of 64 bytes of a unit: of factors, and of values."""
    depth = depth_of_unit(form)
    of_group = 0 if form.factors is None else 1 if form.nibbles else len(form.halves)
    return depth // form.group * of_group, depth * form.bits // 8


def lines_of_block(form: Format) -> int:
    """Lines of 64 bytes of a block."""
    return 2 * len(form.halves) + form.block // depth_of_unit(form) * sum(lines_of_unit(form))


class Tiles:
    """A matrix `[in, out]` in the layout of products; `out` is divided into tiles of `COLUMNS`.

    Attributes:
        format: of the numbers, one of `FLOATS` or of `blocks.FORMATS`.
        shape, dtype: of the array. Floats: `[tiles, in, COLUMNS]`, of bfloat16 the bits, uint16;
            blocks: uint8, `[tiles, lines, COLUMNS]`.
    """

    def __init__(self, matrix: Weights) -> None:
        """`matrix`: `[out, in]`, as in checkpoints; `in` is a whole number of blocks."""
        outputs, inputs = matrix.shape
        tiles = -(-outputs // COLUMNS)
        self._matrix = matrix
        self.format: str
        self.dtype: np.dtype[Any]
        if isinstance(matrix, Blocks):
            self.format, self.dtype = matrix.name, np.dtype(np.uint8)
            form = matrix.format
            self.shape = (tiles, inputs // form.block * lines_of_block(form), COLUMNS)
        else:
            self.format, self.dtype = str(matrix.dtype), matrix.dtype
            assert self.format in FLOATS, self.format
            if self.format == "bfloat16":  # which TensorFlow does not accept from NumPy's memory
                self.dtype = np.dtype(np.uint16)
                self._matrix = matrix.view(np.uint16)
            self.shape = (tiles, inputs, COLUMNS)

    def pack(self, to: np.ndarray) -> None:
        """Writes the numbers into an array of this shape, some that fit in the cache at a time."""
        step = COLUMNS * max(1, 2**18 // (self._matrix.shape[1] * COLUMNS))
        for row in range(0, len(self._matrix), step):
            some = self._matrix[row : row + step]
            place = to[row // COLUMNS : -(-(row + len(some)) // COLUMNS)]
            if isinstance(some, Blocks):
                _pack_blocks(some, place)
            else:
                np.copyto(place, _cut(some).transpose(0, 2, 1))


def _cut(array: np.ndarray) -> np.ndarray:
    """`[out, ...]` as `[tiles, COLUMNS, ...]`."""
    if rest := -len(array) % COLUMNS:
        array = np.concatenate([array, np.zeros((rest, *array.shape[1:]), array.dtype)])
    return array.reshape(-1, COLUMNS, *array.shape[1:])


def _pack_blocks(matrix: Blocks, to: np.ndarray) -> None:
    form = matrix.format
    unpacked = matrix.unpacked()
    values = _cut(unpacked.values)
    tiles, _, blocks, _ = values.shape
    to = to.reshape(tiles, blocks, lines_of_block(form), COLUMNS)
    halves = 2 * len(form.halves)
    place = to[:, :, :halves].reshape(tiles, blocks, -1, 2 * COLUMNS).view(np.float16)
    np.copyto(place, _cut(unpacked.halves).transpose(0, 2, 3, 1))
    units = form.block // depth_of_unit(form)
    to = to[:, :, halves:].reshape(tiles, blocks, units, -1, COLUMNS)
    factors, _ = lines_of_unit(form)
    if unpacked.factors is not None:
        own = _cut(unpacked.factors).reshape(tiles, COLUMNS, blocks, units, factors)
        np.copyto(to[..., :factors, :].view(np.int8), own.transpose(0, 2, 3, 4, 1))
    steps = to[..., factors:, :].reshape(tiles, blocks, units, -1)
    steps = steps.view("<u4").reshape(
        tiles, blocks, units, depth_of_unit(form) // depth_of_step(form), -1, COLUMNS
    )
    shift = begin = 0
    for plane in form.planes:
        fields = values >> np.uint8(shift) & np.uint8((1 << plane.bits) - 1)
        # [..., word, neighbour in it, byte]
        fields = fields.reshape(tiles, COLUMNS, blocks, -1, 8 // plane.bits, 4)
        packed = fields[..., 0, :].copy()
        for neighbour in range(1, 8 // plane.bits):
            packed |= fields[..., neighbour, :] << np.uint8(neighbour * plane.bits)
        words = packed.view("<u4").reshape(tiles, COLUMNS, *steps.shape[1:4], -1)
        end = begin + words.shape[-1]
        np.copyto(steps[..., begin:end, :], words.transpose(0, 2, 3, 4, 5, 1))
        shift, begin = shift + plane.bits, end
