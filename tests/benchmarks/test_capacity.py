"""Tests of `benchmarks.capacity`: formulas against simulation, and the page against both."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.capacity import (
    PAGE,
    Costs,
    Visitors,
    first_calls,
    measured_costs,
    replicas_needed,
    simulate,
    wait_s,
)

COSTS = Costs(
    run_s=1.0,
    compile_s=3.0,
    restore_s=0.5,
    base_gb=1.0,
    weights_gb=1.0,
    function_gb=0.1,
)
BUSY = Visitors(an_hour=3000, requests=6)  # 5 requests a second


def test_the_wait_of_random_routing_is_pollaczek_and_khinchine_s() -> None:
    for replicas in (7, 8, 12):
        played = simulate(BUSY, COSTS, replicas, 8000.0, "at random", warm=True)
        assert statistics.fmean(played.waits_s) == pytest.approx(
            wait_s(BUSY.rate, COSTS.run_s, replicas), rel=0.08
        )
        assert played.busy == pytest.approx(BUSY.rate * COSTS.run_s / replicas, rel=0.03)
    # With runs of two lengths, E[S^2] is more than E[S]^2.
    assert wait_s(0.5, [0.5, 1.5], 1) == pytest.approx(0.5 * 1.25 / (2 * 0.5))
    assert wait_s(2.0, 1.0, 2) == float("inf")


@pytest.mark.parametrize("replicas", [1, 8, 40])
def test_first_calls_follow_the_formula(replicas: int) -> None:
    few = Visitors(an_hour=400, requests=6)
    for seconds in (60.0, 600.0, 3600.0):
        counts = [
            simulate(few, COSTS, replicas, seconds, "at random", seed=seed) for seed in range(12)
        ]
        assert statistics.fmean(one.made + one.restored for one in counts) == pytest.approx(
            first_calls(few, replicas, seconds, "at random"), rel=0.1
        )


def test_by_key_makes_each_function_once_while_nobody_queues() -> None:
    quiet = Visitors(an_hour=40, requests=6)
    played = [simulate(quiet, COSTS, 8, 3600.0, "by key", seed=seed) for seed in range(12)]
    assert statistics.fmean(one.made + one.restored for one in played) == pytest.approx(
        first_calls(quiet, 8, 3600.0, "by key"), rel=0.1
    )


def test_by_key_makes_fewer_functions_and_waits_less_than_at_random() -> None:
    by_key = simulate(BUSY, COSTS, 8, 3600.0, "by key")
    at_random = simulate(BUSY, COSTS, 8, 3600.0, "at random")
    assert by_key.made == at_random.made == 40  # the store is shared
    assert by_key.restored < 0.7 * at_random.restored
    assert statistics.fmean(by_key.waits_s) < 0.6 * statistics.fmean(at_random.waits_s)
    assert len(by_key.waits_s) == len(at_random.waits_s)  # the same visitors


def test_without_a_shared_store_every_replica_compiles() -> None:
    played = simulate(BUSY, COSTS, 8, 3600.0, "at random", has_store=False)
    assert (played.made, played.restored) == (8 * 40, 0)


def test_the_page_says_what_is_reckoned_from_the_benchmarks_of_today() -> None:
    costs, text = measured_costs(), PAGE.read_text(encoding="utf-8")
    assert f"| {costs.run_s:.2f} s |" in text, "run python -m benchmarks.capacity again"
    for size in (10, 1_000, 100_000):
        visitors = Visitors(size)
        replicas = replicas_needed(visitors, costs)
        row = (
            f"| {size:,} | {visitors.rate:.3g} | {visitors.rate * costs.run_s:.3g} | {replicas:,} |"
        )
        assert row in text, "run python -m benchmarks.capacity again"
