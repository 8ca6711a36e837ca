"""`Matrix`: weights in the format and layout of fast products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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
    """Weights `[in, out]` in their own format; a nest of variables, as layers are.

    Or several such matrices, of which a product takes one and reads only that.

    Attributes:
        numbers: `[in, out]` float32, of several `[matrices, in, out]`, or the tiles of all, one
            after the other; see `packing.Tiles`.
        number_format: of tiles; None if the matrix is small and XLA multiplies.
        inputs, outputs: the sizes `in` and `out`.
        in_eight_bits: whether products round activations to 8 bits; only with blocks.
        matrices: how many of several there are; None for a single one.
    """

    numbers: tf.Variable
    number_format: str | None
    inputs: int
    outputs: int
    in_eight_bits: bool = False
    matrices: int | None = None

    @classmethod
    def of(
        cls,
        weights: Weights,
        save: Save,
        in_eight_bits: bool = False,
        multiplies: Callable[[Weights], bool] = has_product,
        matrices: int | None = None,
    ) -> Matrix:
        """From a checkpoint's weights `[out, in]`, or `[matrices * out, in]`.

        Args:
            in_eight_bits: whether products with blocks round activations to 8 bits; those with
                floats are exact.
            multiplies: whether our own product multiplies weights; XLA multiplies float32.
        """
        outputs, inputs = weights.shape[0] // (matrices or 1), weights.shape[1]
        if not multiplies(weights) or (matrices is not None and outputs % COLUMNS):
            wide = weights.dequantized() if isinstance(weights, Blocks) else weights
            each = wide.reshape(-1, outputs, inputs).transpose(0, 2, 1)
            shape = (inputs, outputs) if matrices is None else (matrices, inputs, outputs)

            def write(to: np.ndarray) -> None:
                np.copyto(to.reshape(each.shape), each)

            saved = save(shape, np.dtype(np.float32), write)
            return cls(saved, None, inputs, outputs, matrices=matrices)
        tiles = Tiles(weights)
        in_eight_bits = _prepare(tiles.format, in_eight_bits, is_split=matrices is not None)
        saved = save(tiles.shape, tiles.dtype, tiles.pack)
        return cls(saved, tiles.format, inputs, outputs, in_eight_bits, matrices)

    def prepared(self, in_eight_bits: bool) -> Matrix:
        """The same, whose tiles an earlier process made; starts compiling its machine code."""
        if self.number_format is None:
            return self
        is_split = self.matrices is not None
        in_eight_bits = _prepare(self.number_format, in_eight_bits, is_split=is_split)
        return self._replace(in_eight_bits=in_eight_bits)

    @property
    def shape(self) -> tuple[int, int]:
        """`(in, out)`."""
        return self.inputs, self.outputs

    def multiply(self, x: tf.Tensor, number: tf.Tensor | None = None) -> tf.Tensor:
        """`[..., in] -> [..., out]`, float32, in a graph that XLA compiles.

        Args:
            number: scalar int32, which of several matrices; `x` is `[rows, in]` then.
        """
        if self.number_format is None:
            one = self.numbers if number is None else tf.gather(self.numbers, number)
            return tf.matmul(x, one)
        form = {"in_eight_bits": self.in_eight_bits, "is_split": number is not None}
        name = matmul.name_of(self.number_format, **form)
        numbers = tf.convert_to_tensor(self.numbers)
        if number is not None:
            return foreign_call.call(name, [x, numbers, number], self.outputs)
        rows = x if x.shape.rank == 2 else tf.reshape(x, [-1, self.inputs])
        y = foreign_call.call(name, [rows, numbers], self.numbers.shape[0] * COLUMNS)
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


def _prepare(number_format: str, in_eight_bits: bool, *, is_split: bool = False) -> bool:
    """Starts compiling a product; returns whether it rounds activations to 8 bits."""
    in_eight_bits = in_eight_bits and number_format in FORMATS
    registration.prepare(
        matmul.name_of(number_format, in_eight_bits=in_eight_bits, is_split=is_split)
    )
    if not is_split:
        registration.prepare(matmul.columns_name_of(number_format))
    return in_eight_bits
