"""Which function serves a request, and how long that should take.

Knows keys, what is in memory and on disk, and what earlier calls took. Must not know TensorFlow or
where the entries live: the engine decides by these rules, the page's process predicts by them, and
so both say the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.results import CacheEntry, CacheOutcome, KeyHistory, Prediction

# Reuse wastes work on padding, never on tokens: decoding stops where the request says. The bounds
# keep the waste below what any compile costs; `python -m benchmarks.reuse` prints the measurement.
REUSE_PADDED_LENGTH = 8
"""A function may serve prompts padded to up to this many times their own bucket."""
REUSE_MAX_NEW_TOKENS = 16
"""Likewise for the slots of new tokens, which cost far less."""


def reusable(keys: Iterable[CacheKey], wanted: CacheKey) -> CacheKey | None:
    """The compiled function that serves a request with the least waste, other than its own.

    It must have as many beams, and be large enough but not too large.
    """
    fitting = [
        key
        for key in keys
        if key != wanted
        and key.num_beams == wanted.num_beams
        and wanted.padded_length <= key.padded_length <= REUSE_PADDED_LENGTH * wanted.padded_length
        and wanted.max_new_tokens
        <= key.max_new_tokens
        <= REUSE_MAX_NEW_TOKENS * wanted.max_new_tokens
    ]
    return min(fitting, default=None)


@dataclass(frozen=True)
class Choice:
    """Which function serves a request: `key`, and where it comes from."""

    key: CacheKey
    outcome: CacheOutcome


def choose(
    wanted: CacheKey,
    in_memory: Collection[CacheKey],
    is_stored: Callable[[CacheKey], bool],
    exact_key: bool,
) -> Choice:
    """Decides for one request.

    Args:
        wanted: the key that fits best.
        in_memory: the model's compiled functions.
        is_stored: whether the store can restore a key.
        exact_key: forbids that a larger function serves.
    """
    if wanted in in_memory:
        return Choice(wanted, CacheOutcome.HIT)
    if not exact_key and (other := reusable(in_memory, wanted)) is not None:
        return Choice(other, CacheOutcome.REUSED)
    return Choice(wanted, CacheOutcome.DISK if is_stored(wanted) else CacheOutcome.MISS)


def predict(
    wanted: CacheKey,
    prompt_tokens: int,
    entries: Iterable[CacheEntry],
    past: Mapping[CacheKey, KeyHistory],
    is_stored: Callable[[CacheKey], bool],
    exact_key: bool = False,
) -> Prediction:
    """Predicts outcome and duration of one request.

    Args:
        wanted: the key that fits best.
        prompt_tokens: tokens of the prompt, without padding.
        entries: compiled functions in memory, of the requested model only.
        past: what the model's keys took before.
        is_stored: whether the store can restore a key.
        exact_key: see `choose`.

    Returns:
        `expected_s` is the median of the cached calls where there are any, else what this key took
        last time, else what the most similar key took, else None.
    """
    known = {
        entry.key: entry
        for entry in entries
        if entry.batch_size == 1 and isinstance(entry.key, CacheKey)
    }
    choice = choose(wanted, known, is_stored, exact_key)
    if choice.outcome in (CacheOutcome.HIT, CacheOutcome.REUSED):
        entry = known[choice.key]
        expected_s = entry.cached.p50_s if entry.cached else entry.first_call.run_s or None
        if expected_s is None:
            expected_s = _nearest({k: h.run_s for k, h in past.items()}, choice.key)
    else:
        is_disk = choice.outcome is CacheOutcome.DISK
        took = {key: h.disk_s if is_disk else h.miss_s for key, h in past.items()}
        expected_s = _nearest(took, wanted)
    return Prediction(choice.outcome, choice.key, wanted, prompt_tokens, expected_s)


def _nearest(took: Mapping[CacheKey, float | None], wanted: CacheKey) -> float | None:
    known = [key for key, seconds in took.items() if seconds is not None]
    nearest = min(known, key=lambda key: (_distance(key, wanted), key), default=None)
    return None if nearest is None else took[nearest]


def _distance(one: CacheKey, other: CacheKey) -> float:
    """How unlike two functions are: the doublings between their sizes, added up."""
    return sum(
        abs(math.log2(getattr(one, name) / getattr(other, name)))
        for name in ("padded_length", "num_beams", "max_new_tokens")
    )
