"""Which function serves a request, and how long that should take.

Knows keys, what is in memory and on disk, and what earlier calls took. Must not know TensorFlow or
where the entries live: the engine decides by these rules, the page's process predicts by them, and
so both say the same.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from xla_backend.compilation.naming import Part
from xla_backend.interface.buckets import CacheKey, positions
from xla_backend.interface.results import (
    CacheEntry,
    CacheOutcome,
    KeyHistory,
    Prediction,
    RowRun,
)
from xla_backend.prediction import prefixes

# Reuse wastes work on padding, never on tokens: decoding stops where the request says. The bounds
# keep the waste below what any compile costs.
REUSE_PADDED_LENGTH = 8
"""A function may serve prompts padded to up to this many times their own bucket."""
REUSE_MAX_NEW_TOKENS = 16
"""Likewise for the slots of new tokens, which cost far less."""

LATEST = 3
"""Estimates of a MISS are the median of so many functions that were made last."""
ALIKE = 6.0
"""Of those whose sizes differ from the wanted ones by at most so many doublings."""
MARGIN = 1.25
"""A row may be so many times quicker or slower than all earlier ones: a position of a small chunk
takes up to a quarter longer than one of a large chunk. Likewise for each doubling of the longest
prompt so far: the longer a text is, the longer attention to it takes."""
MARGIN_OF_FEW = 2.0
"""Likewise where there are less than `FEW`, of which nobody can say how they scatter."""
FEW = 3
MIN_TRACE_S = 0.05
"""Tracing takes longer than that: a graph that is there in less had been traced before."""


def reusable(keys: Iterable[CacheKey], wanted: CacheKey) -> CacheKey | None:
    """The compiled function that serves a request with the least waste, other than its own.

    It must have as many beams and be large enough but not too large. A pool's serves all of its
    requests, and no others.
    """
    fitting = [
        key
        for key in keys
        if key != wanted
        and not (key.is_pooled or wanted.is_pooled)
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


def keys_of(entries: Iterable[CacheEntry]) -> dict[CacheKey, CacheEntry]:
    """The functions for single requests of a language model, by their keys."""
    return {
        entry.key: entry
        for entry in entries
        if entry.batch_size == 1 and isinstance(entry.key, CacheKey)
    }


@dataclass(frozen=True)
class RowWork:
    """What a row of a pool will have to do.

    Attributes:
        prompt_tokens: of the prompt.
        cached_tokens: how many of them are cached, at least and at most.
        max_new_tokens: how many tokens may be generated.
    """

    prompt_tokens: int
    cached_tokens: tuple[int, int]
    max_new_tokens: int

    @classmethod
    def of(
        cls, root: str, cached: Collection[str], token_ids: Sequence[int], max_new_tokens: int
    ) -> RowWork:
        """What a prompt is for a pool; `root` and `cached` as `prefixes.cached_tokens` has them."""
        tokens = prefixes.cached_tokens(cached, root, token_ids)
        return cls(len(token_ids), tokens, max_new_tokens)


def predict(
    wanted: CacheKey,
    prompt_tokens: int,
    entries: Iterable[CacheEntry],
    past: Mapping[CacheKey, KeyHistory],
    missing: Callable[[CacheKey], Collection[Part]],
    exact_key: bool = False,
    row: RowWork | None = None,
) -> Prediction:
    """Predicts outcome and duration of one request.

    Args:
        wanted: the key that fits best.
        prompt_tokens: tokens of the prompt, without padding.
        entries: compiled functions in memory, of the requested model only.
        past: what the model's keys took before.
        missing: what must be traced or compiled for a key; empty where the store can restore it.
        exact_key: see `choose`.
        row: what a row of the pool will do, where `wanted` is a pool's key.
    """
    known = keys_of(entries)
    past = {key: was for key, was in past.items() if key.is_pooled == wanted.is_pooled}
    choice = choose(wanted, known, lambda key: not missing(key), exact_key)
    if choice.outcome is CacheOutcome.MISS:
        estimate = _of_making(wanted, missing(wanted), past)
    elif choice.outcome is CacheOutcome.DISK:
        estimate = _nearest({key: was.disk_s for key, was in past.items()}, wanted)
    elif row is not None and choice.key in past and past[choice.key].rows:
        estimate = _of_row(row, past[choice.key].rows)
    else:
        estimate = _of_running(known[choice.key], choice.key, past)
    expected_s, low_s, high_s = estimate or (None, None, None)
    return Prediction(choice.outcome, choice.key, wanted, prompt_tokens, expected_s, low_s, high_s)


Estimate = tuple[float, float, float] | None
"""Seconds expected, and between which they lie; None where nothing comparable was measured."""


def _of_running(entry: CacheEntry, key: CacheKey, past: Mapping[CacheKey, KeyHistory]) -> Estimate:
    """Of a function in memory: by its cached calls, else by its first run, or an earlier one."""
    if cached := entry.cached:
        return cached.p50_s, cached.low_s, cached.high_s
    if run_s := entry.first_call.run_s:
        return run_s, run_s, run_s
    return _nearest({each: was.run_s for each, was in past.items()}, key, grows=True)


def _of_row(row: RowWork, past: Sequence[RowRun]) -> Estimate:
    """Of a row of a pool: by what a position and a token took in earlier rows.

    Both take longer behind a long text, so that rows with prompts about as long count, where there
    are some. Texts that ended by themselves tell how long the next one may become, those that were
    cut that it may become as long as it is allowed to. Where all were cut, nothing tells how short.
    """
    further_than = {each: math.log2(row.prompt_tokens / each.prompt_tokens) for each in past}
    alike = [each for each in past if abs(further_than[each]) <= 1]
    rows = alike if len(alike) >= FEW else past
    position_s = [each.prefill_s / each.positions for each in rows]
    token_s = [each.decode_s / (each.new_tokens - 1) for each in rows if each.new_tokens > 1]
    if not token_s and row.max_new_tokens > 1:
        return None
    token_s = token_s or [0.0]
    further = [
        (row.max_new_tokens if each.is_cut else min(each.new_tokens, row.max_new_tokens)) - 1
        for each in past
    ]
    shortest = 0 if all(each.is_cut for each in past) else min(further)
    least, most = (positions(row.prompt_tokens - cached) for cached in reversed(row.cached_tokens))
    expected_s = most * statistics.median(position_s)
    expected_s += statistics.median(further) * statistics.median(token_s)
    low_s = least * min(position_s) + shortest * min(token_s)
    high_s = most * max(position_s) + max(further) * max(token_s)
    margin = MARGIN if len(past) >= FEW else MARGIN_OF_FEW
    beyond = max(0.0, min(further_than.values()))
    return expected_s, low_s / margin, high_s * margin * MARGIN**beyond


def _of_making(
    wanted: CacheKey, missing: Collection[Part], past: Mapping[CacheKey, KeyHistory]
) -> Estimate:
    """Of a function that must be compiled: by the parts of it that are missing.

    Graphs are traced once for all lengths, so whether one is there matters more than any size; and
    sizes change compiling less than what else the machine does, which the latest calls tell.
    """
    compiled = {key: was.compiled for key, was in past.items() if was.compiled}
    if not compiled:
        return _nearest({key: was.miss_s for key, was in past.items()}, wanted)
    latest = sorted(compiled, key=lambda key: (-(compiled[key].made_at or 0.0), key))
    alike = [key for key in latest if _distance(key, wanted) <= ALIKE] or latest
    made = [
        compiled[key].compile_s + compiled[key].run_s * wanted.max_new_tokens / key.max_new_tokens
        for key in alike[:LATEST]
    ]
    traced = [compiled[key].trace_s for key in latest if compiled[key].trace_s > MIN_TRACE_S]
    trace_s = 0.0
    if traced and any("trace" in part for part in missing):
        # In a new process there is one graph more to trace.
        of_four = statistics.quantiles(2 * traced[:LATEST], n=4, method="inclusive")
        trace_s = of_four[2 if "prefill trace" in missing else 1]
    return trace_s + statistics.median(made), trace_s + min(made), trace_s + max(made)


def _nearest(
    took: Mapping[CacheKey, float | None], wanted: CacheKey, grows: bool = False
) -> Estimate:
    """What the most similar key with as many beams took.

    Args:
        grows: whether it grows with the new tokens. A text may end before its limit, so the range
            begins with what the other key took.
    """
    known = {
        key: seconds
        for key, seconds in took.items()
        if seconds is not None and key.num_beams == wanted.num_beams
    }
    if not known:
        return None
    nearest = min(known, key=lambda key: (_distance(key, wanted), key))
    seconds = known[nearest]
    scaled = seconds * wanted.max_new_tokens / nearest.max_new_tokens if grows else seconds
    low_s, high_s = sorted((seconds, scaled))
    return scaled, low_s, high_s


def _distance(one: CacheKey, other: CacheKey) -> float:
    """How unlike two functions are: the doublings between their sizes, added up."""
    return sum(
        abs(math.log2(getattr(one, name) / getattr(other, name)))
        for name in ("padded_length", "num_beams", "max_new_tokens")
    )
