"""Attention of tokens over our own KV memory, as a function that XLA calls.

Knows the layout of keys and values in blocks of that memory. The rows, their lengths and the
addresses of their blocks are inputs of a call, so one compiled function serves every length.

A row's positions are divided into splits of a fixed size. For each split, scores and weighted sums
are products (`micro_kernel`), and softmax uses the split's own maximum; then splits are added up in
order, each scaled to the overall maximum (as in T. Dao et al., "Flash-Decoding", 2023). So a
token's result depends only on its row, bit by bit: not on tokens computed beside it, nor on
threads. A unit of work is a head of keys, a split, and neighbouring tokens of a row; the thread
that does the last split of these adds up.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from xla_backend.kernels import machine_code
from xla_backend.kernels.attention import exponential
from xla_backend.kernels.attention.exponential import constant
from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.kernels.attention.recurrence import place_of
from xla_backend.kernels.handler import Handler
from xla_backend.kernels.machine_code import (
    BIT,
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
from xla_backend.kernels.matmul import micro_kernel
from xla_backend.kernels.matmul.matmul import NAN_BYTE
from xla_backend.kernels.matmul.packing import COLUMNS
from xla_backend.kernels.matmul.panel import UNROLLED
from xla_backend.kernels.threads import Job

NAME = "attention"
"""Its name in XLA."""

_SPLIT = 512
"""Positions that are computed at once."""
_ROWS = 96
"""Queries of a key head that one thread takes at a time."""
_ALONE = 2**18
"""Number of multiplications below which waking another thread does not pay."""
_LINE = 4 * COLUMNS
"""Bytes of a line of a tile."""
_SCORES = _SPLIT + LANES
"""Distance between the scores of two queries: not a power of two, because of the cache."""
_LOWEST = -3e38
"""Less than every score; finite, so that a query that sees nothing is not NaN."""

_FOUR = ir.VectorType(FLOAT, 4)
_WORDS = ir.VectorType(WORD, LANES)

_JOB = Job(
    "q_at k_at v_at out_at places_at blocks_at groups_at sums_at sinks_at "
    "tokens row_blocks heads kv_heads size offset window cap groups writes"
)
# A group of neighbouring tokens of a row: the last one, their count, the splits of all groups
# before it, and the same times tokens. Then, for each head of keys, the number of finished splits.
_GROUP = {"last": 0, "count": 8, "splits_before": 16, "sums_before": 24, "done": 32}


def layer_bytes(kv_heads: int, head_size: int) -> int:
    """Bytes of a layer in a block, a multiple of 64.

    For each head of keys and values, of D numbers: keys `[BLOCK / 64, D, 64]`, then values
    `[ceil(D / 64), BLOCK, 64]`, float32.
    """
    return 4 * kv_heads * BLOCK * (head_size + COLUMNS * -(-head_size // COLUMNS))


def build(name: str) -> ir.Module:
    module = ir.Module(name)
    _handler(module, name, _Attention(module).unit())
    return module


class _Attention:
    """The functions for the units of work."""

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._sums = {
            rows: micro_kernel.micro_kernel(module, rows, "float32", prefetches=True)
            for rows in range(1, micro_kernel.ROWS + 1)
        }

    def unit(self) -> ir.Function:
        """`unit(job, number)`: the first units write keys and values, the others attend."""
        write, attend = self._write(), self._attend()
        builder = Builder(self._module, "unit", [POINTER, LONG])
        job, number = builder.arguments
        writes, kv_heads, groups = _JOB.get(builder, job, "writes kv_heads groups")
        with builder.if_then(builder.icmp_unsigned("<", number, writes)):
            group = _group(builder, job, builder.udiv(number, kv_heads))
            builder.call(write, [job, group, builder.urem(number, kv_heads)])
            builder.ret_void()
        _JOB.wait(builder, job, writes)
        number = builder.sub(number, writes)
        split, head = builder.udiv(number, kv_heads), builder.urem(number, kv_heads)
        # The last group with no more splits before it.
        loop = ForLoop(builder, long(0), groups, 1, [long(-1)])
        before = _of_group(builder, _group(builder, job, loop.index), "splits_before")
        is_reached = builder.icmp_unsigned("<=", before, split)
        (found,) = loop.close([builder.add(loop.values[0], builder.zext(is_reached, LONG))])
        group = _group(builder, job, found)
        split = builder.sub(split, _of_group(builder, group, "splits_before"))
        builder.call(attend, [job, group, head, split])
        builder.ret_void()
        return builder.function

    def _write(self) -> ir.Function:
        """`write(job, group, head)`: the group's keys and values of a head."""
        builder = Builder(self._module, "write", [POINTER, POINTER, LONG])
        job, group, head = builder.arguments
        k_at, v_at, places_at = _JOB.get(builder, job, "k_at v_at places_at", POINTER)
        tokens, kv_heads, size = _JOB.get(builder, job, "tokens kv_heads size")
        last, count = (_of_group(builder, group, name) for name in ("last", "count"))
        row, _ = _place(builder, places_at, last)
        with builder.if_then(builder.icmp_signed("<", row, long(0))):
            builder.ret_void()
        first, end = builder.sub(builder.add(last, long(1)), count), builder.add(last, long(1))
        each = ForLoop(builder, first, end, 1)
        _, position = _place(builder, places_at, each.index)
        keys, values = self._tiles(builder, job, row, position, head)
        line = builder.urem(position, long(COLUMNS))
        at = builder.mul(builder.add(builder.mul(each.index, kv_heads), head), size)
        column = ForLoop(builder, long(0), size, 4)
        at = builder.add(at, column.index)
        key, value = (
            builder.load(builder.at(place, at, FLOAT), typ=_FOUR, align=4) for place in (k_at, v_at)
        )
        for more in range(4):
            place = builder.mul(builder.add(column.index, long(more)), long(_LINE))
            place = builder.at(builder.at(keys, place), line, FLOAT)
            builder.store(builder.extract_element(key, ir.Constant(WORD, more)), place)
        builder.store(value, _value_at(builder, values, line, column.index), align=4)
        column.close()
        each.close()
        # Lines are summed in fours: those after the row's last must be finite, because they are
        # multiplied by zero.
        following = builder.least(end, builder.sub(tokens, long(1)))
        goes_on = builder.and_(
            builder.icmp_unsigned("<", end, tokens),
            builder.icmp_signed("==", _place(builder, places_at, following)[0], row),
        )
        with builder.if_then(goes_on):
            builder.ret_void()
        fours = builder.or_(line, long(UNROLLED - 1))
        with builder.if_then(builder.icmp_unsigned("<", line, fours)):
            rest = ForLoop(builder, builder.add(line, long(1)), builder.add(fours, long(1)), 1)
            column = ForLoop(builder, long(0), size, 4)
            place = _value_at(builder, values, rest.index, column.index)
            builder.store(ir.Constant(_FOUR, [0.0] * 4), place, align=4)
            column.close()
            rest.close()
        builder.ret_void()
        return builder.function

    def _attend(self) -> ir.Function:
        """`attend(job, group, head, split)`: one of the splits that the group sees."""
        soften, finish = self._soften(), self._finish()
        builder = Builder(self._module, "attend", [POINTER, POINTER, LONG, LONG])
        job, group, head, split = builder.arguments
        heads, kv_heads, size, window, cap = _JOB.get(
            builder, job, "heads kv_heads size window cap"
        )
        q_at, out_at, places_at = _JOB.get(builder, job, "q_at out_at places_at", POINTER)
        last, count = (_of_group(builder, group, name) for name in ("last", "count"))
        row, position = _place(builder, places_at, last)
        shared = builder.udiv(heads, kv_heads)
        queries = builder.mul(count, shared)
        first = builder.sub(builder.add(last, long(1)), count)
        # A token's queries that share the head are neighbours.
        own = builder.mul(builder.mul(head, shared), size)
        width, own_width = builder.mul(heads, size), builder.mul(shared, size)
        begin, first_split, splits = _span(builder, position, count, window)
        with builder.if_then(builder.icmp_signed("<", row, long(0))):
            each = ForLoop(builder, first, builder.add(last, long(1)), 1)
            at = builder.at(out_at, builder.add(builder.mul(each.index, width), own), FLOAT)
            builder.intrinsic("memset", POINTER, [at, NAN_BYTE, builder.mul(own_width, long(4))])
            each.close()
            builder.ret_void()

        split_at = builder.mul(builder.add(first_split, split), long(_SPLIT))
        begin = builder.greatest(split_at, begin)
        end = builder.least(builder.add(split_at, long(_SPLIT)), builder.add(position, long(1)))
        room = builder.mul(queries, builder.add(size, long(_SCORES)))
        scores = _JOB.allocate(builder, job, builder.mul(room, long(4)))
        x_at = builder.at(scores, builder.mul(queries, long(_SCORES)), FLOAT)
        each = ForLoop(builder, long(0), count, 1)
        token = builder.add(each.index, first)
        source = builder.at(q_at, builder.add(builder.mul(token, width), own), FLOAT)
        to = builder.at(x_at, builder.mul(each.index, own_width), FLOAT)
        builder.intrinsic("memcpy", POINTER, [to, source, builder.mul(own_width, long(4))])
        each.close()

        sums_width = _sums_width(builder, size)
        all_sums = self._sums_at(builder, job, group, head)
        sums_at = builder.at(all_sums, builder.mul(builder.mul(split, queries), sums_width), FLOAT)

        def for_queries(add: Callable[[Value], list[Value]]) -> None:
            """Adds the code of sums for all queries, some at a time."""
            some = ForLoop(builder, long(0), queries, micro_kernel.ROWS)
            number = builder.least(builder.sub(queries, some.index), long(micro_kernel.ROWS))
            micro_kernel.choose(builder, self._sums, number, add(some.index))
            some.close()

        tiles = ForLoop(builder, begin, end, COLUMNS)
        keys, values = self._tiles(builder, job, row, tiles.index, head)
        following = builder.add(tiles.index, long(COLUMNS))
        is_last = builder.icmp_unsigned(">=", following, end)
        following = builder.select(is_last, begin, following)
        ahead = builder.select(is_last, *reversed(self._tiles(builder, job, row, following, head)))
        column = builder.sub(tiles.index, split_at)

        def of_keys(query: Value) -> list[Value]:
            x = builder.at(x_at, builder.mul(query, size), FLOAT)
            at = builder.add(builder.mul(query, long(_SCORES)), column)
            out = builder.at(scores, at, FLOAT)
            starts = ir.Constant(BIT, 1)
            return [x, size, keys, size, out, long(_SCORES), starts, ahead]

        for_queries(of_keys)
        tiles.close()

        each = ForLoop(builder, long(0), queries, 1)
        token = builder.udiv(each.index, shared)
        highest = builder.sub(builder.sub(position, builder.sub(count, long(1))), split_at)
        highest = builder.add(highest, token)
        no_window = builder.icmp_unsigned("==", window, long(0))
        lowest = builder.select(no_window, long(-1), builder.sub(highest, window))
        at = builder.at(scores, builder.mul(each.index, long(_SCORES)), FLOAT)
        limits = [builder.trunc(x, WORD) for x in (lowest, highest)]
        of_query = builder.at(sums_at, builder.mul(each.index, sums_width), FLOAT)
        of_query = builder.at(of_query, builder.sub(sums_width, long(LANES)), FLOAT)
        seen = [builder.sub(x, split_at) for x in (begin, end)]
        builder.call(soften, [at, *seen, *limits, cap, of_query])
        each.close()

        tiles = ForLoop(builder, begin, end, COLUMNS)
        _, values = self._tiles(builder, job, row, tiles.index, head)
        following = builder.add(tiles.index, long(COLUMNS))
        is_last = builder.icmp_unsigned(">=", following, end)
        # After the last one, the next unit's: the next head's keys.
        following = builder.select(is_last, begin, following)
        next_head = builder.add(head, builder.zext(is_last, LONG))
        ahead = builder.select(is_last, *self._tiles(builder, job, row, following, next_head))
        column = builder.sub(tiles.index, split_at)
        starts = builder.icmp_unsigned("==", tiles.index, begin)
        depth = builder.least(builder.sub(end, tiles.index), long(COLUMNS))
        columns = ForLoop(builder, long(0), size, COLUMNS)
        of_columns = builder.mul(columns.index, long(4 * BLOCK))

        def of_values(query: Value) -> list[Value]:
            x = builder.add(builder.mul(query, long(_SCORES)), column)
            x = builder.at(scores, x, FLOAT)
            out = builder.add(builder.mul(query, sums_width), columns.index)
            out = builder.at(sums_at, out, FLOAT)
            tile, later = builder.at(values, of_columns), builder.at(ahead, of_columns)
            return [x, long(_SCORES), tile, depth, out, sums_width, starts, later]

        for_queries(of_values)
        columns.close()
        tiles.close()
        builder.intrinsic("free", machine_code.VOID, [scores])
        done = builder.at(group, builder.add(long(_GROUP["done"]), builder.mul(head, long(8))))
        before = builder.atomic_rmw("add", done, long(1), "acq_rel")
        is_last = builder.icmp_unsigned("==", builder.add(before, long(1)), splits)
        with builder.if_then(is_last):
            out = builder.at(out_at, builder.add(builder.mul(first, width), own), FLOAT)
            (sinks_at,) = _JOB.get(builder, job, "sinks_at", POINTER)
            sinks_at = builder.at(sinks_at, builder.mul(head, shared), FLOAT)
            builder.call(finish, [all_sums, splits, queries, shared, size, out, width, sinks_at])
        builder.ret_void()
        return builder.function

    def _soften(self) -> ir.Function:
        """`soften(scores, begin, end, lowest, highest, cap, found)`: scores become weights.

        For a query in a split. It sees columns above `lowest`, up to `highest`. Their highest
        score, to which weights are relative, and the sum of weights are written to `found`.
        """
        builder = Builder(self._module, "soften", [POINTER, LONG, LONG, WORD, WORD, LONG, POINTER])
        scores, begin, end, lowest, highest, cap, found = builder.arguments
        columns = ir.Constant(_WORDS, list(range(LANES)))
        lowest, highest = builder.splat(lowest), builder.splat(highest)
        with builder.if_then(builder.icmp_unsigned("!=", cap, long(0))):
            factor = builder.splat(builder.bitcast(builder.trunc(cap, WORD), FLOAT))
            each = ForLoop(builder, begin, end, LANES)
            place = builder.at(scores, each.index, FLOAT)
            x = builder.fdiv(builder.load(place, typ=VECTOR, align=4), factor)
            capped = builder.fmul(factor, exponential.hyperbolic_tangent(builder, x))
            builder.store(capped, place, align=4)
            each.close()

        def for_vectors(
            initial: Value, change: Callable[[Value, Value, Value], tuple[Value, Value]]
        ) -> list[Value]:
            """Calls `change(column, score, value)`, which returns the new score and value.

            In tiles, with a value per vector, so that none waits for another.
            """
            vectors = COLUMNS // LANES
            each = ForLoop(builder, begin, end, COLUMNS, [initial] * vectors)
            values = []
            for at, value in enumerate(each.values):
                column = builder.add(each.index, long(LANES * at))
                place = builder.at(scores, column, FLOAT)
                score, value = change(column, builder.load(place, typ=VECTOR, align=4), value)
                builder.store(score, place, align=4)
                values.append(value)
            return each.close(values)

        def greater(a: Value, b: Value) -> Value:
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        def mask(column: Value, score: Value, value: Value) -> tuple[Value, Value]:
            at = builder.add(builder.splat(builder.trunc(column, WORD)), columns)
            is_seen = builder.and_(
                builder.icmp_signed(">", at, lowest), builder.icmp_signed("<=", at, highest)
            )
            score = builder.select(is_seen, score, constant(float("-inf")))
            return score, greater(score, value)

        maximum = _over_lanes(builder, greater, for_vectors(constant(_LOWEST), mask))

        def weigh(column: Value, score: Value, value: Value) -> tuple[Value, Value]:
            weight = exponential.exponential(builder, builder.fsub(score, maximum))
            return weight, builder.fadd(value, weight)

        total = _over_lanes(builder, builder.fadd, for_vectors(ZERO, weigh))
        for at, value in enumerate((maximum, total)):
            first = builder.extract_element(value, ir.Constant(WORD, 0))
            builder.store(first, builder.at(found, at, FLOAT))
        builder.ret_void()
        return builder.function

    def _finish(self) -> ir.Function:
        """`finish(sums, splits, queries, shared, size, out, out_width, sinks)`: adds up splits."""
        kinds = [POINTER, LONG, LONG, LONG, LONG, POINTER, LONG, POINTER]
        builder = Builder(self._module, "finish", kinds)
        sums_at, splits, queries, shared, size, out, out_width, sinks_at = builder.arguments
        width = _sums_width(builder, size)
        each = ForLoop(builder, long(0), queries, 1)

        def at(split: Value) -> Value:
            query = builder.add(builder.mul(split, queries), each.index)
            return builder.at(sums_at, builder.mul(query, width), FLOAT)

        def found(split: Value, more: int = 0) -> Value:
            return builder.at(at(split), builder.sub(width, long(LANES - more)), FLOAT)

        token, own = builder.udiv(each.index, shared), builder.urem(each.index, shared)
        sink = builder.get(builder.at(sinks_at, own, FLOAT), FLOAT)
        loop = ForLoop(builder, long(0), splits, 1, [sink])
        maximum = builder.get(found(loop.index), FLOAT)
        is_greater = builder.fcmp_ordered(">", maximum, loop.values[0])
        (maximum,) = loop.close([builder.select(is_greater, maximum, loop.values[0])])
        of_sink = exponential.exponential(builder, builder.splat(builder.fsub(sink, maximum)))
        loop = ForLoop(builder, long(0), splits, 1, [of_sink])
        difference = builder.fsub(builder.get(found(loop.index), FLOAT), maximum)
        factor = exponential.exponential(builder, builder.splat(difference))
        first = builder.extract_element(factor, ir.Constant(WORD, 0))
        builder.store(first, found(loop.index))
        total = builder.splat(builder.get(found(loop.index, 1), FLOAT))
        (total,) = loop.close([builder.multiply_add(total, factor, loop.values[0])])
        total = builder.extract_element(total, ir.Constant(WORD, 0))
        to = builder.add(builder.mul(token, out_width), builder.mul(own, size))
        to = builder.at(out, to, FLOAT)
        columns = ForLoop(builder, long(0), size, 4)
        loop = ForLoop(builder, long(0), splits, 1, [ir.Constant(_FOUR, [0.0] * 4)])
        part = builder.load(builder.at(at(loop.index), columns.index, FLOAT), typ=_FOUR, align=4)
        factor = _splat_four(builder, builder.get(found(loop.index), FLOAT))
        product = builder.intrinsic("llvm.fma.v4f32", _FOUR, [part, factor, loop.values[0]])
        (result,) = loop.close([product])
        result = builder.fdiv(result, _splat_four(builder, total))
        builder.store(result, builder.at(to, columns.index, FLOAT), align=4)
        columns.close()
        each.close()
        builder.ret_void()
        return builder.function

    def _tiles(
        self, builder: Builder, job: Value, row: Value, position: Value, head: Value
    ) -> tuple[Value, Value]:
        """The keys of a position's tile, and its values from the tile's first position on."""
        (blocks_at,) = _JOB.get(builder, job, "blocks_at", POINTER)
        row_blocks, size, offset = _JOB.get(builder, job, "row_blocks size offset")
        block = builder.add(builder.mul(row, row_blocks), builder.udiv(position, long(BLOCK)))
        address = builder.load(builder.at(blocks_at, block, LONG), typ=LONG)
        keys = builder.mul(size, long(4 * BLOCK))
        of_head = builder.add(keys, builder.mul(_padded(builder, size), long(4 * BLOCK)))
        begin = builder.add(offset, builder.mul(head, of_head))
        keys_at = builder.at(builder.inttoptr(address, POINTER), begin)
        values_at = builder.at(keys_at, keys)
        tile = builder.udiv(builder.urem(position, long(BLOCK)), long(COLUMNS))
        keys_at = builder.at(keys_at, builder.mul(tile, builder.mul(size, long(_LINE))))
        return keys_at, builder.at(values_at, builder.mul(tile, long(COLUMNS * _LINE)))

    def _sums_at(self, builder: Builder, job: Value, group: Value, head: Value) -> Value:
        """The address of the sums of a group and a head of keys: `[splits, queries, width]`."""
        sums_at, places_at = _JOB.get(builder, job, "sums_at places_at", POINTER)
        heads, kv_heads, size, window = _JOB.get(builder, job, "heads kv_heads size window")
        last, count, before = (
            _of_group(builder, group, name) for name in ("last", "count", "sums_before")
        )
        _, position = _place(builder, places_at, last)
        _, _, splits = _span(builder, position, count, window)
        of_head = builder.mul(head, builder.mul(count, splits))
        of_token = builder.mul(builder.udiv(heads, kv_heads), _sums_width(builder, size))
        at = builder.mul(builder.add(builder.mul(before, kv_heads), of_head), of_token)
        return builder.at(sums_at, at, FLOAT)


