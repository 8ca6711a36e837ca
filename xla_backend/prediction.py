"""What a request would meet if it were sent now.

Knows cache entries, buckets and what earlier calls took. Must not know TensorFlow or where the
entries live: the engine predicts from its own cache, the page's process from a mirror of it, and
both must say the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from xla_backend.buckets import BucketRules, CacheKey
from xla_backend.options import GenerationOptions
from xla_backend.results import CacheEntry, CacheOutcome, Prediction


def predict(
    entries: Iterable[CacheEntry],
    rules: BucketRules,
    prompt_tokens: int,
    options: GenerationOptions,
    context_length: int | None = None,
) -> Prediction:
    """Predicts outcome and duration of one request.

    Args:
        entries: compiled functions in memory, of the requested model only.
        rules: the buckets that the engine uses.
        prompt_tokens: tokens of the prompt, without padding.
        options: the request's options.
        context_length: most tokens of the model, None if unknown.

    Returns:
        On a hit, the median of the cached calls (or, before there is one, what the first run
        took). On a miss, what the first call of the most similar function took, None when the
        model has no function yet.
    """
    key = rules.key_for(prompt_tokens, options.num_beams, options.max_new_tokens, context_length)
    known = {entry.key: entry for entry in entries}
    if key in known:
        entry = known[key]
        expected_s = entry.cached.p50_s if entry.cached else entry.first_call.run_s
        return Prediction(CacheOutcome.HIT, key, prompt_tokens, expected_s)
    nearest = min(known.values(), key=lambda entry: _distance(entry.key, key), default=None)
    return Prediction(
        outcome=CacheOutcome.MISS,
        key=key,
        prompt_tokens=prompt_tokens,
        expected_s=nearest.first_call.total_s if nearest else None,
    )


def _distance(one: CacheKey, other: CacheKey) -> float:
    """How unlike two functions are: the doublings between their sizes, added up."""
    return sum(
        abs(math.log2(getattr(one, name) / getattr(other, name)))
        for name in ("padded_length", "num_beams", "max_new_tokens")
    )
