"""`Matrix`: weights in the format and layout of fast products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from xla_backend.kernels import registration
from xla_backend.kernels.graph import foreign_call
from xla_backend.kernels.matmul import matmul
from xla_backend.kernels.matmul.blocks import FORMATS, GROUP, Blocks, Weights
from xla_backend.kernels.matmul.packing import COLUMNS, Tiles

SMALL = 2**18
"""Numbers of a matrix below which XLA's own product is as fast, because it fits in the cache."""

Save = Callable[[tuple[int, ...], np.dtype, Callable[[np.ndarray], None]], tf.Variable]
"""Makes a variable of a shape and a type, and fills it with a function."""


def has_product(weights: Weights) -> bool:
    """Whether a matrix, `[out, in]`, uses our own product; otherwise it is float32.

    Blocks use it from a smaller size on: float32 would take up to ten times their memory.
    """
    outputs, inputs = weights.shape
    least = SMALL // 4 if isinstance(weights, Blocks) else SMALL
    return inputs * outputs >= least and not inputs % GROUP and registration.is_possible()


class Matrix(NamedTuple):
    """Weights `[in, out]` in their own format. A nest of variables, as layers are.

    Attributes:
        numbers: `[in, out]` float32, or tiles; see `tiles.Tiles`.
        number_format: of tiles; None if the matrix is small and XLA multiplies.
        inputs, outputs: the sizes `in` and `out`.
        in_eight_bits: whether products round activations to 8 bits; only with blocks.
    """

    numbers: tf.Variable
    number_format: str | None
    inputs: int
    outputs: int
    in_eight_bits: bool = False

    @classmethod
    def of(
        cls,
        weights: Weights,
        save: Save,
        in_eight_bits: bool = False,
        multiplies: Callable[[Weights], bool] = has_product,
    ) -> Matrix:
        """From a checkpoint's weights `[out, in]`; floats are multiplied exactly in any case.

        Args:
            in_eight_bits: whether products with blocks round activations to 8 bits.
            multiplies: whether our own product multiplies weights; XLA multiplies float32.
        """
        outputs, inputs = weights.shape
        if not multiplies(weights):
            wide = weights.dequantized() if isinstance(weights, Blocks) else weights

            def write(to: np.ndarray) -> None:
                np.copyto(to, wide.T)

            saved = save((inputs, outputs), np.dtype(np.float32), write)
            return cls(saved, None, inputs, outputs)
        tiles = Tiles(weights)
        in_eight_bits = _prepare(tiles.format, in_eight_bits)
        saved = save(tiles.shape, tiles.dtype, tiles.pack)
        return cls(saved, tiles.format, inputs, outputs, in_eight_bits)

    @property
    def shape(self) -> tuple[int, int]:
        """`(in, out)`."""
        return self.inputs, self.outputs

    def multiply(self, x: tf.Tensor) -> tf.Tensor:
        """`[..., in] -> [..., out]`, float32, in a graph that XLA compiles."""
        if self.number_format is None:
            return tf.matmul(x, self.numbers)
        rows = x if x.shape.rank == 2 else tf.reshape(x, [-1, self.inputs])
        operands = [rows, tf.convert_to_tensor(self.numbers)]
        width = self.numbers.shape[0] * COLUMNS
        name = matmul.name_of(self.number_format, in_eight_bits=self.in_eight_bits)
        y = foreign_call.call(name, operands, width)
        y = y[:, : self.outputs]
        return y if x.shape.rank == 2 else tf.reshape(y, [*x.shape[:-1], self.outputs])

    def columns(self, places: tf.Tensor) -> tf.Tensor:
        """Columns `[positions, in]` float32 at places `[positions]`: rows of an embedding."""
        if self.number_format is None:
            return tf.transpose(tf.gather(self.numbers, places, axis=1))
        # Clipped as in XLA's own gather: nothing outside the matrix is read.
        places = tf.clip_by_value(tf.cast(places, tf.int32), 0, self.outputs - 1)
        operands = [places, tf.convert_to_tensor(self.numbers)]
        name = matmul.columns_name_of(self.number_format)
        return foreign_call.call(name, operands, self.inputs)

    def plain(self) -> Matrix:
        """The same numbers in float32, for graphs that XLA does not compile."""
        if self.number_format is None:
            return self
        columns = tf.function(self.columns, jit_compile=True, autograph=False)
        wide = tf.transpose(columns(tf.range(self.outputs)))
        return Matrix(tf.Variable(wide, trainable=False), None, *self.shape)


class Stacked(NamedTuple):
    """Matrices of one input in different formats, as one `[in, out]`."""

    parts: tuple[Matrix, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """`(in, out)`."""
        return self.parts[0].inputs, sum(part.outputs for part in self.parts)

    def multiply(self, x: tf.Tensor) -> tf.Tensor:
        return tf.concat([part.multiply(x) for part in self.parts], axis=-1)


class Matrices(NamedTuple):
    """Matrices of one shape; a product takes the number of one, and reads only that.

    Attributes:
        numbers: `[count, in, out]` float32, or the tiles of all, one after the other.
        number_format, inputs, outputs, in_eight_bits: as in `Matrix`, of each.
    """

    numbers: tf.Variable
    number_format: str | None
    inputs: int
    outputs: int
    in_eight_bits: bool = False

    @classmethod
    def of(
        cls,
        weights: Weights,
        count: int,
        save: Save,
        in_eight_bits: bool = False,
        multiplies: Callable[[Weights], bool] = has_product,
    ) -> Matrices:
        """Lays weights out: `[count * out, in]`; see `Matrix.of`."""
        outputs, inputs = weights.shape[0] // count, weights.shape[1]
        if outputs % COLUMNS or not multiplies(weights):
            wide = weights.dequantized() if isinstance(weights, Blocks) else weights

            def write(to: np.ndarray) -> None:
                np.copyto(to, wide.reshape(count, outputs, inputs).transpose(0, 2, 1))

            saved = save((count, inputs, outputs), np.dtype(np.float32), write)
            return cls(saved, None, inputs, outputs)
        tiles = Tiles(weights)
        in_eight_bits = _prepare(tiles.format, in_eight_bits, is_split=True)
        saved = save(tiles.shape, tiles.dtype, tiles.pack)
        return cls(saved, tiles.format, inputs, outputs, in_eight_bits)

    def multiply(self, x: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """`[rows, in] -> [rows, out]` with the matrix of a number, scalar int32."""
        if self.number_format is None:
            return tf.matmul(x, tf.gather(self.numbers, number))
        operands = [x, tf.convert_to_tensor(self.numbers), number]
        name = matmul.name_of(self.number_format, in_eight_bits=self.in_eight_bits, is_split=True)
        return foreign_call.call(name, operands, self.outputs)


_Tiled = TypeVar("_Tiled", Matrix, Matrices)


def prepared(matrix: _Tiled, in_eight_bits: bool) -> _Tiled:
    """A matrix whose tiles an earlier process made; starts compiling its machine code."""
    if matrix.number_format is None:
        return matrix
    is_split = isinstance(matrix, Matrices)
    return matrix._replace(
        in_eight_bits=_prepare(matrix.number_format, in_eight_bits, is_split=is_split)
    )


def _prepare(number_format: str, in_eight_bits: bool, *, is_split: bool = False) -> bool:
    """Starts compiling a product; returns whether it rounds activations to 8 bits."""
    in_eight_bits = in_eight_bits and number_format in FORMATS
    matmul.prepare(number_format, in_eight_bits=in_eight_bits, is_split=is_split)
    return in_eight_bits
