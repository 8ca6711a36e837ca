"""Tests of `xla_backend.prediction.prediction`."""

from collections.abc import Callable

import pytest

from xla_backend import CacheEntry, CacheKey, CacheOutcome, FirstCall, Prediction
from xla_backend.compilation.naming import Part
from xla_backend.interface.buckets import pool_key
from xla_backend.interface.results import KeyHistory, RowRun
from xla_backend.interface.timing import summarize
from xla_backend.prediction.prediction import choose, predict, reusable

WANTED = CacheKey(16, 1, 32)


def entry(key: CacheKey, first_s: float, cached: list[float] | None = None) -> CacheEntry:
    first_call = FirstCall(
        CacheOutcome.MISS, trace_s=0.25 * first_s, compile_s=0.5 * first_s, run_s=0.25 * first_s
    )
    return CacheEntry("model", key, first_call, hits=0, cached=summarize(cached or []))


def nothing_stored(key: CacheKey) -> list[Part]:
    return ["prefill trace", "decode trace", "prefill", "decode"]


def all_stored(key: CacheKey) -> list[Part]:
    return []


def lies(found: Prediction) -> tuple[float | None, float | None, float | None]:
    return found.expected_s, found.low_s, found.high_s


def test_a_hit_expects_what_calls_took() -> None:
    found = predict(WANTED, 5, [entry(WANTED, 4.0, cached=[0.1, 0.2, 0.9])], {}, nothing_stored)
    assert (found.outcome, found.key, found.requested_key) == (CacheOutcome.HIT, WANTED, WANTED)
    assert found.prompt_tokens == 5
    assert lies(found) == (0.2, 0.1, 0.9), "of few calls, all"

    found = predict(WANTED, 5, [entry(WANTED, 4.0)], {}, nothing_stored)
    assert (found.outcome, found.expected_s) == (CacheOutcome.HIT, 1.0)
    found = predict(WANTED, 5, [NEVER_RAN], {WANTED: KeyHistory(run_s=0.3)}, nothing_stored)
    assert (found.outcome, found.expected_s) == (CacheOutcome.HIT, 0.3)


NEVER_RAN = CacheEntry(
    "model", WANTED, FirstCall(CacheOutcome.MISS, 1.0, 2.0, 0.0), hits=0, cached=None
)


@pytest.mark.parametrize(
    ("entries", "missing"),
    [([NEVER_RAN], nothing_stored), ([], all_stored), ([], nothing_stored)],
    ids=["HIT", "DISK", "MISS"],
)
def test_a_run_with_other_beams_says_nothing(
    entries: list[CacheEntry], missing: Callable[[CacheKey], list[Part]]
) -> None:
    past = {CacheKey(16, 4, 32): KeyHistory(run_s=0.9, disk_s=1.5, miss_s=5.0)}
    assert lies(predict(WANTED, 5, entries, past, missing)) == (None, None, None)


@pytest.mark.parametrize(("new", "estimate"), [(16, (0.4, 0.2, 0.4)), (64, (0.1, 0.1, 0.2))])
def test_runs_of_other_lengths_are_scaled(new: int, estimate: tuple[float, float, float]) -> None:
    """It may end before its limit, so what the other took is an end of the range."""
    past = {CacheKey(16, 1, new): KeyHistory(run_s=0.2)}
    assert lies(predict(WANTED, 5, [NEVER_RAN], past, nothing_stored)) == pytest.approx(estimate)


def test_a_miss_expects_what_the_most_similar_key_took_if_any() -> None:
    past = {
        CacheKey(16, 1, 16): KeyHistory(miss_s=1.0),
        CacheKey(64, 4, 32): KeyHistory(miss_s=9.0),
        CacheKey(32, 1, 32): KeyHistory(miss_s=3.0, disk_s=0.5),
    }
    found = predict(CacheKey(64, 1, 32), 60, [], past, nothing_stored)
    assert (found.outcome, found.expected_s) == (CacheOutcome.MISS, 3.0)

    found = predict(WANTED, 3, [], {}, nothing_stored)
    assert (found.outcome, found.expected_s) == (CacheOutcome.MISS, None)


def compiled(made_at: float, trace_s: float, compile_s: float, run_s: float) -> KeyHistory:
    first_call = FirstCall(CacheOutcome.MISS, trace_s, compile_s, run_s, made_at)
    return KeyHistory(miss_s=first_call.total_s, compiled=first_call)


