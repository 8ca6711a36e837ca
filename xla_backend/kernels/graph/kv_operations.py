"""Attention, earlier lines and states over KV memory, as operations of a graph that XLA compiles.

Knows the kernels' operands. XLA orders two calls only by data: the second must need the result of
the first.

    T  tokens of a call, at least 1  R  rows of the KV memory
    D  numbers of a head             M  blocks that a row has room for, and its state
    E  numbers of a line
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from xla_backend.kernels.attention import attention, earlier, recurrence
from xla_backend.kernels.attention.recurrence import RECENT, Heads
from xla_backend.kernels.graph import foreign_call


class Softmax(NamedTuple):
    """How scores become weights.

    Attributes:
        cap: scores first become `cap * tanh(score / cap)`.
        sinks: `[heads]` float32, of each a further score, of a position without values.
    """

    cap: float | None = None
    sinks: tf.Tensor | None = None


PLAIN = Softmax()


class Memory(Protocol):
    """What the layers of a model read and write in a call: of rows of KV memory, or of a text.

    In KV memory each token has a place, `[T, 2]` int32: its row and position; row -1: no token.
    Tokens of one row are neighbours, at consecutive positions.
    """

    def attend(
        self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, layer: Any, softmax: Softmax = PLAIN
    ) -> tf.Tensor:
        """Writes keys and values of new tokens, then attends: causal softmax attention.

        Args:
            q: `[T, heads, D]` float32, scaled and rotated. D is a multiple of 4.
            k: `[T, kv_heads, D]` float32, rotated; head h of `q` has head h // (heads / kv_heads).
            v: as `k`.
            layer: in KV memory `[3]` int64: offset of this layer in each block, in bytes; how many
                positions a token sees, itself included, or 0 for all; and 0. Only blocks with a
                position that a token sees are read.

        Returns:
            `[T, heads * D]` float32; NaN without a token.
        """

    def before(
        self, lines: tf.Tensor, layer: Any, count: int, in_state: int = 0, offset: int = 0
    ) -> tf.Tensor:
        """Writes the lines of new tokens, and reads those of the positions before each.

        Args:
            lines: `[T, E]` float32.
            layer: in KV memory `[3]` int64, the first number: offset of this layer in each block,
                or in each row's state, in bytes.
            count: how many positions back.
            in_state: how many lines the state has, or 0 for blocks.
            offset: where they begin in what the layer has of it, in bytes.

        Returns:
            `[T, count * E]` float32, the nearest position first; zeros before a row's first
            position, NaN where there is no token.
        """

    def advance(self, lines: tf.Tensor, layer: Any, heads: Heads) -> tuple[tf.Tensor, Any]:
        """Changes the states of rows by new tokens.

        A row's first position begins a new state; every other one is at most `RECENT` behind the
        last call's first, or follows its last.

        Args:
            lines: `[T, heads.line]` float32.
            layer: in KV memory `[3]` int64: where this layer begins in a state, in bytes; then what
                is not read.

        Returns:
            What they read, `[T, heads.total * heads.values]` float32, NaN without a token; and the
            states, if a graph must remember them, or `()`.
        """


class Addresses(NamedTuple):
    """The KV memory of a call's rows, by addresses.

    Attributes:
        places: see `Memory`.
        blocks: `[R, M]` int64, addresses of each row's blocks, multiples of 64, and last of its
            state. If that is 0, there is one row, whose matrices take the place of what the last
            `keys` tokens read.
    """

    places: tf.Tensor
    blocks: tf.Tensor

    def attend(
        self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, layer: tf.Tensor, softmax: Softmax = PLAIN
    ) -> tf.Tensor:
        (heads, size), kv_heads = q.shape[1:], k.shape[1]
        cap = int(np.float32(softmax.cap or 0.0).view(np.int32))
        form = tf.constant([heads, kv_heads, cap], tf.int64)
        sinks = softmax.sinks
        sinks = tf.fill([heads], np.float32(-np.inf)) if sinks is None else sinks
        flat = [tf.reshape(x, [-1, x.shape[1] * size]) for x in (q, k, v)]
        operands = [*flat, *self, layer, form, tf.convert_to_tensor(sinks)]
        return foreign_call.call(attention.NAME, operands, heads * size, has_side_effect=True)

    def before(
        self, lines: tf.Tensor, layer: tf.Tensor, count: int, in_state: int = 0, offset: int = 0
    ) -> tf.Tensor:
        layer += tf.constant([offset, 0, in_state], tf.int64)
        operands, columns = [lines, *self, layer], count * lines.shape[1]
        return foreign_call.call(earlier.NAME, operands, columns, has_side_effect=True)

    def advance(
        self, lines: tf.Tensor, layer: tf.Tensor, heads: Heads
    ) -> tuple[tf.Tensor, tuple[()]]:
        form = tf.constant([*heads, heads.row_bytes], tf.int64)
        operands, columns = [lines, *self, layer, form], heads.total * heads.values
        return foreign_call.call(recurrence.NAME, operands, columns, has_side_effect=True), ()


def only_tokens(x: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Rows `[T, E]`, NaN without a token, so that products skip them."""
    return tf.where(places[:, :1] < 0, np.float32(np.nan), x)


def in_blocks(
    layer_bytes: Sequence[int], windows: Sequence[int | None] | None = None
) -> list[tf.Tensor]:
    """The offsets of layers in a block, one after the other: `layer` of `Memory.attend` for each.

    Args:
        layer_bytes: bytes of a block in each layer.
        windows: how many positions a token sees; None for all.
    """
    offsets = np.cumsum([0, *layer_bytes])
    return [
        tf.constant([offset, window or 0, 0], tf.int64)
        for offset, window in zip(
            offsets.tolist(), windows or [None] * len(layer_bytes), strict=False
        )
    ]


def read_all(lines: tf.Tensor, heads: Heads) -> tuple[tf.Tensor, tf.Tensor]:
    """`Memory.advance` for all tokens of a text that has no memory.

    Returns:
        What they read, `[T, heads.total * heads.values]`, and the state after them,
        `[heads.numbers]`.
    """
    # Tokens before it, so that none counts as a draft; and room for the state after it.
    lines = tf.pad(lines, [[RECENT, heads.keys], [0, 0]])
    at = tf.range(tf.shape(lines)[0])
    row = tf.where(at < tf.shape(lines)[0] - heads.keys, 0, -1)
    nowhere, begin = tf.zeros([1, 1], tf.int64), tf.zeros([3], tf.int64)
    memory = Addresses(tf.stack([row, at], 1), nowhere)
    found, _ = memory.advance(lines, begin, heads)
    after = tf.reshape(found[-heads.keys - 1 :], [heads.numbers])
    return found[RECENT : -heads.keys], after


def step(
    lines: tf.Tensor, prompt: tf.Tensor, states: tf.Tensor, source: tf.Tensor, heads: Heads
) -> tf.Tensor:
    """The states `[n, heads.numbers]` after a token each of n texts, whose states are values.

    Args:
        lines: `[n, heads.line]` float32.
        prompt, states: `[.., heads.numbers]` float32: after prompts, and after new tokens.
        source: `[n]` int32: which of `states` a token goes on from; below 0, `-1 - source` of
            `prompt`.
    """
    form = tf.constant([*heads, heads.numbers], tf.int64)
    return foreign_call.call(recurrence.STEP, [lines, prompt, states, source, form], heads.numbers)
