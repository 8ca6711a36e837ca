"""Attention, earlier lines and states over KV memory, as operations of a graph that XLA compiles.

Knows the kernels' operands. Must not know models, nor who owns the memory. XLA orders two calls
only by data: the second must need the result of the first.

    T  tokens of a call, at least 1  R  rows of the KV memory
    D  numbers of a head             M  blocks that a row has room for, and its state
    E  numbers of a line
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xla_backend.kernels.attention import attention, earlier, recurrence
from xla_backend.kernels.attention.recurrence import RECENT, Heads
from xla_backend.kernels.graph import foreign_call


class Addresses(NamedTuple):
    """The KV memory of a call's rows.

    Attributes:
        blocks: `[R, M]` int64, addresses of each row's blocks, and last of its state.
    """

    blocks: tf.Tensor

    def attend(
        self,
        q: tf.Tensor,
        k: tf.Tensor,
        v: tf.Tensor,
        places: tf.Tensor,
        layer: tf.Tensor,
        *,
        heads: int,
        kv_heads: int,
        score_cap: float | None,
        sinks: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """See `attend`."""
        sizes = {"heads": heads, "kv_heads": kv_heads}
        return attend(
            q, k, v, places, self.blocks, layer, **sizes, score_cap=score_cap, sinks=sinks
        )

    def before(
        self, lines: tf.Tensor, places: tf.Tensor, layer: tf.Tensor, count: int, in_state: int
    ) -> tf.Tensor:
        """See `before`.

        Args:
            lines, places, layer, count: see there; the third number of `layer` is not read.
            in_state: how many lines the state has, or 0 for blocks.
        """
        layer += tf.constant([0, 0, in_state], tf.int64)
        return before(lines, places, self.blocks, layer, count)

    def advance(
        self,
        lines: tf.Tensor,
        places: tf.Tensor,
        layer: tf.Tensor,
        heads: Heads,
        *,
        corrects: bool,
    ) -> tf.Tensor:
        """See `advance`."""
        return advance(lines, places, self.blocks, layer, heads, corrects=corrects)


def attend(
    q: tf.Tensor,
    k: tf.Tensor,
    v: tf.Tensor,
    places: tf.Tensor,
    blocks: tf.Tensor,
    layer: tf.Tensor,
    *,
    heads: int,
    kv_heads: int,
    score_cap: float | None,
    sinks: tf.Tensor | None = None,
) -> tf.Tensor:
    """Writes keys and values of new tokens, then attends: causal softmax attention.

    Args:
        q: `[T, heads * D]` float32, scaled and rotated. D is a multiple of 4.
        k: `[T, kv_heads * D]` float32, rotated; head h of `q` has head h // (heads / kv_heads).
        v: as `k`.
        places: `[T, 2]` int32, each token's row and position; row -1: no token. Tokens of one row
            are neighbours, at consecutive positions.
        blocks: `[R, M]` int64, addresses of each row's blocks, multiples of 64. Only blocks with a
            position that a token sees are read.
        layer: `[3]` int64: offset of this layer in each block, in bytes; how many positions a token
            sees, itself included, or 0 for all; and 0.
        heads: of `q`.
        kv_heads: of `k` and `v`.
        score_cap: scores become `cap * tanh(score / cap)`.
        sinks: `[heads]` float32, of each a further score in softmax, of a position without values.

    Returns:
        `[T, heads * D]` float32; NaN without a token.
    """
    cap = int(np.float32(score_cap or 0.0).view(np.int32))
    form = tf.constant([heads, kv_heads, cap], tf.int64)
    sinks = tf.fill([heads], np.float32(-np.inf)) if sinks is None else sinks
    operands = [q, k, v, places, blocks, layer, form, tf.convert_to_tensor(sinks)]
    return foreign_call.call(attention.NAME, operands, q.shape[1], has_side_effect=True)


def only_tokens(x: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Rows `[T, E]`, NaN without a token, so that products skip them."""
    return tf.where(places[:, :1] < 0, np.float32(np.nan), x)


