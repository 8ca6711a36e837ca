"""Causal attention of a whole prompt, compiled, next to the formula written out in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import CausalMask, KeysValues

HEADS, KV_HEADS, SIZE = 4, 2, 8


def formula(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, padding: int, window: int | None
) -> np.ndarray:
    """Softmax over what each position may look at, one position at a time."""
    rows = []
    for place in range(q.shape[1]):
        first = max(padding, 0 if window is None else place - window + 1)
        heads = []
        for head in range(HEADS):
            own = head // (HEADS // KV_HEADS)
            scores = k[own, first : place + 1] @ q[head, place]
            weights = np.exp(scores - scores.max())
            heads.append(weights @ v[own, first : place + 1] / weights.sum())
        rows.append(np.concatenate(heads))
    return np.stack(rows)


@pytest.mark.parametrize("window", [None, 5, 700])
@pytest.mark.parametrize(("length", "padding"), [(9, 4), (300, 170), (1100, 0), (1345, 680)])
def test_whole_in_halves_and_in_pieces(length: int, padding: int, window: int | None) -> None:
    draw = np.random.default_rng(length).normal
    q, k, v = (draw(size=(n, length, SIZE)).astype("float32") for n in (HEADS, KV_HEADS, KV_HEADS))

    @tf.function(jit_compile=True, autograph=False)
    def attended(*arrays: tf.Tensor) -> tf.Tensor:
        # As the model has it: how long a prompt is, only XLA knows.
        q, k, v = (tf.ensure_shape(x, [x.shape[0], None, SIZE]) for x in arrays[:3])
        return blocks.attend_causally(q, KeysValues(k, v), CausalMask(arrays[3], window))

    said = attended(*map(tf.constant, (q, k, v)), tf.constant(padding)).numpy()
    expected = formula(q[:, padding:], k[:, padding:], v[:, padding:], 0, window)
    np.testing.assert_allclose(said[padding:], expected, atol=1e-5)


def test_the_lengths_that_are_tested_take_all_three_ways() -> None:
    assert 9 < blocks.HALVED_FROM <= 300 < blocks.PIECES_FROM <= 1100
