"""`Pages`: the `Memory` of rows in variables, by XLA alone.

Knows the layout of a block and of a row's state in such variables. A call reads a variable and
assigns it, in the order in which a graph is written; XLA changes it in place. Loops run over the
blocks that rows have, so that one compiled function serves every length. Block 0 and state 0 belong
to no row: what has no row is written there.

    T  tokens of a call              R  rows of the KV memory
    D  numbers of a head             M  blocks that a row has room for, and its state
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.kernels.attention.recurrence import RECENT, Heads
from xla_backend.kernels.graph.kv_operations import PLAIN, Softmax, only_tokens
from xla_backend.kernels.xla import states

_LOWEST = -3e38
"""Less than every score; finite, so that a query that sees nothing is not NaN."""


class Pages(NamedTuple):
    """The memory of a call's rows.

    Attributes:
        places: see `Memory`.
        blocks: `[R, M]` int64, the numbers of each row's blocks, and last of its state.
        kv: handle of the variable of blocks, `[blocks, numbers]` float32.
        rows: handle of that of states, `[states, numbers]` float32; `()` without states.
    """

    places: tf.Tensor
    blocks: tf.Tensor
    kv: tf.Tensor
    rows: Any

    def attend(
        self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, layer: tf.Tensor, softmax: Softmax = PLAIN
    ) -> tf.Tensor:
        """See `Memory`. A layer has keys and values `[2, kv_heads, BLOCK, D]` of a block."""
        (tokens, heads, size), kv_heads = q.shape, k.shape[1]
        shared = heads // kv_heads
        row, position = self._rows()
        offset, window = (tf.cast(layer[at], tf.int32) for at in (0, 1))
        offset //= 4

        # Keys and values, head by head, `[T * 2 * kv_heads, D]`.
        new = tf.reshape(tf.concat([k, v], axis=1), [-1, size])
        column = offset + tf.range(2 * kv_heads) * BLOCK * size
        column = column + (position % BLOCK * size)[:, None]
        block = tf.repeat(self._block(row, position // BLOCK), 2 * kv_heads)
        memory = _written(_read(self.kv), new, block, tf.reshape(column, [-1]))

        # One token each has its own blocks; a chunk's tokens share those of their row.
        if tokens is not None:
            groups, each, of_unit, first, last = tokens, 1, row, position, position
        else:
            groups, each, of_unit = 1, tf.shape(q)[0], tf.range(tf.shape(self.blocks)[0])
            is_own = row == of_unit[:, None]
            last = tf.reduce_max(tf.where(is_own, position, -1), axis=1)
            first = tf.reduce_min(tf.where(is_own, position, last[:, None]), axis=1)
        begin = tf.where(window > 0, tf.maximum(first - window + 1, 0), 0) // BLOCK
        count = tf.where((of_unit < 0) | (last < 0), 0, last // BLOCK + 1 - begin)
        ends = tf.cumsum(count)

        q = tf.transpose(tf.reshape(q, [groups, each, kv_heads, shared, size]), [0, 2, 1, 3, 4])
        q = tf.reshape(q, [groups, kv_heads, each * shared, size])
        row, position = (tf.reshape(x, [groups, each]) for x in (row, position))
        zeros = tf.zeros([groups, kv_heads, each * shared, 1])
        highest, total = zeros + _LOWEST, zeros
        if softmax.sinks is not None:
            of_heads = tf.reshape(softmax.sinks, [kv_heads, 1, shared])
            of_heads = tf.tile(of_heads, [1, each, 1])
            highest = zeros + tf.reshape(of_heads, [1, kv_heads, each * shared, 1])
            total = zeros + 1.0
        parts = (tf.constant(0), memory, highest, total, zeros * tf.zeros([size]))

        def add(at: tf.Tensor, memory: tf.Tensor, *sums: tf.Tensor) -> tuple[tf.Tensor, ...]:
            """One block of a unit."""
            unit = tf.reduce_sum(tf.cast(ends <= at, tf.int32))
            group = unit if tokens is not None else tf.constant(0)
            of_row, past = (tf.gather(x, unit) for x in (of_unit, ends - count))
            number = tf.gather(begin, unit) + at - past
            place = tf.stack([self._block(of_row, number), offset])
            found = xla.dynamic_slice(memory, place, [1, 2 * kv_heads * BLOCK * size])
            keys, values = tf.unstack(tf.reshape(found, [2, kv_heads, BLOCK, size]))
            here = number * BLOCK + tf.range(BLOCK)
            # What was never written may be NaN.
            is_written = here <= tf.gather(last, unit)
            values = tf.where(is_written[:, None], values, 0.0)
            own_row, own = (tf.gather(x, group)[:, None] for x in (row, position))
            is_seen = (own_row == of_row) & (here <= own)
            is_seen &= (window == 0) | (here > own - window)
            is_seen = tf.reshape(tf.repeat(is_seen, shared, axis=0), [each * shared, BLOCK])
            scores = tf.matmul(tf.gather(q, group), keys, transpose_b=True)
            if softmax.cap is not None:
                scores = softmax.cap * tf.tanh(scores / softmax.cap)
            scores = tf.where(is_seen, scores, _LOWEST)
            highest, total, attended = (tf.gather(x, group) for x in sums)
            higher = tf.maximum(highest, tf.reduce_max(scores, axis=-1, keepdims=True))
            weights = tf.where(is_seen, tf.exp(scores - higher), 0.0)
            scale = tf.exp(highest - higher)
            total = total * scale + tf.reduce_sum(weights, axis=-1, keepdims=True)
            attended = attended * scale + tf.matmul(weights, values)
            start = tf.stack([group, 0, 0, 0])
            new = (higher, total, attended)
            changed = (
                xla.dynamic_update_slice(x, y[None], start) for x, y in zip(sums, new, strict=True)
            )
            return at + 1, memory, *changed

        _, memory, _, total, attended = tf.while_loop(lambda at, *_: at < ends[-1], add, parts)
        _assign(self.kv, memory)
        attended = tf.reshape(attended / total, [groups, kv_heads, each, shared, size])
        attended = tf.transpose(attended, [0, 2, 1, 3, 4])
        return only_tokens(tf.reshape(attended, [-1, heads * size]), self.places)

    def before(
        self, lines: tf.Tensor, layer: tf.Tensor, count: int, in_state: int = 0, offset: int = 0
    ) -> tf.Tensor:
        row, position = self._rows()
        width, length = lines.shape[1], tf.shape(lines)[0]
        begin = (tf.cast(layer[0], tf.int32) + offset) // 4
        handle = self.rows if in_state else self.kv
        of_state = self.blocks.shape[1] - 1

        def place(row: tf.Tensor, at: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Block (or state) and column of a row's position."""
            block = self._block(row, of_state if in_state else at // BLOCK)
            return block, begin + at % (in_state or BLOCK) * width

        def read(
            token: tf.Tensor, memory: tf.Tensor, found: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            own, at = tf.gather(row, token), tf.gather(position, token)

            def earlier(back: int) -> tf.Tensor:
                start = tf.stack(place(own, tf.maximum(at - back, 0)))
                line = tf.where(at >= back, xla.dynamic_slice(memory, start, [1, width]), 0.0)
                # A row's tokens are neighbours.
                here = tf.maximum(token - back, 0)
                is_new = (token >= back) & (tf.gather(row, here) == own)
                return tf.where(is_new, tf.gather(lines, here[None]), line)

            every = tf.concat([earlier(back) for back in range(1, count + 1)], axis=1)
            found = xla.dynamic_update_slice(found, every, tf.stack([token, 0]))
            return token + 1, memory, found

        start = (tf.constant(0), _read(handle), tf.zeros([length, count * width]))
        _, memory, found = tf.while_loop(lambda token, *_: token < length, read, start)
        # What is written where must need what was read, or XLA copies all memory to write first.
        nothing = tf.cast(tf.reduce_any((found > 0.0) & (found < 0.0)), tf.int32)
        _assign(handle, _written(memory, lines, *place(row, position + nothing)))
        return only_tokens(found, self.places)

    def advance(
        self, lines: tf.Tensor, layer: tf.Tensor, heads: Heads
    ) -> tuple[tf.Tensor, tuple[()]]:
        """See `Memory`. A layer has of a state matrices `[heads, keys, values]`, how many tokens
        they hold, and the lines of recent tokens."""
        row, position = self._rows()
        length, width = tf.shape(lines)[0], heads.total * heads.values
        numbers = heads.numbers - width
        offset = tf.cast(layer[0], tf.int32) // 4
        count_at, recent_at = offset + numbers, offset + numbers + 2 * heads.total
        at = tf.range(length)
        # Tokens of a row are neighbours. Of these: the first one's place, and how many there are.
        is_same = row[:, None] == row
        index = at - tf.reduce_min(tf.where(is_same, at, length), axis=1)
        many = tf.reduce_sum(tf.cast(is_same, tf.int32), axis=1)
        may_be_drafts = many <= RECENT
        is_last_certain = index == tf.where(may_be_drafts, 1, many) - 1
        of_row = self._block(row, self.blocks.shape[1] - 1)
        to_state = tf.where(is_last_certain, of_row, 0)
        to_recent = tf.where(may_be_drafts & (index > 0), of_row, 0)

        def after(state: tf.Tensor, line: tf.Tensor) -> tf.Tensor:
            return states.taken(state, line, heads)

        def take(
            token: tf.Tensor, memory: tf.Tensor, state: tf.Tensor, read: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            own, here = tf.gather(of_row, token), tf.gather(position, token)
            is_first = tf.gather(index, token) == 0
            matrices = xla.dynamic_slice(memory, tf.stack([own, offset]), [1, numbers])
            held = xla.dynamic_slice(memory, tf.stack([own, count_at]), [1, 1])[0, 0]
            held = tf.where(here > 0, held, 0.0)
            saved = tf.concat([tf.zeros([1, width]), tf.where(here > 0, matrices, 0.0)], axis=1)
            state = tf.where(is_first, saved, state)
            held = tf.where(is_first & (own > 0), tf.cast(held, tf.int32), here)

            # Not in the loop: XLA would copy all memory for a loop that only reads it.
            recent = xla.dynamic_slice(memory, tf.stack([own, recent_at]), [1, RECENT * heads.line])
            recent = tf.reshape(recent, [RECENT, heads.line])

            def again(of: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                """A recent token, which was a draft then."""
                return of + 1, after(state, tf.gather(recent, (of % RECENT)[None]))

            _, state = tf.while_loop(lambda of, _: of < here, again, (held, state))
            line = tf.gather(lines, token[None])
            state = after(state, line)
            read = xla.dynamic_update_slice(read, state[:, :width], tf.stack([token, 0]))
            to = tf.gather(to_state, token)
            memory = xla.dynamic_update_slice(memory, state[:, width:], tf.stack([to, offset]))
            now = tf.reshape(tf.cast(here + 1, tf.float32), [1, 1])
            memory = xla.dynamic_update_slice(memory, now, tf.stack([to, count_at]))
            begin = recent_at + here % RECENT * heads.line
            to = tf.gather(to_recent, token)
            memory = xla.dynamic_update_slice(memory, line, tf.stack([to, begin]))
            return token + 1, memory, state, read

        start = (tf.constant(0), _read(self.rows), tf.zeros([1, heads.numbers]))
        _, memory, _, read = tf.while_loop(
            lambda token, *_: token < length, take, (*start, tf.zeros([length, width]))
        )
        _assign(self.rows, memory)
        return only_tokens(read, self.places), ()

    def _rows(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Of each token its row (negative without a token), and its position (then 0)."""
        row, position = tf.unstack(self.places, axis=1)
        return row, tf.where(row < 0, 0, position)

    def _block(self, row: tf.Tensor, place: tf.Tensor | int) -> tf.Tensor:
        """The number at a place in a row's list, int32; 0 without a row."""
        columns = self.blocks.shape[1]
        at = tf.maximum(row, 0) * columns + place
        found = tf.gather(tf.cast(tf.reshape(self.blocks, [-1]), tf.int32), at)
        return tf.where(row < 0, 0, found)


def _read(handle: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)


def _assign(handle: tf.Tensor, value: tf.Tensor) -> None:
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def _written(memory: tf.Tensor, new: tf.Tensor, block: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
    """Memory with lines `[n, D]` written, each into a block from a column on."""

    def write(at: tf.Tensor, memory: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        place = tf.stack([tf.gather(block, at), tf.gather(column, at)])
        return at + 1, xla.dynamic_update_slice(memory, tf.gather(new, at[None]), place)

    return tf.while_loop(lambda at, _: at < tf.shape(new)[0], write, (0, memory))[1]
