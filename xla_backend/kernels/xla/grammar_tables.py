"""`GrammarTables`: grammars in compiled loops by XLA alone, over tables in one variable.

Knows the tables' layout (`kernels.grammar.Tables`). What a row says of its grammar are places in
that variable, so one compiled function serves every grammar of every size. Axes: R rows, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xla_backend.kernels.grammar import FIELDS, FORBIDDEN, Tables
from xla_backend.kernels.graph.grammar_operations import are_given

ROOM = 2**26
"""Numbers of 16 bits that all tables may have: more than the largest grammar's."""


class OutOfTables(Exception):
    """The grammars of a call need more room than there is."""


class GrammarTables:
    """The tables of the grammars that rows follow, on the device; the first number is unused."""

    def __init__(self, room: int = ROOM) -> None:
        """Takes no memory yet, where the system gives it at the first use."""
        empty = tf.raw_ops.Empty(shape=[room], dtype=tf.int16, init=False)
        self._room = room
        self._numbers = tf.Variable(empty, trainable=False)
        self._places: dict[int, tuple[Tables, list[int]]] = {}
        self._end = 1

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """What compiled functions read, by name."""
        return {"grammar_tables": self._numbers}

    def fields(self, rows: Sequence[Tables | None]) -> list[list[int]]:
        """The descriptions of the grammars of a call's rows, `FIELDS` each; 0 without one.

        Raises:
            OutOfTables: there is no room for all of them.
        """
        every = {id(tables): tables for tables in rows if tables is not None}
        missing = [tables for at, tables in every.items() if at not in self._places]
        if self._end + sum(map(_size, missing)) > self._room:
            self._places, self._end, missing = {}, 1, list(every.values())
            if 1 + sum(map(_size, missing)) > self._room:
                raise OutOfTables
        for tables in missing:
            arrays = (tables.class_of_token, tables.next_state, tables.drafts)
            places = [self._write(array) for array in arrays]
            self._places[id(tables)] = tables, [*places, tables.next_state.shape[1]]
        for at, tables in every.items():
            if len(tables.next_state) == 1:  # found token by token: its classes change
                self._put(tables.class_of_token, self._places[at][1][0])
        return [[0] * FIELDS if x is None else self._places[id(x)][1] for x in rows]

    def _write(self, array: np.ndarray) -> int:
        begin, self._end = self._end, self._end + array.nbytes // 2
        self._put(array, begin)
        return begin

    def _put(self, array: np.ndarray, begin: int) -> None:
        numbers = np.ascontiguousarray(array).reshape(-1).view(np.int16)
        self._numbers[begin : begin + len(numbers)].assign(numbers)

    def allowed(self, scores: tf.Tensor, states: tf.Tensor, grammars: tf.Tensor) -> tf.Tensor:
        def masked() -> tf.Tensor:
            tokens = tf.range(scores.shape[1])[None]
            may_come = self._next_states(states[:, None], tokens, grammars[:, None]) >= 0
            return tf.where(may_come | (grammars[:, :1] == 0), scores, FORBIDDEN)

        return tf.cond(are_given(grammars), masked, lambda: scores)

    def advanced(self, states: tf.Tensor, tokens: tf.Tensor, grammars: tf.Tensor) -> tf.Tensor:
        after = self._next_states(states, tokens, grammars)
        return tf.where((grammars[:, 0] > 0) & (after >= 0), after, states)

    def drafts(self, states: tf.Tensor, grammars: tf.Tensor, count: int) -> tf.Tensor:
        begin = tf.cast(grammars[:, 2], tf.int32) + states * 2 * count
        places = begin[:, None] + 2 * tf.range(count)
        low, high = (self._at(places + more) for more in (0, 1))
        found = tf.bitwise.bitwise_or(
            tf.bitwise.left_shift(high, 16), tf.bitwise.bitwise_and(low, 0xFFFF)
        )
        return tf.where(grammars[:, :1] > 0, found, -1)

    def _next_states(self, states: tf.Tensor, tokens: tf.Tensor, grammars: tf.Tensor) -> tf.Tensor:
        """The states after tokens, below 0 where one may not come; any number without one."""
        classes, table, _, count = tf.unstack(tf.cast(grammars, tf.int32), axis=-1)
        of_token = tf.bitwise.bitwise_and(self._at(classes + tokens), 0xFFFF)
        return self._at(table + states * count + of_token)

    def _at(self, places: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.gather(self._numbers, places), tf.int32)


def _size(tables: Tables) -> int:
    """Numbers of 16 bits."""
    arrays = (tables.class_of_token, tables.next_state, tables.drafts)
    return sum(array.nbytes for array in arrays) // 2
