"""Rows of a KV memory, and what their tokens get by NumPy in float64."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from xla_backend.kernels import registration
from xla_backend.kernels.attention import attention
from xla_backend.kernels.graph.kv_operations import Addresses, Softmax

LAYERS = 2
"""Layers in a block; the second is used."""
Token = tuple[int, int]
"""Row and position."""


class Rows:
    """Rows of a KV memory, with all their queries, keys and values as the oracle has them."""

    def __init__(
        self,
        size: int,
        *,
        heads: int = 3,
        kv_heads: int = 1,
        rows: int = 3,
        length: int = 1400,
        window: int = 0,
        cap: float | None = None,
        sinks: Sequence[float] | None = None,
    ) -> None:
        generator = np.random.default_rng(size)
        self._size, self._heads, self._kv_heads = size, heads, kv_heads
        self._window, self._cap = window, cap
        self._sinks = None if sinks is None else np.array(sinks, np.float32)
        self.q, self.k, self.v = (
            generator.standard_normal((rows, length, count * size), np.float32)
            for count in (heads, kv_heads, kv_heads)
        )
        self.q *= 2 / size**0.5
        self._length = length
        self.forget()
        layer = attention.layer_bytes(kv_heads, size)
        assert not layer % 64
        self._layer = np.array([layer * (LAYERS - 1), window, 0], np.int64)
        registration.prepare(attention.NAME)

    def forget(self) -> None:
        """A new memory, full of what are no numbers."""
        rows, length, _ = self.q.shape
        many = -(-length // attention.BLOCK)
        block = LAYERS * attention.layer_bytes(self._kv_heads, self._size)
        self._memory = np.full(rows * many * block // 4 + 16, np.nan, np.float32)
        begin = self._memory.ctypes.data + -self._memory.ctypes.data % 64
        order = np.random.default_rng(1).permutation(rows * many)
        self._blocks = begin + block * order.reshape(rows, many).astype(np.int64)

    def function(self) -> Callable[..., tf.Tensor]:
        """What attends; the number of tokens is open in the trace."""

        def attend(*operands: tf.Tensor) -> tf.Tensor:
            q, k, v, places, blocks, layer = operands
            softmax = Softmax(self._cap, self._sinks)
            return Addresses(places, blocks).attend(q, k, v, layer, softmax)

        signature = [
            tf.TensorSpec([None, self._heads, self._size], tf.float32),
            *[tf.TensorSpec([None, self._kv_heads, self._size], tf.float32)] * 2,
            tf.TensorSpec([None, 2], tf.int32),
            tf.TensorSpec(self._blocks.shape, tf.int64),
            tf.TensorSpec([3], tf.int64),
        ]
        return tf.function(attend, input_signature=signature, jit_compile=True, autograph=False)

    def operands(self, tokens: list[Token]) -> list[np.ndarray]:
        """Of a call. A row of -1 has numbers too, which are nobody's."""
        rows, positions = np.array(tokens, np.int32).T
        own = (x[rows, np.maximum(positions, 0)] for x in (self.q, self.k, self.v))
        heads = [x.reshape(len(tokens), -1, self._size) for x in own]
        return [*heads, np.array(tokens, np.int32), self._blocks, self._layer]

    def expected(self, tokens: list[Token]) -> np.ndarray:
        """What each token gets."""
        return np.stack([self._attended(*token) for token in tokens])

    def _attended(self, row: int, position: int) -> np.ndarray:
        shape = (-1, self._size)
        if row < 0:
            return np.full(self._heads * self._size, np.nan)
        begin = max(0, position + 1 - self._window) if self._window else 0
        results = []
        for head, query in enumerate(self.q[row, position].reshape(shape).astype(np.float64)):
            shared = head // (self._heads // self._kv_heads)
            keys, values = (
                x[row, begin : position + 1, shared * self._size :][:, : self._size]
                for x in (self.k, self.v)
            )
            scores = keys @ query
            if self._cap is not None:
                scores = self._cap * np.tanh(scores / self._cap)
            weights = np.exp(scores - scores.max())
            sink = -np.inf if self._sinks is None else self._sinks[head]
            total = weights.sum() + np.exp(sink - scores.max())
            results.append(weights @ values / total)
        return np.concatenate(results)


def prompt(row: int, begin: int, end: int) -> list[Token]:
    return [(row, position) for position in range(begin, end)]
