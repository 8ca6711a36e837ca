"""Attention over a KV memory in blocks, against NumPy's softmax in float64."""

import ctypes
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from llvmlite import ir

from tests.xla_backend.kernels.attention.rows import Rows, prompt
from xla_backend.kernels import machine_code
from xla_backend.kernels.attention import attention, exponential
from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.kernels.graph.kv_operations import Addresses
from xla_backend.kernels.machine_code import (
    FLOAT,
    LANES,
    LONG,
    POINTER,
    VECTOR,
    Builder,
    ForLoop,
    long,
)


def check(rows: Rows, calls: list[list[tuple[int, int]]]) -> None:
    attend = rows.function()
    for tokens in calls:
        found = attend(*rows.operands(tokens)).numpy()
        np.testing.assert_allclose(found, rows.expected(tokens), rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [8, 20, 64, 80, 128, 256])
def test_what_tokens_get_is_the_weighted_mean_of_values(size: int) -> None:
    """Chunks that end anywhere, then rows of different lengths, with places without a token."""
    rows = Rows(size, heads=6, kv_heads=2)
    none = (-1, 7)
    calls = [
        prompt(0, 0, 1),
        prompt(0, 1, 131),
        [*prompt(0, 131, 134), none, *prompt(1, 0, 66), none, none],
        [none, none],
        [(0, 134), (1, 66), none, (2, 0)],
        *(prompt(0, begin, begin + 129) for begin in range(135, 1160, 129)),
        [(2, 1), none, *prompt(1, 67, 69), (0, 1167)],
    ]
    check(rows, calls)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (7, 1), (8, 2), (14, 2), (128, 1)])
def test_heads_of_queries_share_heads_of_keys(heads: int, kv_heads: int) -> None:
    rows = Rows(16, heads=heads, kv_heads=kv_heads, length=700)
    check(rows, [prompt(0, 0, 110), [*prompt(0, 110, 230), (1, 0)], [(0, 230), (1, 1)]])


def test_a_sink_takes_its_share_and_scores_have_a_soft_cap() -> None:
    """Far above and below all scores, over several panels."""
    rows = Rows(16, heads=6, kv_heads=2, sinks=[-90.0, -2.0, 0.0, 3.0, 7.0, 90.0])
    chunks = [prompt(0, begin, begin + 100) for begin in range(0, 1300, 100)]
    check(rows, [*chunks, [(0, 1300), (1, 0)]])
    rows = Rows(16, cap=0.7, window=90)
    check(rows, [prompt(0, 0, 130), prompt(0, 130, 132)])


@pytest.mark.parametrize("window", [1, 5, 64, 100, 600])
def test_a_window_hides_what_is_far_away(window: int) -> None:
    rows = Rows(16, window=window)
    chunks = [prompt(0, begin, begin + 100) for begin in range(0, 1300, 100)]
    check(rows, [*chunks, [(0, 1300), (1, 0)], [(0, 1301), (1, 1)]])


def test_a_block_may_have_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many positions a block has is no matter of the processor's registers."""
    monkeypatch.setattr(attention, "NAME", "attention_in_blocks_of_three_tiles")
    monkeypatch.setattr(attention, "BLOCK", 3 * BLOCK)
    rows = Rows(80, heads=6, kv_heads=2, length=700, window=300)
    chunks = [prompt(0, begin, begin + 110) for begin in range(0, 660, 110)]
    check(rows, [*chunks, [(0, 660), (1, 0)], [*prompt(0, 661, 663), (1, 1)]])


