"""Matrices of few bits: numbers in groups of 32 that share a scale, as in GGUF's blocks.

Knows the arithmetic of such groups, in NumPy. Must not know files, TensorFlow, or what a matrix is
for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

GROUP = 32
"""Neighbours along `in` that share a scale."""


@dataclass(frozen=True)
class Grouped:
    """A matrix `[out, in]` whose numbers are `scale * value`, or `scale * value + minimum`.

    Attributes:
        values: int8, or uint8 up to 15 where there are minima; `[out, in]`.
        scales: float16, `[out, in / 32]`.
        minima: float16, likewise; None: zeros.
    """

    values: np.ndarray
    scales: np.ndarray
    minima: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """`(out, in)`."""
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: np.ndarray) -> Grouped:
        """Some rows, in the order of their places."""
        minima = None if self.minima is None else self.minima[rows]
        return Grouped(self.values[rows], self.scales[rows], minima)

    def widened(self) -> np.ndarray:
        """The numbers in float32."""
        outputs, inputs = self.shape
        groups = self.values.reshape(outputs, -1, GROUP).astype(np.float32)
        groups *= self.scales.astype(np.float32)[:, :, None]
        if self.minima is not None:
            groups += self.minima.astype(np.float32)[:, :, None]
        return groups.reshape(outputs, inputs)


Weights: TypeAlias = np.ndarray | Grouped
"""A tensor of a checkpoint: a float array of any width, or a matrix in groups."""


def rounded(matrix: np.ndarray) -> Grouped:
    """A float matrix `[out, in]` in eight bits: whole numbers from -127 to 127 times a scale.

    As GGUF's Q8_0: of each group the largest number decides the scale.
    """
    outputs, inputs = matrix.shape
    groups = matrix.astype(np.float32).reshape(outputs, inputs // GROUP, GROUP)
    # Rounded up, so that no number needs more than 127; and for the scale as it is kept.
    scales = (np.abs(groups).max(axis=2) / 127 * (1 + 2**-10)).astype(np.float16)
    divisors = np.where(scales == 0, 1, scales).astype(np.float32)
    values = np.rint(groups / divisors[:, :, None]).clip(-127, 127).astype(np.int8)
    return Grouped(values.reshape(outputs, inputs), scales)


def stacked(matrices: Sequence[Weights]) -> Weights:
    """Matrices of one input, one below the other: grouped if all are in the same way."""
    grouped = [matrix for matrix in matrices if isinstance(matrix, Grouped)]
    if len(grouped) == len(matrices) and len({x.minima is None for x in grouped}) == 1:
        minima = [x.minima for x in grouped if x.minima is not None]
        return Grouped(
            np.concatenate([x.values for x in grouped]),
            np.concatenate([x.scales for x in grouped]),
            np.concatenate(minima) if minima else None,
        )
    arrays = [x.widened() if isinstance(x, Grouped) else x for x in matrices]
    same = len({array.dtype for array in arrays}) == 1
    return np.concatenate(arrays if same else [array.astype(np.float32) for array in arrays])
