"""Tests of `xla_backend.prediction`."""

from __future__ import annotations

import pytest

from xla_backend import (
    BucketRules,
    CacheEntry,
    CacheKey,
    CacheOutcome,
    FirstCall,
    GenerationOptions,
)
from xla_backend.prediction import predict
from xla_backend.timing import summarize

RULES = BucketRules(padded_lengths=(16, 32, 64), max_new_tokens=(16, 32))


def entry(key: CacheKey, first_s: float, cached: list[float] | None = None) -> CacheEntry:
    first_call = FirstCall(
        CacheOutcome.MISS, trace_s=0.25 * first_s, compile_s=0.5 * first_s, run_s=0.25 * first_s
    )
    return CacheEntry("model", key, first_call, hits=0, cached=summarize(cached or []))


def test_hit_expects_the_median_of_the_cached_calls() -> None:
    entries = [entry(CacheKey(16, 1, 32), 4.0, cached=[0.1, 0.2, 0.9])]
    found = predict(entries, RULES, 5, GenerationOptions(max_new_tokens=20))
    assert found.outcome is CacheOutcome.HIT
    assert found.key == CacheKey(16, 1, 32)
    assert found.prompt_tokens == 5
    assert found.expected_s == 0.2


def test_hit_without_a_cached_call_expects_the_first_run() -> None:
    found = predict([entry(CacheKey(16, 1, 32), 4.0)], RULES, 16, GenerationOptions())
    assert (found.outcome, found.expected_s) == (CacheOutcome.HIT, 1.0)


def test_miss_expects_what_the_most_similar_function_took() -> None:
    entries = [
        entry(CacheKey(16, 1, 16), 1.0),
        entry(CacheKey(64, 4, 32), 9.0),
        entry(CacheKey(32, 1, 32), 3.0),
    ]
    found = predict(entries, RULES, 60, GenerationOptions(num_beams=1, max_new_tokens=32))
    assert found.outcome is CacheOutcome.MISS
    assert found.key == CacheKey(64, 1, 32)
    assert found.expected_s == pytest.approx(3.0)


def test_miss_of_the_first_function_expects_nothing() -> None:
    found = predict([], RULES, 3, GenerationOptions())
    assert (found.outcome, found.expected_s) == (CacheOutcome.MISS, None)


def test_context_length_bounds_the_padding() -> None:
    found = predict([], RULES, 40, GenerationOptions(max_new_tokens=8), context_length=48)
    assert found.key == CacheKey(48, 1, 16)
