"""Grammars in compiled loops, as operations of a graph.

Knows the kernels' operands. Which grammar a row has is an input, as addresses: one compiled
function serves every grammar of every size, and a row without one costs nothing. Axes: R rows, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from xla_backend.kernels import grammar
from xla_backend.kernels.grammar import Tables
from xla_backend.kernels.graph import foreign_call


class GrammarAddresses:
    """The grammars that rows follow, where their tables are.

    Attributes:
        variables: what compiled functions read, by name: nothing.
    """

    def __init__(self) -> None:
        self.variables: dict[str, tf.Variable] = {}

    def fields(self, rows: Sequence[Tables | None]) -> list[list[int]]:
        return [*map(grammar.fields, rows)]

    def allowed(self, scores: tf.Tensor, states: tf.Tensor, grammars: tf.Tensor) -> tf.Tensor:
        """Scores in which tokens that may not come are `grammar.FORBIDDEN`.

        In a graph that XLA compiles, as `advanced`.

        Args:
            scores: `[R, V]` float32.
            states: `[R]` int32, of the rows' automata.
            grammars: `[R, grammar.FIELDS]` int64.
        """
        operands = [scores, states, grammars]

        def masked() -> tf.Tensor:
            return foreign_call.call(grammar.MASK, operands, scores.shape[1])

        return tf.cond(are_given(grammars), masked, lambda: scores)

    def advanced(self, states: tf.Tensor, tokens: tf.Tensor, grammars: tf.Tensor) -> tf.Tensor:
        """The states after tokens `[R]`; a token that may not come changes nothing."""
        result = foreign_call.call(grammar.ADVANCE, [states, tokens, grammars], 1)
        return tf.bitcast(result[:, 0], tf.int32)

    def drafts(self, states: tf.Tensor, grammars: tf.Tensor, count: int) -> tf.Tensor:
        """The tokens that probably come next, `[R, count]` int32; then -1; as many as in tables."""

        def found() -> tf.Tensor:
            result = foreign_call.call(grammar.DRAFTS, [states, grammars], count)
            return tf.bitcast(result, tf.int32)

        nothing = tf.fill([states.shape[0], count], -1)
        return tf.cond(are_given(grammars), found, lambda: nothing)


def are_given(grammars: tf.Tensor) -> tf.Tensor:
    """Whether any row has a grammar: scalar bool."""
    return tf.reduce_any(grammars[:, 0] > 0)
