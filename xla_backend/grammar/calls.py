"""Grammars in compiled loops: two functions that XLA calls, over tables at any addresses.

Knows machine code and the tables' layout (`automaton`). Must not know how tables are made. Which
grammar a row has is an input of a call, as addresses: one compiled function serves every grammar of
every size, and a row without one costs nothing. Axes: R rows, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from llvmlite import ir

from xla_backend.grammar.automaton import Automaton
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.interface.options import MAX_DRAFTS
from xla_backend.matmul import foreign_calls, handler
from xla_backend.matmul.handler import Handler
from xla_backend.matmul.machine_code import FLOAT, HALF, LONG, POINTER, WORD, Loop, Value, long

FIELDS = 4
"""What a row says of its grammar: the addresses of `class_of_token`, `next_state` and `drafts`, and
how many classes there are. All are 0 where it has none."""
FORBIDDEN = -1e32
"""The score of a token that may not come: below every suppressed one's, and finite even divided by
the least temperature."""

_MASK, _ADVANCE, _DRAFTS = "grammar_mask", "grammar_advance", "grammar_drafts"


def prepare() -> None:
    """Begins to make the functions ready; see `handler.prepare`."""
    handler.prepare(_MASK, _mask)
    handler.prepare(_ADVANCE, _advance)
    handler.prepare(_DRAFTS, _drafts)


def fields(automaton: Automaton | StepByStep | None) -> list[int]:
    """A row's description of its grammar; the automaton must live as long as the row."""
    if automaton is None:
        return [0] * FIELDS
    tables = (automaton.class_of_token, automaton.next_state, automaton.drafts)
    return [*(table.ctypes.data for table in tables), automaton.next_state.shape[1]]


def allowed(scores: tf.Tensor, states: tf.Tensor, grammars: tf.Tensor) -> tf.Tensor:
    """Scores in which tokens that may not come are `FORBIDDEN`.

    In a graph that XLA compiles, as `advanced`.

    Args:
        scores: `[R, V]` float32.
        states: `[R]` int32, of the rows' automata.
        grammars: `[R, FIELDS]` int64.
    """
    handler.wait_until_ready()
    size = scores.shape[1]

    def masked() -> tf.Tensor:
        return foreign_calls.call(_MASK, [scores, states, grammars], size)

    return tf.cond(are_given(grammars), masked, lambda: scores)


def are_given(grammars: tf.Tensor) -> tf.Tensor:
    """Whether any row has a grammar: scalar bool."""
    return tf.reduce_any(grammars[:, 0] > 0)


def advanced(states: tf.Tensor, tokens: tf.Tensor, grammars: tf.Tensor) -> tf.Tensor:
    """The states behind tokens `[R]`; a token that may not come changes nothing."""
    handler.wait_until_ready()
    result = foreign_calls.call(_ADVANCE, [states, tokens, grammars], 1)
    return tf.bitcast(result[:, 0], tf.int32)


def drafts(states: tf.Tensor, grammars: tf.Tensor) -> tf.Tensor:
    """The tokens that probably come next, `[R, MAX_DRAFTS]` int32; then -1."""
    handler.wait_until_ready()

    def found() -> tf.Tensor:
        result = foreign_calls.call(_DRAFTS, [states, grammars], MAX_DRAFTS)
        return tf.bitcast(result, tf.int32)

    nothing = tf.fill([states.shape[0], MAX_DRAFTS], -1)
    return tf.cond(are_given(grammars), found, lambda: nothing)


class _Rows:
    """The loop over the rows of a call, with the values of the current row."""

    def __init__(self, call: Handler, states: Value, grammars: Value, rows: Value) -> None:
        self._call = call
        self.loop = Loop(call, long(0), rows, 1)
        grammar = call.at(grammars, call.mul(self.loop.index, long(FIELDS)), LONG)
        self.classes, table, self.drafts, count = (
            call.get(grammar, LONG, 8 * at) for at in range(FIELDS)
        )
        self.state = call.load(call.at(states, self.loop.index, WORD), typ=WORD)
        line = call.mul(call.mul(call.sext(self.state, LONG), count), long(2))
        self._line = call.add(table, line)

    def has_grammar(self) -> Value:
        """Whether the row has one."""
        return self._call.icmp_unsigned("!=", self.classes, long(0))

    def behind(self, token: Value) -> Value:
        """The state behind a token, below 0 where it may not come."""
        call = self._call
        classes = call.inttoptr(self.classes, POINTER)
        of_token = call.zext(call.load(call.at(classes, token, HALF), typ=HALF), LONG)
        line = call.inttoptr(self._line, POINTER)
        return call.load(call.at(line, of_token, HALF), typ=HALF)


def _mask(name: str) -> ir.Module:
    """Operands: scores, states, grammars."""
    module = ir.Module(name)
    call = Handler(module, name)
    scores, rows, size = call.operand(0, 2)
    (states,), (grammars,) = map(call.operand, (1, 2))
    row = _Rows(call, states, grammars, rows)
    begin = call.mul(row.loop.index, size)
    source, target = (call.at(place, begin, FLOAT) for place in (scores, call.result))
    with call.if_else(row.has_grammar()) as (masked, copied):
        with masked:
            each = Loop(call, long(0), size, 1)
            is_allowed = call.icmp_signed(">=", row.behind(each.index), ir.Constant(HALF, 0))
            score = call.load(call.at(source, each.index, FLOAT), typ=FLOAT)
            score = call.select(is_allowed, score, ir.Constant(FLOAT, float(np.float32(FORBIDDEN))))
            call.store(score, call.at(target, each.index, FLOAT))
            each.close()
        with copied:
            call.intrinsic("memcpy", POINTER, [target, source, call.mul(size, long(4))])
    row.loop.close()
    call.close()
    return module


def _advance(name: str) -> ir.Module:
    """Operands: states, tokens, grammars."""
    module = ir.Module(name)
    call = Handler(module, name)
    states, rows = call.operand(0, 1)
    (tokens,), (grammars,) = map(call.operand, (1, 2))
    row = _Rows(call, states, grammars, rows)
    at = call.at(call.result, row.loop.index, WORD)
    call.store(row.state, at)
    with call.if_then(row.has_grammar()):
        token = call.zext(call.load(call.at(tokens, row.loop.index, WORD), typ=WORD), LONG)
        after = call.sext(row.behind(token), WORD)
        is_allowed = call.icmp_signed(">=", after, ir.Constant(WORD, 0))
        call.store(call.select(is_allowed, after, row.state), at)
    row.loop.close()
    call.close()
    return module


def _drafts(name: str) -> ir.Module:
    """Operands: states, grammars. All rows have a grammar."""
    module = ir.Module(name)
    call = Handler(module, name)
    states, rows = call.operand(0, 1)
    (grammars,) = call.operand(1)
    row = _Rows(call, states, grammars, rows)
    line = long(4 * MAX_DRAFTS)
    source = call.add(row.drafts, call.mul(call.sext(row.state, LONG), line))
    target = call.at(call.result, call.mul(row.loop.index, long(MAX_DRAFTS)), WORD)
    call.intrinsic("memcpy", POINTER, [target, call.inttoptr(source, POINTER), line])
    row.loop.close()
    call.close()
    return module
