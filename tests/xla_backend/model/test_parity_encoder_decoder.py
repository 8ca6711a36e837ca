"""Token for token: what is special to T5 through `Backend`, against eager `model.generate`.

Plain greedy and beam search is `test_parity_matrix`'s business.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import checkpoints
from tests.oracle import formulas
from tests.xla_backend.model.parity import NEW_TOKENS, Pair
from xla_backend import Backend, CacheOutcome, GenerationOptions, InvalidRequest
from xla_backend.model.families.encoder_decoder import distance_buckets


@pytest.fixture(scope="module", params=["T5", pytest.param("T5 v1.1", marks=pytest.mark.release)])
def pair(request: pytest.FixtureRequest, pair_of: Callable[[str], Pair]) -> Pair:
    return pair_of(request.param)


@pytest.mark.release
@pytest.mark.parametrize("num_beams", [1, 2])
def test_penalties(pair: Pair, num_beams: int) -> None:
    short, middle, _ = pair.inputs
    plain = pair.ours(middle, num_beams=num_beams)
    penalised = pair.assert_same_text(middle, num_beams=num_beams, repetition_penalty=1.5)
    assert num_beams > 1 or penalised.text != plain.text
    pair.assert_same_text(
        short, num_beams=num_beams, length_penalty=-1.0, early_stopping=num_beams > 1
    )


@pytest.mark.release
def test_a_stream_is_the_same_text(pair: Pair) -> None:
    prompt = pair.inputs[1]
    whole = pair.ours(prompt)
    options = GenerationOptions(max_new_tokens=NEW_TOKENS, exact_key=True)
    stream = pair.backend.stream(str(pair.folder), prompt, options)
    pieces = list(stream)
    assert len(pieces) > 1
    assert "".join(pieces) == stream.result.text == whole.text
    assert stream.result.cache is CacheOutcome.HIT


@pytest.mark.release
def test_sampling_follows_its_seed(pair: Pair) -> None:
    texts = [pair.ours(pair.inputs[1], temperature=2.0, seed=seed).text for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


@pytest.mark.release
def test_an_endless_prompt_is_refused(pair: Pair) -> None:
    with pytest.raises(InvalidRequest, match=r"too long: it has .* at most 2048 are taken"):
        pair.ours("word " * 3000)


@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (8, 20), (16, 64), (32, 500)])
@pytest.mark.parametrize("is_bidirectional", [True, False])
def test_distances_fall_into_buckets(buckets: int, most: int, is_bidirectional: bool) -> None:
    offsets = np.arange(-2 * most, 2 * most + 1, dtype=np.int32)
    expected = formulas().distance_buckets(offsets, is_bidirectional, buckets, most)
    half = buckets // 2 if is_bidirectional else buckets
    table = distance_buckets(half, most)
    if is_bidirectional:
        ours = table[np.minimum(abs(offsets), most)] + np.where(offsets > 0, half, 0)
    else:
        ours = table[np.clip(-offsets, 0, most)]
    np.testing.assert_array_equal(ours, expected)


def test_a_missing_activation_is_named(tmp_path: Path) -> None:
    from xla_backend import ModelUnavailable

    folder = checkpoints.t5(tmp_path / "odd", feed_forward_proj="quick_gelu")
    with pytest.raises(ModelUnavailable, match="'quick_gelu'; known are gelu, "):
        Backend().load(str(folder))
