"""Tests of reuse: a larger function serves, the text is the same, and the exact one comes later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import checkpoints
from tests.waiting import wait_until
from tests.xla_backend.engine.new_process import LONG, SHORT
from xla_backend import Backend, BucketRules, CacheKey, CacheOutcome, GenerationOptions

pytestmark = pytest.mark.release

HIT, MISS, REUSED = CacheOutcome.HIT, CacheOutcome.MISS, CacheOutcome.REUSED
SMALL_OPTIONS, LARGE_OPTIONS = (GenerationOptions(max_new_tokens=n) for n in (4, 8))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 64}
    return str(checkpoints.gpt2(folder, seed=61, **sizes))


@pytest.fixture(scope="module")
def backend(model: str) -> Iterator[Backend]:
    made = Backend(rules=BucketRules((8, 16), (4, 8)), store="off")
    yield made
    made.close()


def settle(backend: Backend) -> None:
    """Waits for the work in the background."""
    wait_until(lambda: not backend.prefetching())


@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_text_is_the_exact_function_s(backend: Backend, model: str, num_beams: int) -> None:
    small, large = CacheKey(8, num_beams, 4), CacheKey(16, num_beams, 8)
    variants = [
        {},
        {"temperature": 0.9, "seed": 7},
        {"temperature": 1.5, "top_k": 0, "top_p": 0.8, "seed": 8},
        {"repetition_penalty": 1.5},
        {"max_new_tokens": 1},
        {"max_new_tokens": 3, "length_penalty": -1.0, "early_stopping": True},
    ]
    every = [SMALL_OPTIONS.replace(num_beams=num_beams, **changes) for changes in variants]
    # Busy, so that the exact function is not compiled meanwhile.
    with backend._access.background.request():
        first = backend.generate(model, LONG, LARGE_OPTIONS.replace(num_beams=num_beams))
        assert (first.cache, first.key) == (MISS, large)
        reused = [backend.generate(model, SHORT, options) for options in every]
        for result in reused:
            assert (result.cache, result.key, result.requested_key) == (REUSED, large, small)
        assert "".join(backend.stream(model, SHORT, every[1])) == reused[1].text
        exact = [backend.generate(model, SHORT, options, exact_key=True) for options in every]
        assert [result.cache for result in exact] == [MISS] + [HIT] * (len(every) - 1)
        for one, other in zip(reused, exact, strict=True):
            assert (other.key, other.requested_key) == (small, small)
            assert [token.id for token in one.tokens] == [token.id for token in other.tokens]
            assert one.text == other.text
            assert [token.logprob for token in one.tokens] == pytest.approx(
                [token.logprob for token in other.tokens], abs=1e-4
            )
    assert len({result.text for result in reused}) > 2, "the options made a difference"
    settle(backend)


def test_the_exact_function_is_compiled_when_the_engine_is_idle(
    backend: Backend, model: str
) -> None:
    options = GenerationOptions(max_new_tokens=8)
    exact = CacheKey(8, 1, 8)
    reused = backend.generate(model, SHORT, options)
    assert (reused.cache, reused.key, reused.requested_key) == (REUSED, CacheKey(16, 1, 8), exact)
    assert backend.prefetching() == [(model, exact)]
    assert reused.speedup is not None
    settle(backend)
    result = backend.generate(model, SHORT, options)
    assert (result.cache, result.key) == (HIT, exact)
    assert result.text == reused.text
    entry = next(entry for entry in backend.cached_functions() if entry.key == exact)
    assert (entry.hits, entry.first_call.outcome) == (1, MISS)
    assert entry.first_call.trace_s + entry.first_call.compile_s > 0


def test_exact_key_only_compiles_for_the_request_and_queues_nothing(
    backend: Backend, model: str
) -> None:
    options = GenerationOptions(max_new_tokens=4)
    assert backend.predict(model, LONG, options).outcome is REUSED
    predicted = backend.predict(model, LONG, options, exact_key=True)
    assert (predicted.outcome, predicted.key) == (MISS, CacheKey(16, 1, 4))
    stream = backend.stream(model, LONG, options, exact_key=True)
    list(stream)
    assert (stream.result.cache, stream.result.key) == (MISS, CacheKey(16, 1, 4))
    assert backend.prefetching() == []


def test_a_function_that_wastes_too_much_is_not_reused(model: str) -> None:
    backend = Backend(rules=BucketRules((8,), (1, 2, 32)), store="off")
    options = GenerationOptions(max_new_tokens=32)
    assert backend.generate(model, SHORT, options).cache is MISS
    # 32 slots for 2 tokens are within the rule, for 1 they are not.
    with backend._access.background.request():
        assert backend.generate(model, SHORT, options.replace(max_new_tokens=2)).cache is REUSED
        assert backend.generate(model, SHORT, options.replace(max_new_tokens=1)).cache is MISS
    backend.close()
