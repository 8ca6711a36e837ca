"""A larger function gives the same numbers as the exact one."""

import contextlib
from pathlib import Path

import pytest

from tests import checkpoints
from tests.xla_backend.engine.answers import ids
from xla_backend import Backend, BucketRules, CacheKey, CacheOutcome, GenerationOptions

HIT, REUSED = CacheOutcome.HIT, CacheOutcome.REUSED
SHORT, LONG = "The owl", "Once upon a time there was"
OPTIONS = (
    {},
    {"temperature": 0.9, "seed": 7},
    {"temperature": 1.5, "top_k": 0, "top_p": 0.8, "seed": 8},
    {"repetition_penalty": 1.5},
    {"max_new_tokens": 1},
    {"max_new_tokens": 3, "length_penalty": -1.0, "early_stopping": True},
)


@pytest.mark.release
@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_text_is_the_exact_function_s(tmp_path: Path, num_beams: int) -> None:
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 64}
    model = str(checkpoints.gpt2(tmp_path / "tiny", seed=61, **sizes))
    small, large = CacheKey(8, num_beams, 4), CacheKey(16, num_beams, 8)
    few = GenerationOptions(max_new_tokens=4, num_beams=num_beams)
    texts = set()
    with contextlib.closing(Backend(rules=BucketRules((8, 16), (4, 8)), store="off")) as backend:
        assert (
            backend.generate(model, LONG, few.replace(max_new_tokens=8), mode="padded").key == large
        )
        asked = [few.replace(**changes) for changes in OPTIONS]
        reused = [backend.generate(model, SHORT, options, mode="padded") for options in asked]
        asked = [options.replace(exact_key=True) for options in asked]
        exact = [backend.generate(model, SHORT, options) for options in asked]
    for one, other in zip(reused, exact, strict=True):
        assert (one.requested_key, other.key) == (small, small)
        assert one.cache in (REUSED, HIT)  # the exact one is made meanwhile
        assert (ids(one), one.text) == (ids(other), other.text)
        assert [token.logprob for token in one.tokens] == pytest.approx(
            [token.logprob for token in other.tokens], abs=1e-4
        )
        texts.add(one.text)
    assert reused[0].key == large
    assert len(texts) > 2, "the options made a difference"