def _handler(module: ir.Module, name: str, unit: ir.Function) -> None:
    """XLA's handler. Operands: those of `attend`; heads, heads of keys, cap as bits; sinks."""
    call = Handler(module, name)
    q_at, tokens, width = call.operand(0, 2)
    (k_at,), (v_at,), (places_at,), (layer,) = map(call.operand, (1, 2, 3, 5))
    (form,), (sinks_at,) = map(call.operand, (6, 7))
    blocks_at, _, row_blocks = call.operand(4, 2)
    offset, window = (call.get(layer, LONG, 8 * at) for at in (0, 1))
    heads, kv_heads, cap = (call.get(form, LONG, 8 * at) for at in (0, 1, 2))
    size = call.udiv(width, heads)
    most = call.greatest(long(1), call.udiv(long(_ROWS), call.udiv(heads, kv_heads)))
    group_size = _group_size(call, kv_heads)
    groups_size = call.mul(tokens, group_size)
    groups_at = call.allocate(groups_size)
    call.intrinsic("memset", POINTER, [groups_at, ir.Constant(WORD, 0), groups_size])

    # Each token starts a group or continues the last one.
    each = ForLoop(call, long(0), tokens, 1, [long(-1), long(-2), *[long(0)] * 5])
    number, row_before, count, splits, splits_before, sums_before, work = each.values
    row, position = _place(call, places_at, each.index)
    starts = call.or_(
        call.icmp_signed("!=", row, row_before), call.icmp_unsigned("==", count, most)
    )
    number = call.add(number, call.zext(starts, LONG))
    splits_before = call.add(splits_before, call.select(starts, splits, long(0)))
    sums_before = call.add(sums_before, call.select(starts, call.mul(splits, count), long(0)))
    count = call.add(call.select(starts, long(0), count), long(1))
    _, _, splits = _span(call, position, count, window)
    group = call.at(groups_at, call.mul(number, group_size))
    for field, value in (
        ("last", each.index),
        ("count", count),
        ("splits_before", splits_before),
        ("sums_before", sums_before),
    ):
        call.store(value, call.at(group, _GROUP[field]))
    work = call.add(work, call.add(position, long(1)))
    number, _, count, splits, splits_before, sums_before, work = each.close(
        [number, row, count, splits, splits_before, sums_before, work]
    )
    groups = call.add(number, long(1))
    writes = call.mul(groups, kv_heads)
    units = call.add(writes, call.mul(call.add(splits_before, splits), kv_heads))
    room = call.mul(call.add(sums_before, call.mul(splits, count)), heads)
    room = call.mul(room, call.mul(_sums_width(call, size), long(4)))
    sums_at = call.allocate(room)
    is_small = call.icmp_unsigned("<", call.mul(work, call.mul(width, long(2))), long(_ALONE))
    values = {"q_at": q_at, "k_at": k_at, "v_at": v_at, "out_at": call.result}
    values |= {"places_at": places_at, "blocks_at": blocks_at, "groups_at": groups_at}
    values |= {
        "sinks_at": sinks_at,
        "sums_at": sums_at,
        "tokens": tokens,
        "row_blocks": row_blocks,
        "heads": heads,
    }
    values |= {"kv_heads": kv_heads, "size": size, "offset": offset, "window": window}
    values |= {"cap": cap, "groups": groups, "writes": writes}
    _JOB.share(call, unit, values, units, is_small)
    call.close()


