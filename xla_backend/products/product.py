"""The product of rows and a matrix in tiles, as a function that XLA calls.

Knows how a processor multiplies quickly. Must not know models. XLA's own products read float32
alone, lay the weights out anew in each call, and of one row or few use a part of the memory's
speed. Here every number of the matrix is read once for few rows, in its own format, from end to
end, and becomes float32 in a register; all sums are float32.

With more rows, a part of a tile becomes float32 in the cache first, and all rows pass over it
(after K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). The
threads of XLA's pool take tiles one by one. One function serves matrices and rows of any number.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from llvmlite import ir

from xla_backend.products import foreign_calls, machine_code
from xla_backend.products.grouped import GROUP
from xla_backend.products.machine_code import (
    BIT,
    BYTE,
    FLOAT,
    HALF,
    LONG,
    POINTER,
    WORD,
    Builder,
    Loop,
    Value,
    long,
)
from xla_backend.products.tiles import COLUMNS, FORMATS, PRODUCT

_ROWS = 6
"""Rows that share what is read: with 4 vectors of columns, sums fill 24 of 32 registers."""
_FEW = dict.fromkeys(FORMATS, (1, 2, 3, 4)) | {
    "float32": (1, 2, 3, 4, 5, 6),
    "int8": (1, 2, 3, 4, 8),
    "int4": (1, 2, 3, 4, 8),
}
"""Numbers of rows with which numbers become float32 in registers, and never in memory."""
_LINES = 256
"""Lines of a tile that are float32 in the cache at once: 64 KB."""
_CHUNK = 96
"""Rows that one thread takes at a time."""
_ALONE = 2**18
"""Multiplications that one thread does sooner than it can wake another."""
_UNROLLED = 4
"""Lines in a round of the inner loop."""
_AHEAD = 4096
"""Bytes between what is read and what the second cache is asked for: by itself, a processor asks
for nothing beyond a page."""

_LANES = 16
_VECTORS = COLUMNS // _LANES
_VECTOR = ir.VectorType(FLOAT, _LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * _LANES)
_CACHE_LINE = 64
# No writing; into the second cache; no instructions.
_TO_READ = [ir.Constant(WORD, value) for value in (0, 2, 1)]

# Bytes of a line of a tile; of int4, of two lines.
_BYTES = {"float32": 4 * COLUMNS, "bfloat16": 2 * COLUMNS, "float16": 2 * COLUMNS} | dict.fromkeys(
    ("int8", "int4"), COLUMNS
)
_SCALES = {"int8": 1, "int4": 2}
"""Lines of scales of each group of a tile."""

# What is handed to the threads: addresses and numbers of 8 bytes.
_JOB = {
    name: 8 * place
    for place, name in enumerate(
        "rows_at tiles_at scales_at out_at rows lines tiles units next done users".split()
    )
}


def name_of(number_format: str) -> str:
    """The name that XLA knows a product by."""
    return PRODUCT + number_format


def is_possible() -> bool:
    """Whether this TensorFlow and this processor can have products of our own."""
    return foreign_calls.are_possible() and machine_code.suits()


def prepare(number_format: str) -> None:
    """Begins to make the product of a format ready, once in a process.

    It is translated and made known to XLA beside what the caller goes on with: reading weights.
    """
    with _preparing:
        if number_format not in _products:
            _products[number_format] = _beside.submit(_register, number_format)


def wait_until_ready() -> None:
    """Waits for all that `prepare` began.

    Raises:
        RuntimeError: XLA refuses one; the next `prepare` of its format tries anew.
    """
    for number_format, begun in list(_products.items()):
        if begun.exception() is not None:
            _products.pop(number_format, None)
        begun.result()


_preparing = threading.Lock()
_beside = ThreadPoolExecutor(1, "products")
_products: dict[str, Future[None]] = {}


def _register(number_format: str) -> None:
    name = name_of(number_format)
    foreign_calls.register(name, machine_code.address(_module(number_format), name))


def _module(number_format: str) -> ir.Module:
    module = ir.Module(name_of(number_format))
    product = _Product(module, number_format)
    _handler(module, number_format, _work(module, product.unit()))
    return module


class _Product:
    """The functions that compute, of one format."""

    def __init__(self, module: ir.Module, number_format: str) -> None:
        self._module, self._format = module, number_format
        self._multiply_add = ir.Function(
            module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{_LANES}f32"
        )
        self._prefetch = ir.Function(
            module,
            ir.FunctionType(machine_code.VOID, [POINTER, WORD, WORD, WORD]),
            "llvm.prefetch.p0",
        )
        self._of_lines = {rows: self._sums(rows, "float32") for rows in range(1, _ROWS + 1)}
        self._as_they_are = self._of_lines
        if number_format != "float32":
            self._as_they_are = {
                rows: self._sums(rows, number_format) for rows in _FEW[number_format]
            }

    def unit(self) -> ir.Function:
        """`unit(job, number)`: all that a thread does at a time, one tile for a chunk of rows."""
        builder = Builder(self._module, "unit", [POINTER, LONG])
        job, number = builder.arguments
        panel = builder.room(FLOAT, _LINES * COLUMNS)
        rows_at, tiles_at, scales_at, out_at = (
            builder.get(job, POINTER, _JOB[name])
            for name in ("rows_at", "tiles_at", "scales_at", "out_at")
        )
        rows, lines, tiles = (builder.get(job, LONG, _JOB[x]) for x in ("rows", "lines", "tiles"))
        tile, chunk = builder.urem(number, tiles), builder.udiv(number, tiles)
        width = builder.mul(tiles, long(COLUMNS))
        numbers = builder.at(tiles_at, builder.mul(tile, self._size(builder, lines)))
        scales = builder.at(scales_at, builder.mul(tile, self._scales_size(builder, lines)))
        out = builder.at(out_at, builder.mul(tile, long(COLUMNS)), FLOAT)
        is_few = _is_few(builder, rows, self._format)
        with builder.if_then(is_few):
            begins = ir.Constant(BIT, 1)
            arguments = [rows_at, lines, numbers, scales, lines, out, width, begins]
            _choose(builder, self._as_they_are, rows, arguments)
            builder.ret_void()
        first = builder.mul(chunk, long(_CHUNK))
        last = builder.least(builder.add(first, long(_CHUNK)), rows)
        parts = Loop(builder, long(0), lines, _LINES)
        count = builder.least(builder.sub(lines, parts.index), long(_LINES))
        part = builder.at(numbers, self._size(builder, parts.index))
        if self._format != "float32":
            of_part = builder.at(scales, self._scales_size(builder, parts.index))
            builder.call(self._widen, [part, of_part, count, panel])
            part = panel
        begins = builder.icmp_unsigned("==", parts.index, long(0))
        blocks = Loop(builder, first, last, _ROWS)
        block = builder.least(builder.sub(last, blocks.index), long(_ROWS))
        x = builder.at(rows_at, builder.add(builder.mul(blocks.index, lines), parts.index), FLOAT)
        to = builder.at(out, builder.mul(blocks.index, width), FLOAT)
        arguments = [x, lines, part, part, count, to, width, begins]
        _choose(builder, self._of_lines, block, arguments)
        blocks.close()
        parts.close()
        builder.ret_void()
        return builder.function

    def _size(self, builder: Builder, lines: Value) -> Value:
        """Bytes of so many lines of a tile."""
        size = builder.mul(lines, long(_BYTES[self._format]))
        return builder.udiv(size, long(2)) if self._format == "int4" else size

    def _scales_size(self, builder: Builder, lines: Value) -> Value:
        """Bytes of the scales of so many lines."""
        size = 2 * COLUMNS * _SCALES.get(self._format, 0)
        return builder.mul(builder.udiv(lines, long(GROUP)), long(size))

    def _sums(self, rows: int, number_format: str) -> ir.Function:
        """`sums(x, x_width, numbers, scales, lines, out, out_width, begins)`, for so many rows.

        Adds to `out` the product of `x` and a tile; or writes it, if it `begins`. As many columns
        at a time as registers hold the sums of.
        """
        builder = Builder(
            self._module,
            f"sums{rows}_{number_format}",
            [POINTER, LONG, POINTER, POINTER, LONG, POINTER, LONG, BIT],
        )
        x, x_width, numbers, scales, lines, out, out_width, begins = builder.arguments
        registers, lanes = machine_code.vector_registers()
        room = registers * 3 // 4 // (_LANES // lanes)
        vectors = next(n for n in (4, 2, 1) if n * rows <= room or n == 1)
        inputs = [builder.at(x, builder.mul(x_width, long(row)), FLOAT) for row in range(rows)]
        parts = Loop(builder, long(0), long(COLUMNS), vectors * _LANES)
        outputs = [
            builder.at(
                out,
                builder.add(builder.mul(out_width, long(row)), builder.add(parts.index, long(at))),
                FLOAT,
            )
            for row in range(rows)
            for at in range(0, vectors * _LANES, _LANES)
        ]
        before = [
            builder.select(begins, _ZERO, builder.load(place, typ=_VECTOR, align=4))
            for place in outputs
        ]

        def add(builder: Builder, line: Value, numbers: Sequence[Value], sums: list[Value]) -> None:
            for row, place in enumerate(inputs):
                factor = _splat(builder, builder.load(builder.at(place, line, FLOAT), typ=FLOAT))
                for column, number in enumerate(numbers):
                    at = row * vectors + column
                    sums[at] = builder.call(self._multiply_add, [factor, number, sums[at]])

        # A part that became float32 is in the cache; one row of float32 waits for memory alone.
        asks_ahead = number_format == self._format and (number_format, rows) != ("float32", 1)
        after = self._for_lines(
            builder,
            *(number_format, numbers, scales, lines, add, before, parts.index, vectors),
            asks_ahead=asks_ahead,
        )
        for place, value in zip(outputs, after, strict=True):
            builder.store(value, place, align=4)
        parts.close()
        builder.ret_void()
        return builder.function

    @functools.cached_property
    def _widen(self) -> ir.Function:
        """`widen(numbers, scales, lines, to)`: lines of a tile as float32."""
        builder = Builder(self._module, "widen", [POINTER, POINTER, LONG, POINTER])
        numbers, scales, lines, to = builder.arguments

        def write(builder: Builder, line: Value, numbers: Sequence[Value], _: list[Value]) -> None:
            place = builder.at(to, builder.mul(line, long(COLUMNS)), FLOAT)
            for at, number in enumerate(numbers):
                builder.store(number, builder.at(place, _LANES * at, FLOAT), align=64)

        self._for_lines(
            builder,
            *(self._format, numbers, scales, lines, write, [], long(0), _VECTORS),
            asks_ahead=True,
        )
        builder.ret_void()
        return builder.function

    def _for_lines(
        self,
        builder: Builder,
        number_format: str,
        numbers: Value,
        scales: Value,
        lines: Value,
        use: Callable[[Builder, Value, Sequence[Value], list[Value]], None],
        values: list[Value],
        column: Value,
        vectors: int,
        *,
        asks_ahead: bool,
    ) -> list[Value]:
        """Adds a loop over the lines of a tile, which hands on values.

        `use(builder, line, numbers, values)` adds what is done with a line: with so many vectors of
        its float32 numbers, from a column on. It may replace the values.
        """
        size = _BYTES[number_format]
        columns = range(0, vectors * _LANES, _LANES)

        def read(line: Value, kind: ir.Type, width: int) -> list[Value]:
            place = builder.at(numbers, builder.mul(line, long(size)))
            if asks_ahead:
                ahead = builder.at(place, builder.mul(column, long(width // 8)))
                for at in range(_AHEAD, _AHEAD + size * vectors // _VECTORS, _CACHE_LINE):
                    builder.call(self._prefetch, [builder.at(ahead, at), *_TO_READ])
            places = [
                builder.mul(builder.add(column, long(at)), long(width // 8)) for at in columns
            ]
            vector = ir.VectorType(kind, _LANES)
            return [
                builder.load(builder.at(place, at), typ=vector, align=width // 8) for at in places
            ]

        if number_format not in _SCALES:
            loop = Loop(builder, long(0), lines, _UNROLLED, values)
            values = list(loop.values)
            for more in range(_UNROLLED):
                line = builder.add(loop.index, long(more))
                if number_format == "float32":
                    found = read(line, FLOAT, 32)
                elif number_format == "bfloat16":
                    found = [_from_bfloat16(builder, bits) for bits in read(line, HALF, 16)]
                else:
                    found = [builder.fpext(x, _VECTOR) for x in read(line, ir.HalfType(), 16)]
                use(builder, line, found, values)
            return loop.close(values)

        count = _SCALES[number_format]
        groups = Loop(builder, long(0), builder.udiv(lines, long(GROUP)), 1, values)
        scale_at = builder.at(scales, builder.mul(groups.index, long(2 * COLUMNS * count)))
        halves = ir.VectorType(ir.HalfType(), _LANES)
        factors = [
            [
                builder.fpext(
                    builder.load(
                        builder.at(
                            scale_at,
                            builder.mul(builder.add(column, long(COLUMNS * kind + at)), long(2)),
                        ),
                        typ=halves,
                        align=2,
                    ),
                    _VECTOR,
                )
                for at in columns
            ]
            for kind in range(count)
        ]
        of_group = builder.mul(groups.index, long(GROUP))
        in_bytes = GROUP if number_format == "int8" else GROUP // 2
        loop = Loop(builder, long(0), long(in_bytes), _UNROLLED, groups.values)
        values = list(loop.values)
        for more in range(_UNROLLED):
            place = builder.add(loop.index, long(more))
            line = builder.add(of_group, place)
            if number_format == "int8":
                whole = [builder.sitofp(x, _VECTOR) for x in read(line, BYTE, 8)]
                found = [builder.fmul(x, scale) for x, scale in zip(whole, factors[0], strict=True)]
                use(builder, line, found, values)
                continue
            line_of_bytes = builder.add(builder.udiv(of_group, long(2)), place)
            pairs = read(line_of_bytes, BYTE, 8)
            for half in (0, 1):
                found = []
                for pair, scale, minimum in zip(pairs, *factors, strict=True):
                    vector = pair.type
                    bits = (
                        builder.lshr(pair, ir.Constant(vector, [4] * _LANES))
                        if half
                        else builder.and_(pair, ir.Constant(vector, [15] * _LANES))
                    )
                    number = builder.uitofp(bits, _VECTOR)
                    found.append(builder.call(self._multiply_add, [number, scale, minimum]))
                use(builder, builder.add(line, long(half * GROUP // 2)), found, values)
        return groups.close(loop.close(values))


def _is_few(builder: Builder, rows: Value, number_format: str) -> Value:
    """Whether so many rows are among `_FEW`."""
    is_one_of = [builder.icmp_unsigned("==", rows, long(few)) for few in _FEW[number_format]]
    return functools.reduce(builder.or_, is_one_of)


def _splat(builder: Builder, number: Value) -> Value:
    unset = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(unset, number, ir.Constant(WORD, 0))
    return builder.shuffle_vector(
        first, unset, ir.Constant(ir.VectorType(WORD, _LANES), [0] * _LANES)
    )


def _from_bfloat16(builder: Builder, bits: Value) -> Value:
    """bfloat16 is the upper half of a float32."""
    words = ir.VectorType(WORD, _LANES)
    upper = builder.shl(builder.zext(bits, words), ir.Constant(words, [16] * _LANES))
    return builder.bitcast(upper, _VECTOR)


def _choose(
    builder: Builder, functions: Mapping[int, ir.Function], rows: Value, arguments: Sequence[Value]
) -> None:
    """Calls the function for a number of rows."""
    after = builder.append_basic_block("chosen")
    choice = builder.switch(rows, after)
    for count, function in functions.items():
        block = builder.append_basic_block(f"rows{count}")
        choice.add_case(long(count), block)
        builder.position_at_end(block)
        builder.call(function, arguments)
        builder.branch(after)
    builder.position_at_end(after)


def _work(module: ir.Module, unit: ir.Function) -> ir.Function:
    """`work(job)`: takes units until none is left."""
    builder = Builder(module, "work", [POINTER])
    (job,) = builder.arguments
    units = builder.get(job, LONG, _JOB["units"])
    take, do, end = (builder.append_basic_block(name) for name in ("take", "do", "end"))
    builder.branch(take)
    builder.position_at_end(take)
    number = builder.atomic_rmw("add", builder.at(job, _JOB["next"]), long(1), "monotonic")
    builder.cbranch(builder.icmp_unsigned("<", number, units), do, end)
    builder.position_at_end(do)
    builder.call(unit, [job, number])
    builder.atomic_rmw("add", builder.at(job, _JOB["done"]), long(1), "release")
    builder.branch(take)
    builder.position_at_end(end)
    builder.ret_void()
    return builder.function


def _leave(module: ir.Module) -> ir.Function:
    """`leave(job)`: the last user frees it. A task may begin only after all work is done."""
    free = ir.Function(module, ir.FunctionType(machine_code.VOID, [POINTER]), "free")
    builder = Builder(module, "leave", [POINTER])
    (job,) = builder.arguments
    users = builder.atomic_rmw("sub", builder.at(job, _JOB["users"]), long(1), "acq_rel")
    with builder.if_then(builder.icmp_unsigned("==", users, long(1))):
        builder.call(free, [job])
    builder.ret_void()
    return builder.function


def _handler(module: ir.Module, number_format: str, work: ir.Function) -> None:
    """What XLA calls: `product(call frame)`. Operands: rows, numbers and, if there are, scales."""
    leave = _leave(module)
    task = Builder(module, "task", [POINTER])
    task.call(work, task.arguments)
    task.call(leave, task.arguments)
    task.ret_void()
    builder = Builder(module, name_of(number_format), [POINTER], POINTER, is_public=True)
    (frame,) = builder.arguments
    frame_at = foreign_calls.FRAME
    nothing = ir.Constant(POINTER, None)

    asked = builder.get(frame, POINTER, frame_at["extension"])
    with builder.if_then(builder.icmp_unsigned("!=", asked, nothing)):
        # At registration XLA asks which version of the interface this is made for.
        about = builder.get(asked, POINTER, foreign_calls.METADATA)
        for place, number in zip(
            foreign_calls.METADATA_FIELDS, (*foreign_calls.VERSION, 0), strict=True
        ):
            builder.store(ir.Constant(WORD, number), builder.at(about, place))
        builder.ret(nothing)

    api = builder.get(frame, POINTER, frame_at["api"])
    context = builder.get(frame, POINTER, frame_at["context"])
    operands = builder.get(frame, POINTER, frame_at["operands"])
    results = builder.get(frame, POINTER, frame_at["results"])
    buffers = [
        builder.get(operands, POINTER, 8 * place)
        for place in range(3 if number_format in _SCALES else 2)
    ]
    data = [
        builder.get(buffer, POINTER, foreign_calls.BUFFER["data"])
        for buffer in (*buffers, builder.get(results, POINTER))
    ]
    axes = [builder.get(buffer, POINTER, foreign_calls.BUFFER["axes"]) for buffer in buffers]
    rows, lines = builder.get(axes[0], LONG), builder.get(axes[0], LONG, 8)
    tiles = builder.get(axes[1], LONG)
    chunks = builder.udiv(builder.add(rows, long(_CHUNK - 1)), long(_CHUNK))
    is_few = _is_few(builder, rows, number_format)
    units = builder.mul(tiles, builder.select(is_few, long(1), chunks))
    multiplications = builder.mul(builder.mul(rows, lines), builder.mul(tiles, long(COLUMNS)))
    is_small = builder.icmp_unsigned("<", multiplications, long(_ALONE))
    threads = builder.select(is_small, long(1), _threads(builder, api, context))
    users = builder.least(threads, units)

    malloc = ir.Function(module, ir.FunctionType(POINTER, [LONG]), "malloc")
    job = builder.call(malloc, [long(8 * len(_JOB))])
    rows_at, tiles_at, *scales_at, out_at = data
    addresses = {"rows_at": rows_at, "tiles_at": tiles_at, "out_at": out_at}
    addresses["scales_at"] = scales_at[0] if scales_at else nothing
    numbers = {"rows": rows, "lines": lines, "tiles": tiles, "units": units, "users": users}
    zeros = {"next": long(0), "done": long(0)}
    for name, value in (addresses | numbers | zeros).items():
        builder.store(value, builder.at(job, _JOB[name]))
    builder.fence("release")
    with builder.if_then(builder.icmp_unsigned(">", users, long(1))):
        schedule = builder.get(api, POINTER, foreign_calls.API_SCHEDULE)
        arguments = _structure(builder, [context, task.function, job])
        others = Loop(builder, long(1), users, 1)
        builder.call_at(schedule, [arguments], POINTER)
        others.close()
    builder.call(work, [job])
    wait, others_turn, ready = map(builder.append_basic_block, ("wait", "others_turn", "ready"))
    builder.branch(wait)
    builder.position_at_end(wait)
    # Not long: another thread ends its last unit. On a busy machine it may need this processor.
    done = builder.load_atomic(builder.at(job, _JOB["done"]), "acquire", 8, typ=LONG)
    builder.cbranch(builder.icmp_unsigned(">=", done, units), ready, others_turn)
    builder.position_at_end(others_turn)
    builder.branch(wait)
    builder.position_at_end(ready)
    builder.call(leave, [job])
    builder.ret(nothing)


def _threads(builder: Builder, api: Value, context: Value) -> Value:
    """How many threads XLA's pool has; 1 where a call has no pool."""
    count = builder.room(LONG, 1)
    builder.store(long(1), count)
    ask = builder.get(api, POINTER, foreign_calls.API_NUM_THREADS)
    error = builder.call_at(ask, [_structure(builder, [context, count])], POINTER)
    with builder.if_then(builder.icmp_unsigned("!=", error, ir.Constant(POINTER, None))):
        destroy = builder.get(api, POINTER, foreign_calls.API_DESTROY_ERROR)
        builder.call_at(destroy, [_structure(builder, [error])], machine_code.VOID)
    return builder.load(count, typ=LONG)


def _structure(builder: Builder, values: Sequence[Value]) -> Value:
    """The arguments of a function of XLA's table: their size, no extension, the values."""
    place = builder.room(LONG, 2 + len(values))
    fields = [long(8 * (2 + len(values))), long(0), *values]
    for at, value in enumerate(fields):
        builder.store(value, builder.at(place, 8 * at))
    return place
