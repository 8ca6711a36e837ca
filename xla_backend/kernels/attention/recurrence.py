"""States of rows that each token changes, as a function that XLA calls.

Knows the layout of such a state, and how tokens change it. A head has a matrix S, `[keys, values]`,
with which a token does

    S = g S + k (b (v - c g S'k))'      and gets      S'q

(gated delta rule: S. Yang et al., arXiv:2412.06464; without c, Mamba-2: arXiv:2405.21060). Tokens
are taken one by one, so a token's result has the same bits in a chunk, alone or beside others. The
state of a row lies in memory of its own, whose address follows those of its blocks
(`advance`); of a padded text it is a value of the graph (`read_all`, `step`).

A call's tokens may be drafts, of which some are refused: of `RECENT` tokens or fewer, only the
first is certain, and the state stays as it was after that one. The others are written down, and the
next call first takes those of them that stand before its own.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from xla_backend.kernels import machine_code
from xla_backend.kernels.handler import Handler
from xla_backend.kernels.machine_code import (
    FLOAT,
    LANES,
    LONG,
    POINTER,
    VECTOR,
    WORD,
    ZERO,
    Builder,
    ForLoop,
    Value,
    long,
)
from xla_backend.kernels.matmul.matmul import NAN_BYTE
from xla_backend.kernels.threads import Job

NAME = "recurrence"
STEP = "recurrence_step"
"""Their names in XLA."""
RECENT = 8
"""The most tokens of a call that may be drafts, with the one before them."""

_ALONE = 2**18
"""Number of multiplications below which waking another thread does not pay."""
_LINE = 4 * LANES
"""Bytes of the values of a key that are computed at once."""

_JOB = Job(
    "lines_at out_at places_at blocks_at groups_at "
    "row_blocks width heads key_heads keys values alternate offset corrects"
)
_STEP = Job(
    "lines_at out_at prompt_at states_at source_at width numbers "
    "heads key_heads keys values alternate corrects"
)


class Heads(NamedTuple):
    """Sizes, and what a token does.

    Attributes:
        total: of heads. key_heads: divides it.
        keys, values: numbers of a key and of a value; multiples of 4 and of 16.
        alternate: whether heads have the heads of keys in turn, instead of neighbours one.
        corrects: c.
    """

    total: int
    key_heads: int
    keys: int
    values: int
    alternate: bool
    corrects: bool

    def key_head(self, head: int) -> int:
        if self.alternate:
            return head % self.key_heads
        return head // (self.total // self.key_heads)

    @property
    def line(self) -> int:
        """Numbers of a token: queries and keys of all heads, values, then g and b."""
        return 2 * self.key_heads * self.keys + self.total * (self.values + 2)

    @property
    def numbers(self) -> int:
        """Numbers of a state that is a value: what the last token read, `[heads, values]`, then the
        matrices, in an order that only those who change it know."""
        return self.total * self.values * (self.keys + 1)

    @property
    def row_bytes(self) -> int:
        """Bytes of a layer in a row's state, a multiple of 64.

        Matrices `[heads, values / 16, keys, 16]` float32, how many tokens each holds, int64, and
        the lines of recent tokens.
        """
        matrix = 4 * self.keys * self.values + 8
        return -(-(self.total * matrix + 4 * RECENT * self.line) // 64) * 64


def build(name: str) -> ir.Module:
    module = ir.Module(name)
    _handler(module, name, _unit(module))
    return module


class _State:
    """Where the parts of a row's state are, of one layer."""

    def __init__(self, builder: Builder, job: Value, row: Value) -> None:
        blocks_at = _JOB.get(builder, job, "blocks_at", POINTER)[0]
        blocks, offset, self._width = _JOB.get(builder, job, "row_blocks offset width")
        heads, keys, values = _JOB.get(builder, job, "heads keys values")
        last = builder.sub(builder.mul(builder.add(row, long(1)), blocks), long(1))
        address = builder.load(builder.at(blocks_at, last, LONG), typ=LONG)
        self._builder, self._matrix = builder, builder.mul(keys, values)
        self._at = builder.at(builder.inttoptr(address, POINTER), offset)
        self._counts = builder.at(self._at, builder.mul(heads, self._matrix), FLOAT)
        self._recent = builder.at(self._counts, heads, LONG)

    def matrix(self, head: Value) -> tuple[Value, Value]:
        """The address of a head's, and its bytes."""
        builder = self._builder
        place = builder.at(self._at, builder.mul(head, self._matrix), FLOAT)
        return place, builder.mul(self._matrix, long(4))

    def count(self, head: Value) -> Value:
        """The address of how many tokens it holds."""
        return self._builder.at(self._counts, head, LONG)

    def recent(self, position: Value) -> Value:
        """The address of a recent token's line."""
        builder = self._builder
        line = builder.mul(builder.urem(position, long(RECENT)), self._width)
        return builder.at(self._recent, line, FLOAT)


