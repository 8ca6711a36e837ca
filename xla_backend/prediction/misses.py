"""Why a request must compile: what in its key differs from the nearest function that is there.

Knows keys and sizes. The rules of reuse are `prediction.reusable`'s, which this module asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.results import CacheOutcome
from xla_backend.prediction.prediction import choose, distance


@dataclass(frozen=True)
class Miss:
    """Why no function in memory could serve a request.

    Attributes:
        nearest: the function that needs the fewest changes; None if the model has none.
        changes: what would have avoided the compile, each a sentence's part: "1 beam instead of 4".
        outcome: what the request would then have been.
        saves_s: seconds of tracing and compiling that this avoids; None if unknown.
    """

    nearest: CacheKey | None
    changes: tuple[str, ...]
    outcome: CacheOutcome | None
    saves_s: float | None = None

    @property
    def sentence(self) -> str:
        """For a person, without the seconds."""
        if self.nearest is None or self.outcome is None:
            return "No function of this model that could serve it is compiled yet."
        return (
            f"With {' and '.join(self.changes)} it would have been a {self.outcome.value.upper()}."
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the API."""
        return {
            "reason": self.sentence,
            "nearest_key": self.nearest.to_dict() if self.nearest else None,
            "changes": list(self.changes),
            "saves_s": self.saves_s,
        }


def explain(
    wanted: CacheKey,
    prompt_tokens: int,
    new_tokens: int,
    in_memory: Collection[CacheKey],
    exact_key: bool,
    saves_s: float | None = None,
) -> Miss:
    """Explains a MISS.

    Args:
        wanted: the request's exact key, which is not in memory.
        prompt_tokens: of the prompt, without padding.
        new_tokens: the request's limit.
        in_memory: the model's compiled functions.
        exact_key: whether the request forbids reuse.
        saves_s: the seconds of tracing and compiling, expected or measured.
    """
    if wanted.is_pooled:
        return _without(saves_s)
    found = []
    for key in in_memory:
        if key.is_pooled:
            if wanted.num_beams == 1:
                rows = ("rows instead of a padded shape",)
                found.append((1, 0.0, key, rows, CacheOutcome.HIT))
            continue
        changes = _changes(wanted, prompt_tokens, new_tokens, key, exact_key)
        outcome = choose(_changed(wanted, key), in_memory, lambda _: False, False).outcome
        if changes and outcome is not CacheOutcome.MISS:  # else it is too large for the request
            found.append((len(changes), distance(key, wanted), key, changes, outcome))
    if not found:
        return _without(saves_s)
    *_, nearest, changes, outcome = min(found, key=lambda each: each[:3])
    return Miss(nearest, changes, outcome, saves_s)


def _without(saves_s: float | None) -> Miss:
    return Miss(None, (), None, saves_s)


def _changes(
    wanted: CacheKey, prompt_tokens: int, new_tokens: int, key: CacheKey, exact_key: bool
) -> tuple[str, ...]:
    """What a request must change so that a function serves it."""
    changes = []
    if key.num_beams != wanted.num_beams:
        changes.append(f"{_count(key.num_beams, 'beam')} instead of {wanted.num_beams}")
    if key.prompt_lookup_num_tokens != wanted.prompt_lookup_num_tokens:
        drafts = _count(key.prompt_lookup_num_tokens, "draft")
        changes.append(f"{drafts} instead of {wanted.prompt_lookup_num_tokens}")
    if (over := prompt_tokens - key.padded_length) > 0:
        changes.append(f"a prompt shorter by {_count(over, 'token')}")
    if new_tokens > key.max_new_tokens:
        changes.append(f"at most {key.max_new_tokens} new tokens instead of {new_tokens}")
    is_same = _changed(wanted, key) == key
    if exact_key and not is_same:
        changes.append("exact_key off")
    return tuple(changes)


def _changed(wanted: CacheKey, key: CacheKey) -> CacheKey:
    """The key of the request once it has changed: no larger than the function."""
    return dataclasses.replace(
        key,
        padded_length=min(wanted.padded_length, key.padded_length),
        max_new_tokens=min(wanted.max_new_tokens, key.max_new_tokens),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