def test_blocks_behind_the_window_are_not_read() -> None:
    """Their memory may be another's, or nobody's."""
    rows = Rows(16, window=100)
    attend = rows.function()
    for begin in range(0, 1300, 100):
        attend(*rows.operands(prompt(0, begin, begin + 100)))
    operands = rows.operands(prompt(0, 1300, 1310))
    operands[4] = operands[4].copy()
    operands[4][0, : 1201 // BLOCK] = 0
    found = attend(*operands).numpy()
    np.testing.assert_allclose(found, rows.expected(prompt(0, 1300, 1310)), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("older_processor")
def test_a_processor_with_fewer_and_smaller_registers() -> None:
    rows = Rows(80, heads=6, kv_heads=2, cap=30.0)
    check(rows, [prompt(0, 0, 70), [*prompt(0, 70, 74), (1, 0)], [(0, 74), (1, 1)]])


def test_a_token_gets_the_same_bits_in_whatever_call() -> None:
    """In one chunk, in several, alone, and beside other rows; with a window, too."""
    for window in (0, 70, 530):
        rows = Rows(20, heads=6, kv_heads=2, length=1100, window=window)
        attend = rows.function()
        row = prompt(0, 0, 1064)
        cuts = (0, 511, 516, 700, 830, 1030, 1031, 1064)
        ways = [
            [row[begin:end] for begin, end in itertools.pairwise(cuts)],
            [row[:490], *([x] for x in row[490:560]), row[560:1000], *([x] for x in row[1000:])],
            [
                [*prompt(1, begin, begin + 19), *row[begin : begin + 19], (2, begin // 19)]
                for begin in range(0, 1064, 19)
            ],
        ]
        outputs = []
        for calls in ways:
            rows.forget()
            found = [
                attend(*rows.operands(tokens)).numpy()[[row == 0 for row, _ in tokens]]
                for tokens in calls
            ]
            outputs.append(np.concatenate(found))
        for other in outputs[1:]:
            np.testing.assert_array_equal(outputs[0].view(np.int32), other.view(np.int32))


def test_the_steps_of_a_loop_are_in_their_order() -> None:
    """Each step's query, key and value are what the step before it got."""
    rows = Rows(16, heads=2, kv_heads=2)
    first, *_, blocks, layer = map(tf.constant, rows.operands([(0, 0)]))

    @tf.function(jit_compile=True, autograph=False)
    def generate(x: tf.Tensor, blocks: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        def step(i: tf.Tensor, x: tf.Tensor, every: tf.Tensor) -> list[tf.Tensor]:
            places = tf.reshape(tf.stack([0, i]), [1, 2])
            got = Addresses(places, blocks).attend(x, x, tf.cos(3 * x), layer)
            following = tf.reshape(tf.roll(got, 1, axis=1), x.shape)
            return [i + 1, following, tf.tensor_scatter_nd_update(every, [[i]], got)]

        every = tf.zeros([200, 32])
        return tf.while_loop(lambda i, *_: i < steps, step, [0, x, every])[2]

    found = generate(first, blocks, tf.constant(150)).numpy()[:150]
    xs = first.numpy().reshape(1, -1).astype(np.float64)
    for i in range(150):
        got = []
        for keys in np.split(xs, 2, axis=1):
            scores = keys @ keys[-1]
            weights = np.exp(scores - scores.max())
            got.append(weights @ np.cos(3 * keys) / weights.sum())
        expected = np.concatenate(got)
        # Errors are handed on, so each step begins with what the last one really got.
        np.testing.assert_allclose(found[i], expected, rtol=2e-5, atol=2e-5)
        xs = np.concatenate([xs, np.roll(found[i : i + 1].astype(np.float64), 1, axis=1)])


def test_a_call_whose_result_nobody_wants_writes_too() -> None:
    rows = Rows(16, heads=1)
    attend, first = rows.function(), rows.operands([(0, 0)])

    @tf.function(jit_compile=True, autograph=False)
    def only_write(operands: list[tf.Tensor]) -> tf.Tensor:
        *own, places, blocks, layer = operands
        Addresses(places, blocks).attend(*own, layer)
        return tf.constant(0)

    only_write([tf.constant(x) for x in first])
    found = attend(*rows.operands([(0, 1)])).numpy()
    np.testing.assert_allclose(found, rows.expected([(0, 1)]), rtol=0, atol=1e-5)


def test_calls_of_one_function_are_ordered_by_data() -> None:
    """The same query twice, and between that another value is written that it sees."""
    rows = Rows(16, heads=1)
    attend = rows.function()
    attend(*rows.operands([(0, 0)]))

    @tf.function(jit_compile=True, autograph=False)
    def three(q: tf.Tensor, *others: tf.Tensor) -> list[tf.Tensor]:
        k, v, places, blocks, layer = others
        before = attend(q, *others)
        between = attend(q + 0 * before[:, None], k, v, 0 * places, blocks, layer)
        return [before, attend(q + 0 * between[:, None], *others)]

    second = rows.operands([(0, 1)])
    before, after = (x.numpy() for x in three(*map(tf.constant, second)))
    np.testing.assert_allclose(before, rows.expected([(0, 1)]), rtol=0, atol=1e-5)
    np.testing.assert_allclose(after, second[2][:, 0], rtol=0, atol=1e-5)


def translated(
    compute: Callable[[Builder, machine_code.Value], machine_code.Value], name: str
) -> Callable[[np.ndarray], np.ndarray]:
    """A function of vectors as one of arrays."""
    module = ir.Module(name)
    builder = Builder(module, name, [POINTER, LONG], is_public=True)
    at, count = builder.arguments
    loop = ForLoop(builder, long(0), count, LANES)
    place = builder.at(at, loop.index, FLOAT)
    builder.store(compute(builder, builder.load(place, typ=VECTOR, align=4)), place, align=4)
    loop.close()
    builder.ret_void()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long)(
        machine_code.address(module, name)
    )

    def call(x: np.ndarray) -> np.ndarray:
        y = np.ascontiguousarray(x, np.float32).copy()
        assert not y.size % LANES
        function(y.ctypes.data, y.size)
        return y

    return call


def test_exponential_and_tangent_err_by_less_than_two_last_places() -> None:
    exp = translated(exponential.exponential, "exponential")
    x = -np.geomspace(1e-9, -exponential.LEAST, 2**20).astype(np.float32)
    x = np.maximum(x, np.float32(exponential.LEAST))
    exact = np.exp(x.astype(np.float64))
    assert (abs(exp(x) - exact) / np.spacing(exact.astype(np.float32))).max() < 1.5
    special = np.zeros(LANES, np.float32)
    special[:5] = 0.0, -87.1, -1e30, -np.inf, np.nan
    np.testing.assert_array_equal(exp(special)[:5], [1.0, 0.0, 0.0, 0.0, np.nan])

    tanh = translated(exponential.hyperbolic_tangent, "tangent")
    x = np.geomspace(1e-9, 1e9, 2**16).astype(np.float32)
    for sign in (1, -1):
        np.testing.assert_allclose(tanh(sign * x), np.tanh(sign * x.astype(float)), rtol=4e-7)
