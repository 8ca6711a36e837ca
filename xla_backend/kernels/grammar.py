"""Kernels of grammars: masks, next states and drafts, from tables at any addresses.

Knows machine code and the tables' layout (`Tables`). Axes: S states, V vocabulary, C classes of
tokens.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from llvmlite import ir

from xla_backend.kernels.handler import Handler
from xla_backend.kernels.machine_code import FLOAT, HALF, LONG, POINTER, WORD, ForLoop, Value, long

FIELDS = 4
"""What a row says of its grammar: the addresses of `class_of_token`, `next_state` and `drafts`, and
how many classes there are. All are 0 where it has none."""
FORBIDDEN = -1e32
"""The score of a token that may not come: below every suppressed one's, and finite even divided by
the least temperature."""

MASK, ADVANCE, DRAFTS = "grammar_mask", "grammar_advance", "grammar_drafts"


class Tables(Protocol):
    """A grammar as tables, C-contiguous.

    Attributes:
        class_of_token: `[V]` uint16. next_state: `[S, C]` int16, below 0 where a token may not
        come. drafts: `[S, N]` int32, the tokens that probably come next; then -1.
    """

    @property
    def class_of_token(self) -> np.ndarray: ...
    @property
    def next_state(self) -> np.ndarray: ...
    @property
    def drafts(self) -> np.ndarray: ...


def fields(tables: Tables | None) -> list[int]:
    """A row's description of its grammar; the tables must live as long as the row."""
    if tables is None:
        return [0] * FIELDS
    arrays = (tables.class_of_token, tables.next_state, tables.drafts)
    return [*(array.ctypes.data for array in arrays), tables.next_state.shape[1]]


class _Rows:
    """The loop over the rows of a call, with the values of the current row."""

    def __init__(self, call: Handler, states: Value, grammars: Value, rows: Value) -> None:
        self._call = call
        self.loop = ForLoop(call, long(0), rows, 1)
        grammar = call.at(grammars, call.mul(self.loop.index, long(FIELDS)), LONG)
        self.classes, table, self.drafts, count = (
            call.get(grammar, LONG, 8 * at) for at in range(FIELDS)
        )
        self.state = call.load(call.at(states, self.loop.index, WORD), typ=WORD)
        line = call.mul(call.mul(call.sext(self.state, LONG), count), long(2))
        self._line = call.add(table, line)

    def has_grammar(self) -> Value:
        return self._call.icmp_unsigned("!=", self.classes, long(0))

    def next_state(self, token: Value) -> Value:
        """The state after a token, below 0 where it may not come."""
        call = self._call
        classes = call.inttoptr(self.classes, POINTER)
        of_token = call.zext(call.load(call.at(classes, token, HALF), typ=HALF), LONG)
        line = call.inttoptr(self._line, POINTER)
        return call.load(call.at(line, of_token, HALF), typ=HALF)


def build_mask(name: str) -> ir.Module:
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
            each = ForLoop(call, long(0), size, 1)
            is_allowed = call.icmp_signed(">=", row.next_state(each.index), ir.Constant(HALF, 0))
            score = call.load(call.at(source, each.index, FLOAT), typ=FLOAT)
            score = call.select(is_allowed, score, ir.Constant(FLOAT, float(np.float32(FORBIDDEN))))
            call.store(score, call.at(target, each.index, FLOAT))
            each.close()
        with copied:
            call.intrinsic("memcpy", POINTER, [target, source, call.mul(size, long(4))])
    row.loop.close()
    call.close()
    return module


def build_advance(name: str) -> ir.Module:
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
        after = call.sext(row.next_state(token), WORD)
        is_allowed = call.icmp_signed(">=", after, ir.Constant(WORD, 0))
        call.store(call.select(is_allowed, after, row.state), at)
    row.loop.close()
    call.close()
    return module


def build_drafts(name: str) -> ir.Module:
    """Operands: states, grammars. All rows have a grammar."""
    module = ir.Module(name)
    call = Handler(module, name)
    states, rows = call.operand(0, 1)
    (grammars,) = call.operand(1)
    row = _Rows(call, states, grammars, rows)
    line = call.mul(call.result_columns, long(4))
    source = call.add(row.drafts, call.mul(call.sext(row.state, LONG), line))
    target = call.at(call.result, call.mul(row.loop.index, line))
    call.intrinsic("memcpy", POINTER, [target, call.inttoptr(source, POINTER), line])
    row.loop.close()
    call.close()
    return module
