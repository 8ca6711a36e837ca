"""Which function serves a request, and how long that should take.

Knows keys, what is in memory and on disk, and the times of earlier calls. Must not know TensorFlow
or where the entries are: the engine decides with these rules and the page's process predicts with
them, so both agree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from xla_backend.compilation.naming import Part
from xla_backend.interface.buckets import CacheKey, positions
from xla_backend.interface.results import CacheEntry, CacheOutcome, KeyHistory, Prediction, RowRun

# Reuse wastes work on padding, not on tokens: decoding stops at the request's limit. The bounds
# keep the waste below the cost of any compile.
REUSE_PADDED_LENGTH = 8
"""How many times larger than a prompt's own bucket a reused function may be."""
REUSE_MAX_NEW_TOKENS = 16
"""The same for new tokens, which cost far less."""

LATEST = 3
"""Estimates of a MISS are the median of this many latest functions."""
ALIKE = 6.0
"""Only functions whose sizes differ by at most this many doublings count."""
MARGIN = 1.25
"""Factor by which a row may be faster or slower than all earlier ones: a position of a small chunk
takes up to a quarter longer than one of a large chunk. It applies again for each doubling of the
longest prompt so far, because attention takes longer."""
MARGIN_OF_FEW = 2.0
"""The same with less than `FEW` earlier rows, whose scatter is unknown."""
FEW = 3
MIN_TRACE_S = 0.05
"""Tracing takes longer than this: in less time the graph had been traced before."""


def reusable(keys: Iterable[CacheKey], needed: CacheKey) -> CacheKey | None:
    """The compiled function that serves a request with the least waste, other than its own.

    It must have the same beams and be large enough but not too large. A pool's functions serve all
    its requests and no others.
    """
    fitting = [
        key
        for key in keys
        if key != needed
        and not (key.is_pooled or needed.is_pooled)
        and key.num_beams == needed.num_beams
        and needed.padded_length <= key.padded_length <= REUSE_PADDED_LENGTH * needed.padded_length
        and needed.max_new_tokens
        <= key.max_new_tokens
        <= REUSE_MAX_NEW_TOKENS * needed.max_new_tokens
    ]
    return min(fitting, default=None)


@dataclass(frozen=True)
class Choice:
    """Which function serves a request: `key`, and where it comes from."""

    key: CacheKey
    outcome: CacheOutcome


def choose(
    needed: CacheKey,
    in_memory: Collection[CacheKey],
    is_stored: Callable[[CacheKey], bool],
    may_reuse: bool,
) -> Choice:
    """Decides for one request.

    Args:
        needed: the request's exact key.
        in_memory: the model's compiled functions.
        is_stored: whether the store can restore a key.
        may_reuse: whether a larger function may serve it.
    """
    if needed in in_memory:
        return Choice(needed, CacheOutcome.HIT)
    if may_reuse and (other := reusable(in_memory, needed)) is not None:
        return Choice(other, CacheOutcome.REUSED)
    return Choice(needed, CacheOutcome.DISK if is_stored(needed) else CacheOutcome.MISS)


def keys_of(entries: Iterable[CacheEntry]) -> dict[CacheKey, CacheEntry]:
    """The functions for single requests of a language model, by their keys."""
    return {
        entry.key: entry
        for entry in entries
        if entry.batch_size == 1 and isinstance(entry.key, CacheKey)
    }


@dataclass(frozen=True)
class RowWork:
    """The work of a row of a pool."""

    prompt_tokens: int  # of the prompt
    cached_tokens: tuple[int, int]  # how many of them are cached, at least and at most
    max_new_tokens: int  # how many tokens may be generated


def predict(
    needed: CacheKey,
    prompt_tokens: int,
    entries: Iterable[CacheEntry],
    past: Mapping[CacheKey, KeyHistory],
    missing: Callable[[CacheKey], Collection[Part]],
    may_reuse: bool = True,
    row: RowWork | None = None,
) -> Prediction:
    """Predicts outcome and duration of one request.

    Args:
        needed: the request's exact key.
        prompt_tokens: tokens of the prompt, without padding.
        entries: compiled functions of the model in memory.
        past: history of the model's keys.
        missing: what must be traced or compiled for a key; empty if the store can restore it.
        may_reuse: see `choose`.
        row: the work of a row, if `wanted` is a pool's key.
    """
    known = keys_of(entries)
    texts = [each for was in past.values() for each in was.rows]
    past = {key: was for key, was in past.items() if key.is_pooled == needed.is_pooled}
    choice = choose(needed, known, lambda key: not missing(key), may_reuse)
    if choice.outcome is CacheOutcome.MISS:
        estimate = _of_making(needed, missing(needed), past, texts)
    elif choice.outcome is CacheOutcome.DISK:
        estimate = _nearest({key: was.disk_s for key, was in past.items()}, needed)
    elif row is not None and choice.key in past and past[choice.key].rows:
        estimate = _of_row(row, past[choice.key].rows)
    else:
        estimate = _of_running(known[choice.key], choice.key, past)
    expected_s, low_s, high_s = estimate or (None, None, None)
    return Prediction(choice.outcome, choice.key, needed, prompt_tokens, expected_s, low_s, high_s)


