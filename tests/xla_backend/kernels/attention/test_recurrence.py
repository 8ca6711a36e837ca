"""States of rows that each token changes, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xla_backend.kernels import registration
from xla_backend.kernels.attention import recurrence
from xla_backend.kernels.attention.recurrence import LANES, RECENT, Heads
from xla_backend.kernels.graph import kv_operations
from xla_backend.kernels.xla import states

ROWS, LENGTH = 3, 60


class Rows:
    """Rows whose states are in memory, beside all their tokens."""

    def __init__(self, heads: Heads) -> None:
        generator = np.random.default_rng(1)
        self._heads = heads
        self.lines = generator.standard_normal((ROWS, LENGTH, heads.line), np.float32) / 3
        self.lines[..., -2 * heads.total :] = generator.random((ROWS, LENGTH, 2 * heads.total))
        self._states = np.full((ROWS, 64 + heads.row_bytes // 4), np.nan, np.float32)
        self.expected = np.stack([self._read(lines.astype(np.float64)) for lines in self.lines])
        registration.prepare(recurrence.NAME, recurrence.STEP)
        self._advance = tf.function(
            lambda lines, places, blocks, layer: kv_operations.Addresses(places, blocks).advance(
                lines, layer, heads
            )[0],
            jit_compile=True,
            autograph=False,
        )

    def _read(self, lines: np.ndarray) -> np.ndarray:
        """What the tokens of a row read, `[tokens, heads * values]`."""
        of = self._heads
        keys, values = of.key_heads * of.keys, of.total * of.values
        q, k, v, decay, share = np.split(lines, np.cumsum([keys, keys, values, of.total]), axis=1)
        found = []
        for head in range(of.total):
            group = head % of.key_heads if of.alternate else head * of.key_heads // of.total
            own = slice(group * of.keys, (group + 1) * of.keys)
            state = np.zeros((of.keys, of.values))
            for at in range(len(lines)):
                state *= decay[at, head]
                change = v[at, head * of.values :][: of.values] - of.corrects * (k[at, own] @ state)
                state += np.outer(k[at, own], share[at, head] * change)
                found.append(q[at, own] @ state)
        found = np.stack(found).reshape(of.total, len(lines), of.values)
        return found.transpose(1, 0, 2).reshape(len(lines), values)

    def check(self, tokens: list[tuple[int, int]]) -> np.ndarray:
        """A call; returns its result, which is right."""
        rows, positions = np.array(tokens, np.int32).T
        addresses = self._states.ctypes.data + np.arange(ROWS) * self._states.strides[0]
        blocks = np.stack([np.zeros(ROWS, np.int64), addresses], axis=1)
        layer = np.array([256, 0, 0], np.int64)
        found = self._advance(
            self.lines[rows, positions], np.array(tokens, np.int32), blocks, layer
        ).numpy()
        expected = np.where(rows[:, None] < 0, np.nan, self.expected[rows, positions])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        return found


def tokens(row: int, begin: int, end: int) -> list[tuple[int, int]]:
    return [(row, position) for position in range(begin, end)]


KINDS = pytest.mark.parametrize(
    "heads",
    [
        Heads(4, 2, 12, 32, alternate=False, corrects=True),
        Heads(4, 2, 8, 16, alternate=True, corrects=True),
        Heads(6, 1, 16, 16, alternate=False, corrects=False),
    ],
)


@KINDS
def test_a_token_reads_what_all_before_it_have_written(heads: Heads) -> None:
    """In chunks, alone, beside other rows, and behind drafts of which some are refused."""
    rows, none = Rows(heads), [(-1, 3)]
    rows.check([*tokens(0, 0, 20), *tokens(1, 0, 3), *none])
    rows.check([*tokens(2, 0, 1), *none, *tokens(1, 3, 4), *tokens(0, 20, 21)])
    for begin, count in ((21, RECENT), (22, 3), (25, 2), (26, RECENT), (34, 1), (35, 1)):
        rows.check([*tokens(0, begin, begin + count), *none, *none])
    rows.check(tokens(0, 36, 36 + RECENT + 4))
    rows.check(tokens(1, 0, LENGTH))  # another text
    alone = [rows.check(tokens(2, at, at + 1)) for at in range(1, LENGTH)]
    rows.check(tokens(0, 36 + RECENT + 4, LENGTH))
    again = rows.check(tokens(2, 0, LENGTH))
    np.testing.assert_array_equal(np.concatenate(alone), again[1:])


@KINDS
def test_a_text_without_memory_is_read_alike(heads: Heads) -> None:
    """At once, and its last tokens one by one, from the states of other texts and by XLA alone."""
    rows = Rows(heads)
    in_memory = rows.check(tokens(0, 0, LENGTH))

    def read(lines: tf.Tensor) -> tuple[tf.Tensor, ...]:
        by_code = kv_operations.read_all(lines, heads)
        return *by_code, *states.read_all(lines, heads)

    def step(lines: tf.Tensor, behind: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
        return kv_operations.step(lines, behind[:1], behind, source, heads)

    read, step = (tf.function(f, jit_compile=True, autograph=False) for f in (read, step))
    columns = heads.total * heads.values
    for length in (1, RECENT, LENGTH):
        found, behind, by_xla, other_behind = read(rows.lines[0, :length])
        np.testing.assert_array_equal(found, in_memory[:length])
        np.testing.assert_array_equal(behind[:columns], found[-1])
        np.testing.assert_allclose(by_xla, found, rtol=0, atol=1e-5)
        matrices = tf.reshape(behind[columns:], [heads.total, -1, heads.keys, LANES])
        matrices = tf.transpose(matrices, [0, 2, 1, 3])
        np.testing.assert_allclose(
            other_behind, [*found[-1], *tf.reshape(matrices, [-1])], rtol=0, atol=1e-5
        )

    text, other = (read(rows.lines[row, : LENGTH - 2])[1] for row in (0, 1))
    lines = rows.lines[:, LENGTH - 2 :].transpose(1, 0, 2)
    first = step(lines[0, [0, 1, 0]], tf.stack([text, other]), np.array([0, 1, -1], np.int32))
    second = step(lines[1, [1, 0]], first, np.array([1, -1], np.int32))
    np.testing.assert_array_equal(first[::2, :columns], in_memory[[-2, -2]])
    np.testing.assert_array_equal(second[1, :columns], in_memory[-1])
    np.testing.assert_allclose(second[0, :columns], rows.expected[1, -1], rtol=0, atol=1e-5)
