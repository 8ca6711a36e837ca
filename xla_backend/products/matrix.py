"""`Matrix`: weights that rows are multiplied with, in the format and layout that is quick.

Knows when the machine code of our own pays, and what stands in its place. Must not know models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from xla_backend.products import foreign_calls, handler, product
from xla_backend.products.grouped import GROUP, Grouped, Weights
from xla_backend.products.tiles import COLUMNS, tiled

SMALL = 2**18
"""Numbers of a matrix up to which XLA's own product is as quick: the processor's cache holds it."""


class Matrix(NamedTuple):
    """Weights `[in, out]`, whose products read them in their own format. A nest, as layers are.

    Attributes:
        numbers: `[in, out]` float32, or as tiles; see `tiles.Tiles`.
        scales: as tiles have them, or None.
        number_format: of tiles; None where the matrix is small and XLA multiplies.
        outputs: what `out` is.
    """

    numbers: tf.Variable
    scales: tf.Variable | None
    number_format: str | None
    outputs: int

    @classmethod
    def of(cls, weights: Weights, keep: Callable[[str, np.ndarray], tf.Variable]) -> Matrix:
        """Lays weights out.

        Args:
            weights: `[out, in]`, as checkpoints have them.
            keep: makes a variable of an array; the text is added to its name.
        """
        outputs, _ = weights.shape
        if not has_product(weights.shape):
            wide = weights.widened() if isinstance(weights, Grouped) else weights
            return cls(keep("", wide.T.astype(np.float32, copy=False)), None, None, outputs)
        tiles = tiled(weights)
        product.prepare(tiles.format)
        scales = None if tiles.scales is None else keep(".scales", tiles.scales)
        return cls(keep("", tiles.numbers), scales, tiles.format, outputs)

    @property
    def shape(self) -> tuple[int, int]:
        """`(in, out)`."""
        if self.number_format is None:
            return tuple(self.numbers.shape)
        lines = self.numbers.shape[1]
        return (2 * lines if self.number_format == "int4" else lines), self.outputs

    def multiply(self, x: tf.Tensor) -> tf.Tensor:
        """`[..., in] -> [..., out]`, float32, in a graph that XLA compiles."""
        if self.number_format is None:
            return tf.matmul(x, self.numbers)
        handler.wait_until_ready()
        inputs, outputs = self.shape
        operands = [tf.reshape(x, [-1, inputs]), tf.convert_to_tensor(self.numbers)]
        if x.shape.rank == 2:
            operands[0] = x
        if self.scales is not None:
            operands.append(tf.convert_to_tensor(self.scales))
        width = self.numbers.shape[0] * COLUMNS
        y = foreign_calls.call(product.name_of(self.number_format), operands, width)[:, :outputs]
        return y if x.shape.rank == 2 else tf.reshape(y, [*x.shape[:-1], outputs])

    def columns(self, places: tf.Tensor) -> tf.Tensor:
        """Columns `[positions, in]` float32 at places `[positions]`: rows of an embedding."""
        if self.number_format is None:
            return tf.transpose(tf.gather(self.numbers, places, axis=1))
        tile, lane = places // COLUMNS, places % COLUMNS
        found = _gather(tf.convert_to_tensor(self.numbers), tile, lane)
        if self.number_format == "bfloat16":
            found = tf.bitcast(found, tf.bfloat16)
        if self.scales is None:
            return tf.cast(found, tf.float32)
        inputs, _ = self.shape
        groups, kinds = inputs // GROUP, self.scales.shape[2]
        flat = tf.reshape(self.scales, [-1, groups * kinds, COLUMNS])
        scales = tf.cast(_gather(flat, tile, lane), tf.float32)
        scales = tf.reshape(scales, [-1, groups, kinds])
        if self.number_format == "int8":
            values = tf.reshape(tf.cast(found, tf.float32), [-1, groups, GROUP])
            return tf.reshape(values * scales, [-1, inputs])
        pairs = tf.reshape(found, [-1, groups, GROUP // 2])
        halves = [tf.bitwise.bitwise_and(pairs, 15), tf.bitwise.right_shift(pairs, 4)]
        values = tf.cast(tf.concat(halves, axis=2), tf.float32)
        return tf.reshape(values * scales[:, :, :1] + scales[:, :, 1:], [-1, inputs])

    def plain(self) -> Matrix:
        """The same numbers in float32, for graphs that XLA does not compile."""
        if self.number_format is None:
            return self
        columns = tf.function(self.columns, jit_compile=True, autograph=False)
        wide = tf.transpose(columns(tf.range(self.outputs)))
        return Matrix(tf.Variable(wide, trainable=False), None, None, self.outputs)


def has_product(shape: tuple[int, ...]) -> bool:
    """Whether a matrix of this shape, `(out, in)`, has a product of our own; else it is float32."""
    outputs, inputs = shape
    return inputs * outputs >= SMALL and not inputs % GROUP and handler.is_possible()


def _gather(tiles: tf.Tensor, tile: tf.Tensor, lane: tf.Tensor) -> tf.Tensor:
    """From `[tiles, lines, COLUMNS]` the columns at lanes of tiles: `[positions, lines]`."""
    numbers = xla.xla_data_pb2.GatherDimensionNumbers(
        offset_dims=[1], collapsed_slice_dims=[0, 2], start_index_map=[0, 2], index_vector_dim=1
    )
    places = tf.stack([tile, lane], axis=1)
    found = xla.gather(tiles, places, numbers, [1, tiles.shape[1], 1])
    return tf.ensure_shape(found, [tile.shape[0], tiles.shape[1]])