Estimate = tuple[float, float, float] | None
"""Expected seconds and their range; None if nothing comparable was measured."""


def _of_running(entry: CacheEntry, key: CacheKey, past: Mapping[CacheKey, KeyHistory]) -> Estimate:
    """For a function in memory: from its cached calls, its first run, or an earlier run."""
    if cached := entry.cached:
        return cached.p50_s, cached.low_s, cached.high_s
    if run_s := entry.first_call.run_s:
        return run_s, run_s, run_s
    return _nearest({each: was.run_s for each, was in past.items()}, key, grows=True)


def _of_row(row: RowWork, past: Sequence[RowRun]) -> Estimate:
    """For a row of a pool: from the time per position and per token of earlier rows.

    Both grow with the length of the text, so rows with prompts of similar length count if there are
    any. Texts that ended by themselves show how long the next one may become; those that were cut,
    that it may reach its limit. If all were cut, the shortest length is unknown.
    """
    further_than = {each: math.log2(row.prompt_tokens / each.prompt_tokens) for each in past}
    alike = [each for each in past if abs(further_than[each]) <= 1]
    rows = alike if len(alike) >= FEW else past
    position_s = [each.prefill_s / each.positions for each in rows]
    token_s = [each.decode_s / (each.new_tokens - 1) for each in rows if each.new_tokens > 1]
    if not token_s and row.max_new_tokens > 1:
        return None
    token_s = token_s or [0.0]
    further = [each - 1 for each in _lengths(past, row.max_new_tokens)]
    shortest = 0 if all(each.is_cut for each in past) else min(further)
    least, most = (positions(row.prompt_tokens - cached) for cached in reversed(row.cached_tokens))
    expected_s = most * statistics.median(position_s)
    expected_s += statistics.median(further) * statistics.median(token_s)
    low_s = least * min(position_s) + shortest * min(token_s)
    high_s = most * max(position_s) + max(further) * max(token_s)
    margin = MARGIN if len(past) >= FEW else MARGIN_OF_FEW
    beyond = max(0.0, min(further_than.values()))
    return expected_s, low_s / margin, high_s * margin * MARGIN**beyond


def _lengths(texts: Iterable[RowRun], limit: int) -> list[int]:
    """The tokens of earlier texts under another limit; those that were cut may reach it."""
    return [limit if each.is_cut else min(each.new_tokens, limit) for each in texts]


def _of_making(
    needed: CacheKey,
    missing: Collection[Part],
    past: Mapping[CacheKey, KeyHistory],
    texts: Collection[RowRun],
) -> Estimate:
    """For a function that must be compiled: from its missing parts.

    Graphs are traced once for all lengths, so whether one exists matters more than sizes; and sizes
    change compile time less than the machine's load, which the latest calls show. The run is as
    long as the model's earlier texts usually are.
    """
    compiled = {key: was.compiled for key, was in past.items() if was.compiled}
    if not compiled:
        return _nearest({key: was.miss_s for key, was in past.items()}, needed)
    latest = sorted(compiled, key=lambda key: (-(compiled[key].made_at or 0.0), key))
    alike = [key for key in latest if distance(key, needed) <= ALIKE] or latest

    def usual(limit: int) -> float:
        return statistics.median(_lengths(texts, limit) or [limit])

    made = [
        compiled[key].compile_s
        + compiled[key].run_s * usual(needed.max_new_tokens) / usual(key.max_new_tokens)
        for key in alike[:LATEST]
    ]
    traced = [compiled[key].trace_s for key in latest if compiled[key].trace_s > MIN_TRACE_S]
    trace_s = 0.0
    if traced and any("trace" in part for part in missing):
        # A new process traces one graph more.
        of_four = statistics.quantiles(2 * traced[:LATEST], n=4, method="inclusive")
        trace_s = of_four[2 if "prefill trace" in missing else 1]
    return trace_s + statistics.median(made), trace_s + min(made), trace_s + max(made)


def _nearest(
    took: Mapping[CacheKey, float | None], needed: CacheKey, grows: bool = False
) -> Estimate:
    """The time of the most similar key with the same beams.

    Args:
        grows: whether it grows with the new tokens. A text may end before its limit, so the range
            begins at the other key's time.
    """
    known = {
        key: seconds
        for key, seconds in took.items()
        if seconds is not None and key.num_beams == needed.num_beams
    }
    if not known:
        return None
    nearest = min(known, key=lambda key: (distance(key, needed), key))
    seconds = known[nearest]
    scaled = seconds * needed.max_new_tokens / nearest.max_new_tokens if grows else seconds
    low_s, high_s = sorted((seconds, scaled))
    return scaled, low_s, high_s


def distance(one: CacheKey, other: CacheKey) -> float:
    """The doublings between the sizes of two functions, added up."""
    return sum(
        abs(math.log2(getattr(one, name) / getattr(other, name)))
        for name in ("padded_length", "num_beams", "max_new_tokens")
    )