def _unit(module: ir.Module) -> ir.Function:
    """`unit(job, number)`: a head of the tokens of a row."""
    take = _take(module, _JOB)
    builder = Builder(module, "unit", [POINTER, LONG])
    job, number = builder.arguments
    lines_at, out_at, places_at, groups_at = _JOB.get(
        builder, job, "lines_at out_at places_at groups_at", POINTER
    )
    width, heads, keys, values = _JOB.get(builder, job, "width heads keys values")
    head = builder.urem(number, heads)
    group = builder.at(groups_at, builder.mul(builder.udiv(number, heads), long(16)))
    first, count = builder.get(group, LONG), builder.get(group, LONG, 8)
    row, position = place_of(builder, places_at, first)

    def out(token: Value) -> Value:
        at = builder.add(builder.mul(builder.add(first, token), heads), head)
        return builder.at(out_at, builder.mul(at, values), FLOAT)

    with builder.if_then(builder.icmp_signed("<", row, long(0))):
        each = ForLoop(builder, long(0), count, 1)
        size = builder.mul(values, long(4))
        builder.intrinsic("memset", POINTER, [out(each.index), NAN_BYTE, size])
        each.close()
        builder.ret_void()

    state = _State(builder, job, row)
    matrix, matrix_bytes = state.matrix(head)
    is_new = builder.icmp_unsigned("==", position, long(0))
    with builder.if_then(is_new):
        zero = ir.Constant(WORD, 0)
        builder.intrinsic("memset", POINTER, [matrix, zero, matrix_bytes])
    held = builder.select(is_new, long(0), builder.get(state.count(head), LONG))
    may_be_drafts = builder.icmp_unsigned("<=", count, long(RECENT))
    certain = builder.select(may_be_drafts, long(1), count)
    nowhere, part_bytes = builder.room(FLOAT, LANES), builder.mul(keys, long(_LINE))
    copy = _JOB.allocate(builder, job, part_bytes)
    columns = ForLoop(builder, long(0), values, LANES)
    part = builder.at(matrix, builder.mul(columns.index, keys), FLOAT)
    with builder.if_then(builder.icmp_unsigned("<", held, position)):
        each = ForLoop(builder, held, position, 1)
        line = state.recent(each.index)
        builder.call(take, [job, line, head, columns.index, part, part, nowhere])
        each.close()
    each = ForLoop(builder, long(0), count, 1, [part])
    is_first_draft = builder.icmp_unsigned("==", each.index, certain)
    with builder.if_then(is_first_draft):
        builder.intrinsic("memcpy", POINTER, [copy, part, part_bytes])
    place = builder.select(is_first_draft, copy, each.values[0])
    line = builder.at(lines_at, builder.mul(builder.add(first, each.index), width), FLOAT)
    to = builder.at(out(each.index), columns.index, FLOAT)
    builder.call(take, [job, line, head, columns.index, place, place, to])
    each.close([place])
    columns.close()
    builder.intrinsic("free", machine_code.VOID, [copy])
    builder.store(builder.add(position, certain), state.count(head))
    builder.ret_void()
    return builder.function


