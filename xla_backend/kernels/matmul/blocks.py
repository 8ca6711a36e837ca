"""Quantized matrices: GGUF's blocks of numbers that share scales.

Knows the layout of a block of each format, and its arithmetic in NumPy. The layouts are those of
llama.cpp's ggml-quants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

GROUP = 32
"""Numbers along `in` in the smallest block."""


class Plane(NamedTuple):
    """Some bits of every number of a block.

    Attributes:
        bits: of a number. start: the first byte in the block. run: this many bytes hold numbers `0
        .. run - 1` in their lowest bits, the next `run` numbers
            in the next bits, and so on; then the next bytes follow.
    """

    bits: int
    start: int
    run: int


class Format(NamedTuple):
    """A format of blocks: a number is `scale * (value - zero)`, or `scale * value + minimum`.

    Attributes:
        block: numbers of a block, neighbours along `in`. size: bytes of a block. planes: their bits
        make a value, the lowest first. halves: offsets of the block's float16: a scale and, if
        there are minima, a scale of these. zero: subtracted from a value. group: numbers that share
        a scale and a minimum. factors: reads from a block's `[..., size]` bytes the 8-bit factors
        `[..., groups, kinds]` of
            `halves` for each group; minima are then subtracted. None: a block is one group.
        nibbles: whether scale and minimum of a group are the halves of one byte.
        table: maps values to numbers, if they are not the numbers themselves.
        is_power: whether a block's scale is a byte instead, an exponent of 2 (OCP's Microscaling
            Formats, 2023), half of it because the numbers in the table are doubled.
    """

    block: int
    size: int
    planes: tuple[Plane, ...]
    halves: tuple[int, ...] = (0,)
    zero: int = 0
    group: int = GROUP
    factors: Callable[[np.ndarray], np.ndarray] | None = None
    nibbles: bool = False
    table: tuple[int, ...] | None = None
    is_power: bool = False

    @property
    def bits(self) -> int:
        return sum(plane.bits for plane in self.planes)

    @property
    def has_minima(self) -> bool:
        """Whether groups have a minimum as well as a scale."""
        return len(self.halves) == 2


def _six_bits(blocks: np.ndarray) -> np.ndarray:
    """The factors of Q4_K and Q5_K: 8 scales and 8 minima in 12 bytes."""
    low, middle, high = np.moveaxis(blocks[..., 4:16].reshape(*blocks.shape[:-1], 3, 4), -2, 0)
    scales = [low & 63, high & 15 | low >> 2 & 48]
    minima = [middle & 63, high >> 4 | middle >> 2 & 48]
    return np.stack([np.concatenate(each, axis=-1) for each in (scales, minima)], axis=-1)


def _six_bits_less_32(blocks: np.ndarray) -> np.ndarray:
    """The factors of Q3_K: 16 scales in 12 bytes."""
    low = _fields(blocks[..., 96:104], 4, 8)
    high = _fields(blocks[..., 104:108], 2, 4)
    return (low | high << 4)[..., None] - np.uint8(32)


def _four_and_two_bits_less_32(blocks: np.ndarray) -> np.ndarray:
    """The factors of IQ4_XS: 8 scales in 6 bytes."""
    return (_fields(blocks[..., 4:8], 4, 1) | _fields(blocks[..., 2:4], 2, 1) << 4)[
        ..., None
    ] - np.uint8(32)


_NOT_LINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The table of IQ4_NL and IQ4_XS."""
_FOUR_BIT_FLOATS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

FORMATS = {
    "Q8_0": Format(32, 34, (Plane(8, 2, 32),)),
    "Q4_0": Format(32, 18, (Plane(4, 2, 16),), zero=8),
    "Q4_1": Format(32, 20, (Plane(4, 4, 16),), (0, 2)),
    "Q5_0": Format(32, 22, (Plane(4, 6, 16), Plane(1, 2, 1)), zero=16),
    "Q5_1": Format(32, 24, (Plane(4, 8, 16), Plane(1, 4, 1)), (0, 2)),
    "Q2_K": Format(
        *(256, 84, (Plane(2, 16, 32),), (80, 82)),
        group=16,
        factors=lambda blocks: blocks[..., :16, None],
        nibbles=True,
    ),
    "Q3_K": Format(
        *(256, 110, (Plane(2, 32, 32), Plane(1, 0, 32)), (108,)),
        zero=4,
        group=16,
        factors=_six_bits_less_32,
    ),
    "Q4_K": Format(256, 144, (Plane(4, 16, 32),), (0, 2), factors=_six_bits),
    "Q5_K": Format(256, 176, (Plane(4, 48, 32), Plane(1, 16, 32)), (0, 2), factors=_six_bits),
    "Q6_K": Format(
        *(256, 210, (Plane(4, 0, 64), Plane(2, 128, 32)), (208,)),
        zero=32,
        group=16,
        factors=lambda blocks: blocks[..., 192:208, None],
    ),
    "IQ4_NL": Format(32, 18, (Plane(4, 2, 16),), table=_NOT_LINEAR),
    "IQ4_XS": Format(
        *(256, 136, (Plane(4, 8, 16),)), factors=_four_and_two_bits_less_32, table=_NOT_LINEAR
    ),
    "MXFP4": Format(32, 17, (Plane(4, 1, 16),), table=_FOUR_BIT_FLOATS, is_power=True),
    # As Transformers has it: neighbours share a byte.
    "MXFP4_PAIRS": Format(32, 17, (Plane(4, 1, 1),), table=_FOUR_BIT_FLOATS, is_power=True),
}
"""Formats by their names in GGUF files. Values of eight bits are signed, others are not."""