def _group_size(builder: Builder, kv_heads: Value) -> Value:
    return builder.add(long(_GROUP["done"]), builder.mul(kv_heads, long(8)))


def _group(builder: Builder, job: Value, number: Value) -> Value:
    (groups_at,) = _JOB.get(builder, job, "groups_at", POINTER)
    (kv_heads,) = _JOB.get(builder, job, "kv_heads")
    return builder.at(groups_at, builder.mul(number, _group_size(builder, kv_heads)))


def _of_group(builder: Builder, group: Value, name: str) -> Value:
    return builder.get(group, LONG, _GROUP[name])


def _place(builder: Builder, places_at: Value, token: Value) -> tuple[Value, Value]:
    """A token's row (negative without a token) and its position (then 0)."""
    row, position = place_of(builder, places_at, token)
    is_none = builder.icmp_signed("<", row, long(0))
    return row, builder.select(is_none, long(0), position)


def _span(
    builder: Builder, position: Value, count: Value, window: Value
) -> tuple[Value, Value, Value]:
    """The tiles that `count` tokens see, the last of them at `position`.

    The begin of the first tile, the first split, and the number of splits.
    """
    first = builder.sub(builder.add(position, long(1)), builder.add(count, window))
    begin = builder.greatest(builder.add(first, long(1)), long(0))
    begin = builder.select(builder.icmp_unsigned("==", window, long(0)), long(0), begin)
    first_split = builder.udiv(begin, long(_SPLIT))
    splits = builder.sub(builder.udiv(position, long(_SPLIT)), first_split)
    return builder.and_(begin, long(-COLUMNS)), first_split, builder.add(splits, long(1))