def _take(module: ir.Module, of: Job) -> ir.Function:
    """`take(job, line, head, column, before, part, out)`: a token, of 16 columns of a head's
    matrix, which were at `before`."""
    builder = Builder(module, "take", [POINTER, POINTER, LONG, LONG, POINTER, POINTER, POINTER])
    job, line, head, column, before, part, out = builder.arguments
    heads, key_heads, keys, values, alternate, corrects = of.get(
        builder, job, "heads key_heads keys values alternate corrects"
    )
    all_keys = builder.mul(key_heads, keys)
    key_head = builder.select(
        builder.icmp_unsigned("!=", alternate, long(0)),
        builder.urem(head, key_heads),
        builder.udiv(head, builder.udiv(heads, key_heads)),
    )
    query = builder.at(line, builder.mul(key_head, keys), FLOAT)
    key = builder.at(query, all_keys, FLOAT)
    of_values = builder.at(line, builder.mul(all_keys, long(2)), FLOAT)
    value = builder.at(of_values, builder.add(builder.mul(head, values), column), FLOAT)
    factors = builder.at(of_values, builder.mul(heads, values), FLOAT)
    decay = builder.splat(builder.get(builder.at(factors, head, FLOAT), FLOAT))
    share = builder.get(builder.at(factors, builder.add(heads, head), FLOAT), FLOAT)

    def number(of: Value, at: Value) -> Value:
        return builder.splat(builder.get(builder.at(of, at, FLOAT), FLOAT))

    def in_fours(of: Value, change: bool, added: Value) -> Value:
        """The sum of lines of the matrix, each times a number; changes them before, if asked."""
        each = ForLoop(builder, long(0), keys, 4, [ZERO] * 4)
        sums = []
        for more, so_far in enumerate(each.values):
            at = builder.add(each.index, long(more))
            place = builder.mul(at, long(_LINE))
            numbers = builder.load(builder.at(before, place), typ=VECTOR, align=4)
            if change:
                numbers = builder.fmul(numbers, decay)
                numbers = builder.multiply_add(number(key, at), added, numbers)
                builder.store(numbers, builder.at(part, place), align=4)
            sums.append(builder.multiply_add(number(of, at), numbers, so_far))
        a, b, c, d = each.close(sums)
        return builder.fadd(builder.fadd(a, b), builder.fadd(c, d))

    found = builder.room(VECTOR, 1)
    builder.store(ZERO, found)
    with builder.if_then(builder.icmp_unsigned("!=", corrects, long(0))):
        builder.store(builder.fmul(in_fours(key, False, ZERO), decay), found)
    added = builder.load(value, typ=VECTOR, align=4)
    added = builder.fsub(added, builder.load(found, typ=VECTOR))
    added = builder.fmul(added, builder.splat(share))
    builder.store(in_fours(query, True, added), out, align=4)
    builder.ret_void()
    return builder.function


def _handler(module: ir.Module, name: str, unit: ir.Function) -> None:
    """XLA's handler. Operands: those of `advance`; sizes, and the bytes of a state."""
    call = Handler(module, name)
    lines_at, tokens, width = call.operand(0, 2)
    (places_at,), (layer,), (form,) = map(call.operand, (1, 3, 4))
    blocks_at, _, row_blocks = call.operand(2, 2)
    heads, key_heads, keys, values, alternate, corrects, row_bytes = (
        call.get(form, LONG, 8 * at) for at in range(7)
    )
    first_address = call.get(blocks_at, LONG, call.mul(call.sub(row_blocks, long(1)), long(8)))
    has_none = call.icmp_unsigned("==", first_address, long(0))
    own = call.allocate(call.select(has_none, row_bytes, long(64)))
    own_at = call.room(POINTER, 1)
    call.store(own, own_at)
    blocks_at = call.select(has_none, own_at, blocks_at)
    # Of the tokens of a row: the first one, and how many there are.
    groups_at = call.allocate(call.mul(tokens, long(16)))
    each = ForLoop(call, long(0), tokens, 1, [long(-1), long(-2)])
    number, row_before = each.values
    row, _ = place_of(call, places_at, each.index)
    starts = call.icmp_signed("!=", row, row_before)
    number = call.add(number, call.zext(starts, LONG))
    group = call.at(groups_at, call.mul(number, long(16)))
    count = call.at(group, 8)
    with call.if_then(starts):
        call.store(each.index, group)
        call.store(long(0), count)
    call.store(call.add(call.get(count, LONG), long(1)), count)
    number, _ = each.close([number, row])
    groups = call.add(number, long(1))

    job_values = {"lines_at": lines_at, "out_at": call.result, "places_at": places_at}
    job_values |= {"blocks_at": blocks_at, "groups_at": groups_at, "row_blocks": row_blocks}
    job_values |= {"width": width, "heads": heads, "key_heads": key_heads, "keys": keys}
    job_values |= {"values": values, "alternate": alternate, "corrects": corrects}
    job_values |= {"offset": call.get(layer, LONG)}
    work = call.mul(call.mul(tokens, heads), call.mul(keys, values))
    is_small = call.icmp_unsigned("<", work, long(_ALONE))
    _JOB.share(call, unit, job_values, call.mul(groups, heads), is_small)
    _write_recent(call, job_values, groups)
    with call.if_then(has_none):
        size = call.mul(call.mul(call.mul(heads, keys), values), long(4))
        every = call.mul(call.mul(call.mul(tokens, heads), values), long(4))
        end = call.at(call.result, call.sub(every, size))
        call.intrinsic("memcpy", POINTER, [end, own, size])
    call.close()


