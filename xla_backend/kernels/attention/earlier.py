"""The lines of earlier positions of a row in our own KV memory, as a function that XLA calls.

Knows the layout of such lines in that memory. A block has a line for each of its positions, beside
keys and values, so a row can be read in chunks, begin with cached blocks, or go back to an earlier
position, as with attention. Or a row's state has its last lines, see `recurrence`.
"""

from __future__ import annotations

from llvmlite import ir

from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.kernels.attention.recurrence import RECENT, place_of
from xla_backend.kernels.handler import Handler
from xla_backend.kernels.machine_code import FLOAT, LONG, POINTER, WORD, ForLoop, Value, long
from xla_backend.kernels.matmul.matmul import NAN_BYTE

NAME = "earlier"
"""Its name in XLA."""


def layer_bytes(width: int) -> int:
    """Bytes that a layer takes of a block, a multiple of 64: `[BLOCK, width]` float32."""
    return 4 * BLOCK * width


def lines_in_state(taps: int) -> int:
    """How many of the last lines a row's state has, for a convolution that sums so many: also where
    drafts are refused, those before the next token are among them."""
    return taps - 1 + RECENT


def row_bytes(taps: int, width: int) -> int:
    """Bytes that a layer takes of a row's state, a multiple of 64."""
    return -(-4 * lines_in_state(taps) * width // 64) * 64


def build(name: str) -> ir.Module:
    """XLA's handler, in one thread: a line is some kilobytes. Operands: those of `before`."""
    module = ir.Module(name)
    call = Handler(module, name)
    lines_at, tokens, width = call.operand(0, 2)
    (places_at,), (layer,) = call.operand(1), call.operand(3)
    blocks_at, _, row_blocks = call.operand(2, 2)
    offset, recent = call.get(layer, LONG), call.get(layer, LONG, 16)
    size, in_state = call.mul(width, long(4)), call.icmp_unsigned("!=", recent, long(0))
    count = call.udiv(call.result_columns, width)

    def line(row: Value, position: Value) -> Value:
        block = call.udiv(position, long(BLOCK))
        block = call.select(in_state, call.sub(row_blocks, long(1)), block)
        block = call.add(call.mul(row, row_blocks), block)
        address = call.load(call.at(blocks_at, block, LONG), typ=LONG)
        lines = call.select(in_state, recent, long(BLOCK))
        at = call.add(offset, call.mul(call.urem(position, lines), size))
        return call.at(call.inttoptr(address, POINTER), at)

    def own(token: Value) -> Value:
        return call.at(lines_at, call.mul(token, width), FLOAT)

    each = ForLoop(call, long(0), tokens, 1)
    row, position = place_of(call, places_at, each.index)
    back = ForLoop(call, long(0), count, 1)
    to = call.mul(call.add(call.mul(each.index, count), back.index), width)
    to = call.at(call.result, to, FLOAT)
    earlier = call.sub(position, call.add(back.index, long(1)))
    is_none = call.icmp_signed("<", row, long(0))
    is_there = call.icmp_signed(">=", earlier, long(0))
    with call.if_else(call.and_(call.not_(is_none), is_there)) as (then, otherwise):
        with then:
            # A row's tokens are neighbours.
            token = call.sub(each.index, call.add(back.index, long(1)))
            is_before = call.icmp_signed("<", token, long(0))
            token = call.select(is_before, long(0), token)
            is_same = call.icmp_signed("==", place_of(call, places_at, token)[0], row)
            with call.if_else(call.and_(is_same, call.not_(is_before))) as (new, old):
                with new:
                    call.intrinsic("memcpy", POINTER, [to, own(token), size])
                with old:
                    call.intrinsic("memcpy", POINTER, [to, line(row, earlier), size])
        with otherwise:
            byte = call.select(is_none, NAN_BYTE, ir.Constant(WORD, 0))
            call.intrinsic("memset", POINTER, [to, byte, size])
    back.close()
    each.close()

    each = ForLoop(call, long(0), tokens, 1)
    row, position = place_of(call, places_at, each.index)
    with call.if_then(call.icmp_signed(">=", row, long(0))):
        call.intrinsic("memcpy", POINTER, [line(row, position), own(each.index), size])
    each.close()
    call.close()
    return module
