"""Why a request must compile: what in its key differs from the nearest function that is there.

Knows keys and sizes. The rules of reuse are `prediction.reusable`'s, which this module asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.requests import Prepared
from xla_backend.interface.results import CacheOutcome, Miss
from xla_backend.prediction.prediction import choose, distance


def explain_miss(prepared: Prepared, in_memory: Collection[CacheKey]) -> Miss:
    """Explains a text request's MISS; see `explain`."""
    return explain(
        prepared.key,
        len(prepared.token_ids),
        prepared.options.max_new_tokens,
        in_memory,
        prepared.options.may_reuse,
    )


def explain(
    needed: CacheKey,
    prompt_tokens: int,
    new_tokens: int,
    in_memory: Collection[CacheKey],
    may_reuse: bool,
) -> Miss:
    """Explains a MISS.

    Args:
        needed: the request's exact key, which is not in memory.
        prompt_tokens: of the prompt, without padding.
        new_tokens: the request's limit.
        in_memory: the model's compiled functions.
        may_reuse: whether the request allows a larger function.
    """
    if needed.is_pooled:
        return Miss()
    found: list[tuple[int, float, CacheKey, tuple[str, ...], CacheOutcome]] = []
    for key in in_memory:
        if key.is_pooled:
            if needed.num_beams == 1:
                rows = ("rows instead of a padded shape",)
                found.append((1, 0.0, key, rows, CacheOutcome.HIT))
            continue
        changes = _changes(needed, prompt_tokens, new_tokens, key, may_reuse)
        outcome = choose(_changed(needed, key), in_memory, lambda _: False, True).outcome
        if changes and outcome is not CacheOutcome.MISS:  # else it is too large for the request
            found.append((len(changes), distance(key, needed), key, changes, outcome))
    if not found:
        return Miss()
    *_, nearest, changes, outcome = min(found, key=lambda each: each[:3])
    return Miss(nearest, changes, outcome)


def _changes(
    needed: CacheKey, prompt_tokens: int, new_tokens: int, key: CacheKey, may_reuse: bool
) -> tuple[str, ...]:
    """What a request must change so that a function serves it."""
    changes = []
    if key.num_beams != needed.num_beams:
        changes.append(f"{_count(key.num_beams, 'beam')} instead of {needed.num_beams}")
    if key.prompt_lookup_num_tokens != needed.prompt_lookup_num_tokens:
        drafts = _count(key.prompt_lookup_num_tokens, "draft")
        changes.append(f"{drafts} instead of {needed.prompt_lookup_num_tokens}")
    if (over := prompt_tokens - key.padded_length) > 0:
        changes.append(f"a prompt shorter by {_count(over, 'token')}")
    if new_tokens > key.max_new_tokens:
        changes.append(f"at most {key.max_new_tokens} new tokens instead of {new_tokens}")
    is_same = _changed(needed, key) == key
    if not (may_reuse or is_same):
        changes.append("exact_key off")
    return tuple(changes)


def _changed(needed: CacheKey, key: CacheKey) -> CacheKey:
    """The key of the request once it has changed: no larger than the function."""
    return dataclasses.replace(
        key,
        padded_length=min(needed.padded_length, key.padded_length),
        max_new_tokens=min(needed.max_new_tokens, key.max_new_tokens),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
