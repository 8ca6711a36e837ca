"""Micro-kernels' speed on one core, over what this core reads and computes at best.

Knows how to call machine code without XLA. Must not know what else runs: limits and kernels are
measured in turn, and the median of several rounds counts.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import ml_dtypes  # noqa: F401 (NumPy then knows bfloat16)
import numpy as np
from llvmlite import ir

from xla_backend.kernels import machine_code
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
from xla_backend.kernels.matmul import activations, matmul, micro_kernel
from xla_backend.kernels.matmul.activations import QuantizedRows
from xla_backend.kernels.matmul.blocks import FORMATS, Blocks
from xla_backend.kernels.matmul.packing import COLUMNS, FLOATS, Tiles

_DEPTH, _TILES = 2048, 1024
"""The matrix: 134 million numbers, more than caches hold in any format."""
_ROUNDS = 7
_SUMS = 12
"""Vectors that are added to in turn: enough that none waits for itself."""
_STEPS, _READ = 2_000_000, 2**26
"""Rounds of computing; numbers that are read, 256 MB."""
_AHEAD = 8192
_WORDS = ir.VectorType(WORD, LANES)


def lines(formats: Sequence[str], rows: Sequence[int]) -> Iterator[str]:
    """The table, line by line.

    Raises:
        ValueError: a format or a number of rows does not exist.
    """
    every = (*FLOATS, *FORMATS)
    if unknown := set(formats) - set(every):
        raise ValueError(f"There is no format {', '.join(sorted(unknown))}: {', '.join(every)}.")
    if min(rows) < 1:
        raise ValueError("--rows must be at least 1.")
    reading, floats, digits = _read_bytes_s(), _operations_s("floats"), _operations_s("digits")
    yield (
        f"One core reads {reading / 1e9:.1f} GB/s; it computes {floats / 1e9:.0f} GFLOP/s in "
        f"float32, and {digits / 1e9:.0f} billion operations/s on bytes."
    )
    yield "Over limit: the time over that of reading or computing alone; each digit of rows counts."
    yield f"{'format':<12} {'rows':>4} {'ms':>8} {'GB/s':>7} {'10^9/s':>8} {'over limit':>10}"
    for name in formats or every:
        integers = matmul.quantized_rows(name, in_eight_bits=False)
        peak = floats if integers is None else digits
        for count in rows:
            took, read = _multiply(name, count, integers)
            operations = 2 * count * _TILES * _DEPTH * COLUMNS
            operations *= 1 if integers is None else integers.digits
            over = took / max(read / reading, operations / peak)
            speeds = f"{read / took / 1e9:7.1f} {operations / took / 1e9:8.0f}"
            yield f"{name:<12} {count:>4} {1e3 * took:8.2f} {speeds} {over:10.2f}"


def _multiply(name: str, rows: int, integers: QuantizedRows | None) -> tuple[float, int]:
    """Seconds of rows times the whole matrix, and its bytes."""
    packed = _packed(name)
    kind = f"multiply{rows}_{name}"
    # All tiles in one call: a call from Python takes as long as half a tile.
    builder = Builder(ir.Module(kind), kind, [POINTER] * 3, is_public=True)
    multiply = micro_kernel.micro_kernel(
        builder.module, rows, name, prefetches=True, integers=integers
    )
    x_at, tiles_at, out_at = builder.arguments
    tiles = ForLoop(builder, long(0), long(_TILES), 1)
    tile = builder.at(tiles_at, builder.mul(tiles.index, long(packed[0].nbytes)))
    row, column = long(_DEPTH), long(COLUMNS)
    ahead = builder.at(tile, _AHEAD)
    given = [x_at, row, tile, row, out_at, column, ir.Constant(BIT, 1), ahead]
    builder.call(multiply, given)
    tiles.close()
    builder.ret_void()
    address = machine_code.address(builder.module, kind)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(address)
    x, out = np.zeros((rows, 2 * _DEPTH)), np.zeros((rows, COLUMNS), np.float32)
    places = x.ctypes.data, packed.ctypes.data, out.ctypes.data
    return _took(lambda: call(*places)), packed.nbytes


def _packed(name: str) -> np.ndarray:
    """A matrix in tiles, all of which are the same."""
    generator = np.random.default_rng(0)
    tiles: Tiles
    if name in FORMATS:
        form = FORMATS[name]
        raw = generator.integers(0, 60, (COLUMNS, _DEPTH // form.block * form.size), np.uint8)
        tiles = Tiles(Blocks(name, raw))
    else:
        numbers = generator.standard_normal((COLUMNS, _DEPTH), np.float32)
        tiles = Tiles(numbers.astype(name))
    tile = np.empty(tiles.shape, tiles.dtype)
    tiles.pack(tile)
    memory = np.empty(_TILES * tile.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64  # as TensorFlow has it: else each vector is in two cache lines
    every = memory[begin : begin + _TILES * tile.nbytes].view(tile.dtype)
    every = every.reshape(_TILES, *tile.shape[1:])
    every[:] = tile
    return every


def _read_bytes_s() -> float:
    """Bytes that this core reads a second from main memory."""
    builder, name = _builder("reading")
    at, steps = builder.arguments
    loop = ForLoop(builder, long(0), steps, 8 * LANES, [ZERO] * 8)
    place = builder.at(at, loop.index, FLOAT)
    read = [builder.load(builder.at(place, 64 * each), typ=VECTOR, align=64) for each in range(8)]
    _finish(builder, loop, [builder.fadd(*pair) for pair in zip(loop.values, read, strict=True)])
    call = _function(builder, name)
    memory = np.ones(_READ + LANES, np.float32)
    begin = memory.ctypes.data + -memory.ctypes.data % 64
    return 4 * _READ / _took(lambda: call(begin, _READ))


def _operations_s(kind: str) -> float:
    """Multiplications and additions a second of one core, from registers."""
    builder, name = _builder(kind)
    at, steps = builder.arguments
    number = builder.load(at, typ=VECTOR, align=4)
    words = builder.bitcast(number, _WORDS)
    zero = ZERO if kind == "floats" else ir.Constant(_WORDS, [0] * LANES)
    loop = ForLoop(builder, long(0), steps, 1, [zero] * _SUMS)
    if kind == "floats":
        sums = [builder.multiply_add(number, number, each) for each in loop.values]
    else:
        sums = [activations.dot(builder, each, words, words, 4) for each in loop.values]
    _finish(builder, loop, sums)
    call, numbers = _function(builder, name), np.zeros(LANES, np.float32)
    each = 2 * LANES * (1 if kind == "floats" else 4)
    return each * _SUMS * _STEPS / _took(lambda: call(numbers.ctypes.data, _STEPS))


def _builder(name: str) -> tuple[Builder, str]:
    return Builder(ir.Module(name), name, [POINTER, LONG], is_public=True), name


def _finish(builder: Builder, loop: ForLoop, sums: Sequence[Value]) -> None:
    """Ends the loop and writes the sums, so that they are not left out."""
    at = builder.arguments[0]
    for each in loop.close(sums):
        builder.store(each, at, align=4)
    builder.ret_void()


def _function(builder: Builder, name: str) -> Callable[[int, int], None]:
    address = machine_code.address(builder.module, name)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long)(address)


def _took(run: Callable[[], None]) -> float:
    """Seconds of this thread, the median of several rounds: other programs count little."""
    times = []
    for _ in range(_ROUNDS + 1):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return statistics.median(times[1:])
