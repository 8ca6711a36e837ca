"""States that each token changes, as values of a graph, by XLA alone.

Knows what a token does to a state (`kernels.attention.recurrence`). A state is `[heads.numbers]`:
what the last token read, then matrices `[heads, keys, values]`.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from xla_backend.kernels.attention.recurrence import Heads


def read_all(lines: tf.Tensor, heads: Heads) -> tuple[tf.Tensor, tf.Tensor]:
    """All tokens of a text; see `graph.kv_operations.read_all`."""
    length, width = tf.shape(lines)[0], heads.total * heads.values

    def take(at: tf.Tensor, state: tf.Tensor, read: tf.Tensor) -> tuple[tf.Tensor, ...]:
        state = taken(state, tf.gather(lines, at[None]), heads)
        return at + 1, state, xla.dynamic_update_slice(read, state[:, :width], tf.stack([at, 0]))

    start = (0, tf.zeros([1, heads.numbers]), tf.zeros([length, width]))
    _, state, read = tf.while_loop(lambda at, *_: at < length, take, start)
    return read, state[0]


def step(
    lines: tf.Tensor, prompt: tf.Tensor, states: tf.Tensor, source: tf.Tensor, heads: Heads
) -> tf.Tensor:
    """A token each for n texts; see `graph.kv_operations.step`."""
    every, first = tf.concat([prompt, states], axis=0), prompt.shape[0]
    before = tf.where(source < 0, -1 - source, first + source)
    return taken(tf.gather(every, before), lines, heads)


def taken(before: tf.Tensor, lines: tf.Tensor, heads: Heads) -> tf.Tensor:
    """States after a token each: `[n, heads.numbers]` and lines `[n, heads.line]`."""
    keys, width = heads.key_heads * heads.keys, heads.total * heads.values
    q, k, v, decay, share = tf.split(lines, [keys, keys, width, heads.total, heads.total], axis=-1)
    of_heads = [heads.key_head(head) for head in range(heads.total)]
    q, k = (
        tf.gather(tf.reshape(y, [-1, heads.key_heads, heads.keys, 1]), of_heads, axis=1)
        for y in (q, k)
    )
    matrices = tf.reshape(before[:, width:], [-1, heads.total, heads.keys, heads.values])
    state = matrices * decay[..., None, None]
    change = tf.reshape(v, [-1, heads.total, heads.values])
    if heads.corrects:
        change -= tf.reduce_sum(state * k, axis=2)
    state += k * (change * share[..., None])[:, :, None]
    read = tf.reduce_sum(state * q, axis=2)
    count = tf.shape(before)[0]
    return tf.concat([tf.reshape(y, [count, -1]) for y in (read, state)], axis=-1)