def _padded(builder: Builder, size: Value) -> Value:
    """Numbers of a head in whole tiles."""
    return builder.and_(builder.add(size, long(COLUMNS - 1)), long(-COLUMNS))


def _sums_width(builder: Builder, size: Value) -> Value:
    """Numbers of a query's sums in a split; the last `LANES` are the maximum and the total."""
    return builder.add(_padded(builder, size), long(LANES))


def _value_at(builder: Builder, values: Value, line: Value, column: Value) -> Value:
    """The address of a number in tiles of values."""
    tile = builder.mul(builder.udiv(column, long(COLUMNS)), long(_LINE * BLOCK))
    of_line = builder.at(builder.at(values, tile), builder.mul(line, long(_LINE)))
    return builder.at(of_line, builder.urem(column, long(COLUMNS)), FLOAT)


def _over_lanes(
    builder: Builder, combine: Callable[[Value, Value], Value], vectors: list[Value]
) -> Value:
    """All numbers of vectors combined, in each lane."""
    a, b, c, d = vectors
    every = combine(combine(a, b), combine(c, d))
    for distance in (8, 4, 2, 1):
        lanes = ir.Constant(_WORDS, [lane ^ distance for lane in range(LANES)])
        every = combine(every, builder.shuffle_vector(every, every, lanes))
    return every


def _splat_four(builder: Builder, number: Value) -> Value:
    lanes = ir.Constant(ir.VectorType(WORD, 4), [0] * 4)
    vector = builder.splat(number)
    return builder.shuffle_vector(vector, vector, lanes)