def build_step(name: str) -> ir.Module:
    """Operands: those of `step`; sizes, and the numbers of a state."""
    module = ir.Module(name)
    unit = _step_unit(module)
    call = Handler(module, name)
    lines_at, tokens, width = call.operand(0, 2)
    (prompt_at,), (states_at,), (source_at,), (form,) = map(call.operand, (1, 2, 3, 4))
    names = "heads key_heads keys values alternate corrects numbers"
    sizes = {name: call.get(form, LONG, 8 * at) for at, name in enumerate(names.split())}
    job_values = {"lines_at": lines_at, "out_at": call.result, "prompt_at": prompt_at}
    job_values |= {"states_at": states_at, "source_at": source_at, "width": width, **sizes}
    work = call.mul(tokens, sizes["numbers"])
    is_small = call.icmp_unsigned("<", work, long(_ALONE))
    _STEP.share(call, unit, job_values, call.mul(tokens, sizes["heads"]), is_small)
    call.close()
    return module


def _step_unit(module: ir.Module) -> ir.Function:
    """`unit(job, number)`: a head of a text's token."""
    take = _take(module, _STEP)
    builder = Builder(module, "unit", [POINTER, LONG])
    job, number = builder.arguments
    lines_at, out_at, prompt_at, states_at, source_at = _STEP.get(
        builder, job, "lines_at out_at prompt_at states_at source_at", POINTER
    )
    width, numbers, heads, keys, values = _STEP.get(builder, job, "width numbers heads keys values")
    token, head = builder.udiv(number, heads), builder.urem(number, heads)
    source = builder.get(source_at, WORD, builder.mul(token, long(4)))
    source = builder.sext(source, LONG)
    of_prompt = builder.icmp_signed("<", source, long(0))
    source = builder.select(of_prompt, builder.sub(long(-1), source), source)
    begin = builder.select(of_prompt, prompt_at, states_at)
    before = builder.at(begin, builder.mul(source, numbers), FLOAT)
    after = builder.at(out_at, builder.mul(token, numbers), FLOAT)
    line = builder.at(lines_at, builder.mul(token, width), FLOAT)
    read = builder.at(after, builder.mul(head, values), FLOAT)
    # The matrices follow what all heads read.
    at = builder.mul(values, builder.add(heads, builder.mul(head, keys)))
    columns = ForLoop(builder, long(0), values, LANES)
    part = builder.add(at, builder.mul(columns.index, keys))
    places = [builder.at(begin, part, FLOAT) for begin in (before, after)]
    out = builder.at(read, columns.index, FLOAT)
    builder.call(take, [job, line, head, columns.index, *places, out])
    columns.close()
    builder.ret_void()
    return builder.function


def _write_recent(call: Handler, values: dict[str, Value], groups: Value) -> None:
    """Writes down the tokens that may be drafts, when all heads have taken the last ones."""
    job = call.room(LONG, 32)
    for name, value in values.items():
        call.store(value, _JOB.place(call, job, name))
    each = ForLoop(call, long(0), groups, 1)
    group = call.at(values["groups_at"], call.mul(each.index, long(16)))
    first, count = call.get(group, LONG), call.get(group, LONG, 8)
    row, _ = place_of(call, values["places_at"], first)
    is_row = call.icmp_signed(">=", row, long(0))
    has_drafts = call.icmp_unsigned("<", call.sub(count, long(2)), long(RECENT - 1))
    with call.if_then(call.and_(is_row, has_drafts)):
        state = _State(call, job, row)
        drafts = ForLoop(call, call.add(first, long(1)), call.add(first, count), 1)
        _, position = place_of(call, values["places_at"], drafts.index)
        line = call.at(values["lines_at"], call.mul(drafts.index, values["width"]), FLOAT)
        size = call.mul(values["width"], long(4))
        call.intrinsic("memcpy", POINTER, [state.recent(position), line, size])
        drafts.close()
    each.close()


def place_of(builder: Builder, places_at: Value, token: Value) -> tuple[Value, Value]:
    """A token's row and position."""
    place = builder.at(places_at, builder.mul(token, long(8)))
    row, position = (builder.sext(builder.get(place, WORD, at), LONG) for at in (0, 4))
    return row, position