MADE = {
    CacheKey(16, 1, 32): compiled(1.0, 9.0, 30.0, 0.1),
    CacheKey(32, 1, 32): compiled(2.0, 2.0, 4.0, 0.1),
    CacheKey(64, 4, 32): compiled(3.0, 1.0, 5.0, 0.3),
    CacheKey(16, 4, 32): compiled(4.0, 1.2, 3.5, 0.3),
    CacheKey(512, 8, 1024): compiled(5.0, 0.0, 50.0, 9.0),
}


@pytest.mark.parametrize(
    ("missing", "estimate"),
    [
        (["decode"], (4.2, 4.1, 5.6)),
        (["decode trace", "decode"], (5.4, 5.3, 6.8)),
        (["prefill trace", "decode trace", "prefill", "decode"], (6.0, 5.9, 7.4)),
    ],
    ids=["graphs are there", "other beams", "new process"],
)
def test_a_miss_adds_up_parts(missing: list[Part], estimate: tuple[float, float, float]) -> None:
    """The last three took 4.2 s in the middle; a machine that was busy before, or a shape of quite
    another size, says nothing."""
    found = predict(CacheKey(32, 1, 64), 30, [], MADE, lambda key: missing)
    assert found.outcome is CacheOutcome.MISS
    assert lies(found) == pytest.approx(estimate)


@pytest.mark.parametrize(
    ("texts", "run_s"),
    [
        ([], 4.0),
        ([(20, False)] * 3 + [(256, True)], 1.0),  # most end before either limit
        ([(64, False)] * 3, 2.0),
        ([(32, True)], 4.0),  # what was cut may go on to the limit
    ],
)
def test_a_miss_runs_as_long_as_the_model_s_texts_are(
    texts: list[tuple[int, bool]], run_s: float
) -> None:
    rows = tuple(RowRun(5, 5, 0.1, 0.1, tokens, is_cut) for tokens, is_cut in texts)
    past = {
        CacheKey(16, 1, 32): compiled(1.0, 0.0, 10.0, 1.0),
        pool_key(64): KeyHistory(rows=rows),
    }
    found = predict(CacheKey(16, 1, 128), 5, [], past, lambda key: ["decode"])
    assert found.expected_s == 10.0 + run_s


def test_a_larger_function_in_memory_is_reused_rather_than_waiting_for_the_disk() -> None:
    larger = CacheKey(64, 1, 64)
    found = predict(WANTED, 3, [entry(larger, 4.0, cached=[0.2])], {}, all_stored)
    assert (found.outcome, found.key, found.requested_key) == (CacheOutcome.REUSED, larger, WANTED)
    assert found.expected_s == 0.2
    exact = predict(WANTED, 3, [entry(larger, 4.0)], {}, all_stored, may_reuse=False)
    assert (exact.outcome, exact.key) == (CacheOutcome.DISK, WANTED)

    keys = [CacheKey(128, 1, 32), CacheKey(32, 1, 64), CacheKey(32, 1, 128)]
    assert reusable(keys, WANTED) == CacheKey(32, 1, 64)
    past = {WANTED: KeyHistory(miss_s=6.0, disk_s=0.9)}
    found = predict(WANTED, 3, [], past, lambda key: [] if key == WANTED else ["decode"])
    assert (found.outcome, found.expected_s) == (CacheOutcome.DISK, 0.9)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(CacheKey(8, 1, 32), id="prompt does not fit"),
        pytest.param(CacheKey(16, 1, 16), id="too few new tokens"),
        pytest.param(CacheKey(16, 4, 32), id="other beams"),
        pytest.param(CacheKey(1024, 1, 32), id="too much padding"),
        pytest.param(CacheKey(16, 1, 1024), id="too many slots"),
        pytest.param(pool_key(64), id="a pool's"),
    ],
)
def test_functions_that_do_not_fit_are_not_reused(other: CacheKey) -> None:
    assert reusable([other], WANTED) is None
    assert choose(WANTED, {other}, lambda key: False, may_reuse=True).outcome is CacheOutcome.MISS


def test_a_pool_is_served_and_estimated_by_itself_alone() -> None:
    padded, pool = CacheKey(64, 1, 64), pool_key(64)
    past = {padded: KeyHistory(miss_s=9.0, disk_s=9.0), pool_key(64, 3): KeyHistory(miss_s=2.0)}
    found = predict(pool, 5, [entry(padded, 4.0)], past, nothing_stored)
    assert (found.outcome, found.key, found.expected_s) == (CacheOutcome.MISS, pool, 2.0)
    assert predict(padded, 5, [], {pool: KeyHistory(miss_s=2.0)}, nothing_stored).expected_s is None
