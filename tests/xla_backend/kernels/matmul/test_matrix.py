"""Products of rows and weights in every format, against NumPy over the same numbers."""

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.xla_backend.older_processor import ALDER_LAKE, HASWELL, IVY_BRIDGE, OlderProcessor
from xla_backend.kernels import ffi, machine_code, registration
from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.kernels.matmul import matmul
from xla_backend.kernels.matmul.blocks import FORMATS as BLOCKS
from xla_backend.kernels.matmul.blocks import Blocks, Weights, rounded, stacked
from xla_backend.kernels.matmul.packing import FLOATS

GENERATOR = np.random.default_rng(5)


def in_blocks(name: str, outputs: int, inputs: int) -> Blocks:
    """Random values, with scales that make numbers of the size of weights."""
    form = BLOCKS[name]
    raw = GENERATOR.integers(0, 256, (outputs, inputs // form.block, form.size), np.uint8)
    largest = 0.2 / 2 ** (8 if form.table else form.bits) / (1 if form.factors is None else 32)
    for place in form.halves:
        scales = GENERATOR.uniform(largest / 2, largest, raw.shape[:2]).astype(np.float16)
        raw[:, :, place : place + 2] = scales[:, :, None].view(np.uint8)
    if form.is_power:
        raw[:, :, 0] = GENERATOR.integers(120, 122, raw.shape[:2])
    return Blocks(name, raw.reshape(outputs, -1))


def weights(number_format: str, outputs: int, inputs: int) -> tuple[Weights, np.ndarray]:
    """Weights `[out, in]`, and their numbers in float32."""
    if number_format in BLOCKS:
        blocks = in_blocks(number_format, outputs, inputs)
        return blocks, blocks.dequantized()
    numbers = 0.1 * GENERATOR.standard_normal((outputs, inputs), np.float32)
    narrow = numbers.astype(getattr(ml_dtypes, number_format, number_format))
    return narrow, narrow.astype(np.float32)


def save(
    shape: tuple[int, ...], dtype: np.dtype, write: Callable[[np.ndarray], None]
) -> tf.Variable:
    array = np.empty(shape, dtype)
    write(array)
    return tf.Variable(array, trainable=False)


def matrix(own: Weights) -> Matrix:
    return Matrix.of(own, save)


FORMATS = (*FLOATS, *BLOCKS)


def lines_for(number_format: str) -> int:
    """As many as end within a part of the cache where a format's blocks allow it."""
    return 768 if number_format in BLOCKS and BLOCKS[number_format].block == 256 else 544


@pytest.mark.parametrize("number_format", FORMATS)
def test_products_are_those_of_the_numbers(number_format: str) -> None:
    inputs = lines_for(number_format)
    own, numbers = weights(number_format, 1100, inputs)  # which end within a tile
    made = matrix(own)
    assert made.shape == (inputs, 1100)
    assert made.numbers.dtype != tf.float32 or number_format == "float32"
    # The number of rows is not known to the graph, as in a prefill's.
    multiply = tf.function(
        made.multiply,
        input_signature=[tf.TensorSpec([None, inputs], tf.float32)],
        jit_compile=True,
        autograph=False,
    )
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 13, 96, 97, 250):
        x = GENERATOR.standard_normal((rows, inputs), np.float32)
        expected = x.astype(np.float64) @ numbers.T.astype(np.float64)
        np.testing.assert_allclose(
            multiply(x).numpy(), expected, rtol=0, atol=3e-5, err_msg=f"{rows}"
        )


@pytest.mark.parametrize(
    ("number_format", "older_processor"),
    [(each, HASWELL) for each in FORMATS] + [(each, IVY_BRIDGE) for each in ("Q4_K", "IQ4_NL")],
    indirect=["older_processor"],
)
@pytest.mark.usefixtures("older_processor")
def test_a_processor_with_fewer_and_smaller_registers(number_format: str) -> None:
    inputs = lines_for(number_format)
    own, numbers = weights(number_format, 600, inputs)
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    for rows in (1, 3, 4, 6, 8, 13):
        x = GENERATOR.standard_normal((rows, inputs), np.float32)
        expected = x.astype(np.float64) @ numbers.T.astype(np.float64)
        np.testing.assert_allclose(multiply(x).numpy(), expected, rtol=0, atol=3e-5)


def test_dot_products_have_the_processors_own_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """AVX-VNNI's, which not every processor that runs the tests has: as text."""
    alder_lake = dict.fromkeys(("avx2", "fma", "f16c", "avxvnni"), True)
    features = OlderProcessor(alder_lake)
    monkeypatch.setattr(OlderProcessor, "flatten", lambda self: "+avx2,+fma,+f16c,+avxvnni")
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_name", lambda: HASWELL)
    code = machine_code.assembly(matmul.build("Q4_K", False, False, "product"))
    assert "{vex}\tvpdpbusd" in code
    assert "zmm" not in code


def in_eight_bits(x: np.ndarray, group: int) -> np.ndarray:
    """Rows rounded to 8 bits: groups of numbers share a scale."""
    groups = x.reshape(len(x), -1, group)
    largest = abs(groups).max(axis=2, keepdims=True)
    integers = np.rint(groups * (np.float32(127) / largest)).astype(np.float64)
    return (integers * (largest * np.float32(1 / 127))).reshape(x.shape)


@pytest.mark.parametrize(
    ("number_format", "older_processor"),
    [
        *((each, None) for each in BLOCKS),
        *((each, HASWELL) for each in ("Q8_0", "Q4_K")),
        *((each, ALDER_LAKE) for each in ("Q8_0", "Q4_K", "IQ4_NL", "Q3_K")),
    ],
    indirect=["older_processor"],
)
@pytest.mark.usefixtures("older_processor")
def test_sums_are_as_exact_as_those_of_float32(number_format: str) -> None:
    """Whatever the magnitudes: outliers, numbers just below a power of 2, nearly none, zeros."""
    own, numbers = weights(number_format, 600, lines_for(number_format))
    assert isinstance(own, Blocks)
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    x = GENERATOR.standard_normal((24, lines_for(number_format)), np.float32)
    x[0] *= np.exp(GENERATOR.uniform(-9, 9, x.shape[1])).astype(np.float32)
    below = 1 - np.float32(2) ** -np.arange(1, 24, dtype=np.float32)
    x[1:] = np.where(np.arange(x.shape[1]) % 16 == 5, below[:, None], x[1:] / 8)
    x[8:16] *= -(np.float32(2) ** np.arange(-50, 70, 15, dtype=np.float32))[:, None]
    x[20], x[21] = 0.0, 1e-40
    found = multiply(x).numpy()
    expected = x.astype(np.float64) @ numbers.T.astype(np.float64)
    # Numbers have 22 bits of the largest that shares their scale, or of 2^-78.
    group = own.format.group
    largest = abs(x).reshape(len(x), -1, group).max(axis=2).repeat(group, axis=1)
    terms = np.maximum(largest, 2.0**-78).astype(np.float64) @ abs(numbers.T).astype(np.float64)
    assert (abs(found - expected) <= 2.0**-22 * terms).all()


@pytest.mark.parametrize(
    ("number_format", "older_processor"),
    [
        *((each, None) for each in BLOCKS),
        *((each, HASWELL) for each in ("Q8_0", "Q4_1", "Q3_K")),
        *((each, ALDER_LAKE) for each in ("Q8_0", "Q4_K")),
        *((each, IVY_BRIDGE) for each in ("Q8_0", "Q4_K")),
    ],
    indirect=["older_processor"],
)
@pytest.mark.usefixtures("older_processor")
def test_products_of_rows_in_eight_bits_are_those_of_their_integers(number_format: str) -> None:
    own = in_blocks(number_format, 600, lines_for(number_format))
    made = Matrix.of(own, save, in_eight_bits=True)
    multiply = tf.function(made.multiply, jit_compile=True, autograph=False, reduce_retracing=True)
    x = GENERATOR.standard_normal((101, made.inputs), np.float32)
    x[7, 32:64] = 0.0
    x[99:] = np.nan  # unused rows
    every = multiply(tf.constant(x)).numpy()
    rounded = in_eight_bits(np.where(x == 0, 1e-30, x), own.format.group)
    expected = rounded @ own.dequantized().T.astype(np.float64)
    np.testing.assert_allclose(every, expected, rtol=0, atol=3e-5)
    for rows in (1, 3, 13):
        np.testing.assert_array_equal(multiply(tf.constant(x[:rows])).numpy(), every[:rows])
    behind_padding = multiply(tf.constant(np.roll(x, 2, axis=0))).numpy()
    np.testing.assert_array_equal(behind_padding[2:], every[:99])


@pytest.mark.parametrize("number_format", ["float32", "Q4_K"])
def test_threads_take_several_tiles_at_once(number_format: str) -> None:
    """And the last ones fewer, where their number is no multiple."""
    inputs, outputs = lines_for(number_format), 9000
    own, numbers = weights(number_format, outputs, inputs)
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    for rows in (1, 20, 130):
        x = GENERATOR.standard_normal((rows, inputs), np.float32)
        expected = x.astype(np.float64) @ numbers.T.astype(np.float64)
        np.testing.assert_allclose(multiply(x).numpy(), expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("number_format", BLOCKS)
def test_a_row_has_the_same_sums_beside_others(number_format: str) -> None:
    """In all that a decode step of a pool may be."""
    own, _ = weights(number_format, 600, lines_for(number_format))
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    x = GENERATOR.standard_normal((16, lines_for(number_format)), np.float32)
    every = multiply(x).numpy()
    for rows in (1, 2, 3, 5, 8):
        np.testing.assert_array_equal(multiply(x[:rows]).numpy(), every[:rows])


@pytest.mark.parametrize("number_format", FORMATS)
@pytest.mark.parametrize("rows", [4, 16, 128])
def test_rows_around_those_wanted_are_not_multiplied(number_format: str, rows: int) -> None:
    """The others have the sums that they have beside as many as there is room for."""
    own, _ = weights(number_format, 600, lines_for(number_format))
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    x = GENERATOR.standard_normal((rows, lines_for(number_format)), np.float32)
    every = multiply(x).numpy()
    for wanted in {0, 1, 3, 5, 9, 11, rows // 2, rows - 1, rows} & {*range(rows + 1)}:
        for begin in {0, 1, rows - wanted} & {*range(rows - wanted + 1)}:
            is_wanted = (np.arange(rows) >= begin) & (np.arange(rows) < begin + wanted)
            some = np.where(is_wanted[:, None], x, np.float32(np.nan))
            found = multiply(tf.constant(some)).numpy()
            np.testing.assert_array_equal(found[is_wanted], every[is_wanted])
            assert np.isnan(found[~is_wanted]).all()


@pytest.mark.parametrize("outputs", [128, 96])  # 96 are no whole tiles: float32 then
@pytest.mark.parametrize("number_format", FORMATS)
def test_a_part_is_multiplied_as_the_matrix_that_it_is(number_format: str, outputs: int) -> None:
    inputs = lines_for(number_format)
    own, numbers = weights(number_format, 5 * outputs, inputs)
    parts = Matrix.of(own, save, matrices=5)
    assert (parts.number_format is None) == (outputs == 96)
    multiply = tf.function(parts.multiply, jit_compile=True, autograph=False)
    for rows, place in ((1, 0), (1, 4), (7, 2), (130, 3)):
        x = GENERATOR.standard_normal((rows, inputs), np.float32)
        expected = x.astype(np.float64) @ numbers.reshape(5, outputs, inputs)[place].T
        found = multiply(tf.constant(x), tf.constant(place)).numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("number_format", FORMATS)
def test_columns_are_the_numbers(number_format: str) -> None:
    own, numbers = weights(number_format, 1100, lines_for(number_format))
    columns = tf.function(matrix(own).columns, jit_compile=True, autograph=False)
    places = [0, 1099, 63, 64, 500, 63]
    np.testing.assert_array_equal(columns(tf.constant(places)).numpy(), numbers[places])


@pytest.mark.parametrize("leading", [(), (1,), (4,), (2, 2), (7, 1)])
@pytest.mark.parametrize("shape", [(32, 48), (523, 601), (512, 768)])
def test_the_last_axis_is_multiplied(leading: tuple[int, ...], shape: tuple[int, int]) -> None:
    """Of a matrix that is small, one that no group of lines fits, and one in tiles."""
    numbers = GENERATOR.standard_normal(shape[::-1], np.float32)
    x = GENERATOR.standard_normal((*leading, 3, shape[0]), np.float32)
    multiply = tf.function(matrix(numbers).multiply, jit_compile=True, autograph=False)
    found = multiply(tf.constant(x)).numpy()
    np.testing.assert_allclose(found, x.astype(np.float64) @ numbers.T, rtol=0, atol=2e-4)


@pytest.mark.parametrize("rows", [4, 9])
def test_a_row_without_end_is_no_other_row_s_concern(rows: int) -> None:
    """Rows may be texts of several visitors."""
    own, _ = weights("Q8_0", 768, 512)
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    x = GENERATOR.standard_normal((rows, 512), np.float32)
    sound = multiply(tf.constant(x)).numpy()
    x[1, 0] = np.inf
    found = multiply(tf.constant(x)).numpy()
    assert not np.isfinite(found[1]).any()
    others = [row for row in range(rows) if row != 1]
    np.testing.assert_array_equal(found[others], sound[others])


def test_products_at_once_do_not_meet() -> None:
    """Several threads call at the same time, each with numbers of its own."""
    own, numbers = weights("float32", 768, 512)
    multiply = tf.function(matrix(own).multiply, jit_compile=True, autograph=False)
    inputs = [GENERATOR.standard_normal((rows, 512), np.float32) for rows in (1, 2, 5, 40) * 25]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda x: multiply(tf.constant(x)).numpy(), inputs))
    for x, y in zip(inputs, found, strict=True):
        np.testing.assert_allclose(y, x.astype(np.float64) @ numbers.T, rtol=0, atol=1e-4)


def test_rounding_to_eight_bits_errs_by_half_a_step() -> None:
    numbers = GENERATOR.standard_normal((64, 96), np.float32)
    numbers[3, 32:64] = 0.0
    found = rounded(numbers)
    assert found.shape == (64, 96)
    steps = np.repeat(found.unpacked().halves[:, :, 0].astype(np.float32), 32, axis=1)
    assert (abs(found.dequantized() - numbers) <= 0.51 * steps + 1e-9).all()
    assert (found.dequantized()[3, 32:64] == 0).all()


def test_rounding_takes_little_memory_besides_its_result() -> None:
    numbers = np.tile(GENERATOR.standard_normal((3, 2048)).astype(np.float16), (1000, 1))
    tracemalloc.start()
    found = rounded(numbers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found.raw, np.tile(rounded(numbers[:3]).raw, (1000, 1)))
    assert peak < found.raw.nbytes + 20 * 2**20


def test_neighbours_in_one_format_are_stacked_as_they_are() -> None:
    first, second = in_blocks("Q4_1", 8, 64), in_blocks("Q4_1", 24, 64)
    other, wide = in_blocks("Q8_0", 8, 64), GENERATOR.standard_normal((4, 64), np.float32)
    both, third, floats = stacked([first, second, other, wide, wide.astype(np.float16)])
    assert isinstance(both, Blocks)
    np.testing.assert_array_equal(
        both.dequantized(), np.concatenate([first.dequantized(), second.dequantized()])
    )
    assert third is other
    assert isinstance(floats, np.ndarray)
    np.testing.assert_array_equal(floats, np.concatenate([wide, wide.astype(np.float16)]))


def test_a_product_that_xla_refused_is_tried_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_started", {})
    monkeypatch.setattr(matmul, "MATMUL", "product_of_another_")
    monkeypatch.setattr(matmul, "READING", "columns_of_another_")
    taken = "product_of_another_Q8_0"
    # XLA takes a name once.
    module = matmul.build("Q8_0", False, False, taken)
    ffi.register("product_of_another_float32", machine_code.address(module, taken))
    own, numbers = weights("float32", 600, 544)
    with pytest.raises(RuntimeError, match="XLA refuses product_of_another_float32"):
        matrix(own).multiply(tf.zeros([1, 544]))
    monkeypatch.setattr(matmul, "MATMUL", "product_tried_anew_")
    monkeypatch.setattr(matmul, "READING", "columns_tried_anew_")
    made = matrix(own)
    multiply = tf.function(made.multiply, jit_compile=True, autograph=False)
    x = GENERATOR.standard_normal((1, 544), np.float32)
    np.testing.assert_allclose(multiply(tf.constant(x)).numpy(), x @ numbers.T, atol=3e-5)