def _fields(bytes_: np.ndarray, bits: int, run: int) -> np.ndarray:
    """The numbers of some bits in bytes `[..., n]`, as `[..., 8 / bits * n]`; see `Plane`."""
    if bits == 8:
        return bytes_
    runs = bytes_.reshape(*bytes_.shape[:-1], -1, 1, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return (runs >> shifts & np.uint8((1 << bits) - 1)).reshape(*bytes_.shape[:-1], -1)


class Unpacked(NamedTuple):
    """What blocks hold, a byte a value."""

    values: np.ndarray  # uint8, `[out, blocks, block]`
    halves: np.ndarray  # float16, `[out, blocks, 1 or 2]`
    factors: np.ndarray | None  # int8, `[out, blocks, groups, 1 or 2]`, or None


@dataclass(frozen=True)
class Blocks:
    """A matrix `[out, in]` in blocks."""

    name: str  # of the format, in `FORMATS`
    raw: np.ndarray  # the blocks' bytes, uint8 `[out, in / block * size]`

    @property
    def format(self) -> Format:
        return FORMATS[self.name]

    @property
    def shape(self) -> tuple[int, int]:
        """`(out, in)`."""
        outputs, size = self.raw.shape
        return outputs, size // self.format.size * self.format.block

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: np.ndarray | slice) -> Blocks:
        return Blocks(self.name, self.raw[rows])

    def halves(self) -> np.ndarray:
        """The scales and minima of the blocks, float16, `[out, blocks, 1 or 2]`."""
        places = [at + byte for at in self.format.halves for byte in (0, 1)]
        blocks = self.raw.reshape(len(self), -1, self.format.size)
        if self.format.is_power:
            with np.errstate(over="ignore"):  # to infinity, which no checkpoint may have
                return np.exp2(blocks[:, :, :1].astype(np.float32) - 128).astype(np.float16)
        return np.ascontiguousarray(blocks[:, :, places]).view(np.float16)

    def unpacked(self) -> Unpacked:
        form = self.format
        blocks = self.raw.reshape(len(self), -1, form.size)
        values = np.zeros((*blocks.shape[:2], form.block), np.uint8)
        shift = 0
        for bits, start, run in form.planes:
            fields = blocks[:, :, start : start + form.block * bits // 8]
            values |= _fields(fields, bits, run) << np.uint8(shift)
            shift += bits
        halves = self.halves()
        if form.factors is None:
            return Unpacked(values, halves, None)
        if form.has_minima:
            halves[:, :, 1] *= -1
        return Unpacked(values, halves, form.factors(blocks).view(np.int8))

    def dequantized(self) -> np.ndarray:
        form = self.format
        result = np.empty(self.shape, np.float32)
        # Some at a time: intermediate numbers take several times the space.
        step = max(1, 2**20 // self.shape[1])
        for row in range(0, len(self), step):
            values, halves, factors = self[row : row + step].unpacked()
            scales = halves.astype(np.float32)[:, :, None]
            if factors is not None:
                if form.nibbles:
                    factors = np.concatenate([factors & 15, factors >> 4 & 15], axis=-1)
                scales = scales * factors.astype(np.float32)
            numbers = (values.view(np.int8) if form.bits == 8 else values).astype(np.float32)
            if form.table is not None:
                numbers = np.array(form.table, np.float32)[values]
            else:
                numbers -= form.zero
            numbers = numbers.reshape(*scales.shape[:3], -1) * scales[..., :1]
            if form.has_minima:
                numbers += scales[..., 1:]
            result[row : row + step] = numbers.reshape(len(values), -1)
        return result


Weights: TypeAlias = np.ndarray | Blocks
"""A tensor of a checkpoint: a float array of any width, or a matrix in blocks."""


def rounded(matrix: np.ndarray) -> Blocks:
    """A float matrix `[out, in]` rounded to Q8_0: integers from -127 to 127 times a scale.

    The largest number of each block determines its scale.
    """
    outputs, inputs = matrix.shape
    raw = np.empty((outputs, inputs // GROUP, 2 + GROUP), np.uint8)
    # A part at a time, because float32 takes several times the memory of the result.
    rows = max(1, 2**20 // inputs)
    for start in range(0, outputs, rows):
        part = slice(start, start + rows)
        groups = matrix[part].astype(np.float32).reshape(-1, inputs // GROUP, GROUP)
        # Rounded up, so that no number needs more than 127 with the scale as float16.
        scales = (np.abs(groups).max(axis=2) / 127 * (1 + 2**-10)).astype(np.float16)
        divisors = np.where(scales == 0, 1, scales).astype(np.float32)
        values = np.rint(groups / divisors[:, :, None]).clip(-127, 127)
        raw[part, :, :2] = scales[:, :, None].view(np.uint8)
        raw[part, :, 2:] = values.astype(np.int8).view(np.uint8)
    return Blocks("Q8_0", raw.reshape(outputs, -1))


def stacked(matrices: Sequence[Weights]) -> list[Weights]:
    """Matrices of one input; neighbours of the same format are concatenated."""
    result: list[Weights] = []
    for matrix in matrices:
        last = result[-1] if result else None
        if isinstance(matrix, Blocks) and isinstance(last, Blocks) and matrix.name == last.name:
            result[-1] = Blocks(last.name, np.concatenate([last.raw, matrix.raw]))
        elif isinstance(matrix, np.ndarray) and isinstance(last, np.ndarray):
            if matrix.dtype != last.dtype:
                matrix, last = matrix.astype(np.float32), last.astype(np.float32)
            result[-1] = np.concatenate([last, matrix])
        else:
            result.append(matrix)
    return result