def in_blocks(
    layer_bytes: Sequence[int], windows: Sequence[int | None] | None = None
) -> list[tf.Tensor]:
    """The offsets of layers in a block, one after the other: `layer` of `attend` for each.

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


def before(
    lines: tf.Tensor, places: tf.Tensor, blocks: tf.Tensor, layer: tf.Tensor, count: int
) -> tf.Tensor:
    """Writes the lines of new tokens, and reads those of the positions before each.

    Args:
        lines: `[T, E]` float32.
        places, blocks: see `attend`.
        layer: `[3]` int64: offset of this layer in each block, or in each row's state, in bytes;
            what is not read; how many lines the state has, or 0 for blocks.
        count: how many positions back.

    Returns:
        `[T, count * E]` float32, the nearest position first; zeros before a row's first position,
        NaN where there is no token.
    """
    operands = [lines, places, blocks, layer]
    return foreign_call.call(earlier.NAME, operands, count * lines.shape[1], has_side_effect=True)


def advance(
    lines: tf.Tensor,
    places: tf.Tensor,
    blocks: tf.Tensor,
    layer: tf.Tensor,
    heads: Heads,
    *,
    corrects: bool,
) -> tf.Tensor:
    """Changes the states of rows by new tokens.

    Args:
        lines: `[T, heads.line]` float32.
        places: see `attend`. A row's first position begins a new state; every other one
            is at most `RECENT` behind the last call's first, or follows its last.
        blocks: `[R, M]` int64; the last of each row is the address of its state. If it is 0, there
            is one row, whose matrices take the place of what the last `keys` tokens read.
        layer: `[3]` int64: where this layer begins in a state, in bytes; then what is not read.
        heads: sizes.
        corrects: c.

    Returns:
        `[T, heads.total * heads.values]` float32, NaN without a token.
    """
    form = tf.constant([*heads, corrects, heads.row_bytes], tf.int64)
    operands = [lines, places, blocks, layer, form]
    columns = heads.total * heads.values
    return foreign_call.call(recurrence.NAME, operands, columns, has_side_effect=True)


def read_all(lines: tf.Tensor, heads: Heads, *, corrects: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """The same for all tokens of a text that has no memory; see `advance`.

    Returns:
        What they read, `[T, heads.total * heads.values]`, and the state behind them,
        `[heads.numbers]`.
    """
    # Tokens before it, so that none counts as a draft; and room for the state behind it.
    lines = tf.pad(lines, [[RECENT, heads.keys], [0, 0]])
    at = tf.range(tf.shape(lines)[0])
    row = tf.where(at < tf.shape(lines)[0] - heads.keys, 0, -1)
    nowhere, begin = tf.zeros([1, 1], tf.int64), tf.zeros([3], tf.int64)
    found = advance(lines, tf.stack([row, at], 1), nowhere, begin, heads, corrects=corrects)
    behind = tf.reshape(found[-heads.keys - 1 :], [heads.numbers])
    return found[RECENT : -heads.keys], behind


def step(
    lines: tf.Tensor,
    prompt: tf.Tensor,
    states: tf.Tensor,
    source: tf.Tensor,
    heads: Heads,
    *,
    corrects: bool,
) -> tf.Tensor:
    """A token each for n texts, whose states are values.

    Args:
        lines: `[n, heads.line]` float32.
        prompt, states: `[.., heads.numbers]` float32: behind prompts, and behind new tokens.
        source: `[n]` int32: which of `states` a token goes on from; below 0, `-1 - source` of
            `prompt`.
        heads: sizes.
        corrects: c.

    Returns:
        The state behind each, `[n, heads.numbers]`.
    """
    form = tf.constant([*heads, corrects, heads.numbers], tf.int64)
    return foreign_call.call(recurrence.STEP, [lines, prompt, states, source, form], heads.numbers)
