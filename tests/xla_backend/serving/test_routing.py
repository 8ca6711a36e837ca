"""Tests of `xla_backend.serving.routing`: where a request goes, without any Ray."""

from __future__ import annotations

from collections import Counter

from xla_backend import CacheKey
from xla_backend.serving.routing import NEVER, Route, function_id, home, ranked, spill_at

REPLICAS = [f"replica {number}" for number in range(8)]
IDLE = dict.fromkeys(REPLICAS, 0)


def test_a_function_s_home_is_the_same_for_everybody_and_one_replica_more_moves_few() -> None:
    functions = [function_id("gpt2", CacheKey(16, 1, new)) for new in range(1, 801)]
    homes = {function: home(function, REPLICAS) for function in functions}
    assert all(home(function, REPLICAS[::-1]) == homes[function] for function in functions)
    counts = Counter(homes.values())
    assert len(counts) == 8
    assert max(counts.values()) < 150  # 100 each on average
    moved = [one for one in functions if home(one, [*REPLICAS, "another"]) != homes[one]]
    assert 50 < len(moved) < 150  # a ninth is 89
    assert {home(one, [*REPLICAS, "another"]) for one in moved} == {"another"}


def test_requests_go_where_the_function_is_and_else_to_its_home() -> None:
    route = Route("gpt2 16x1x32", spill_at=3)
    assert ranked(route, IDLE, {"replica 5"})[0] == ["replica 5"]
    assert ranked(route, IDLE, set())[0] == [home(route.function, REPLICAS)]
    # A replica that has it and is gone is none.
    assert ranked(route, IDLE, {"replica 99"})[0] == [home(route.function, REPLICAS)]
    assert ranked(Route(), IDLE, set()) == [REPLICAS]


def test_a_queue_that_costs_more_than_a_first_call_is_left() -> None:
    route = Route("gpt2 16x1x32", spill_at=3)
    assert ranked(route, IDLE | {"replica 5": 2}, {"replica 5"})[0] == ["replica 5"]
    busy = IDLE | {"replica 5": 3, "replica 0": 1}
    first, second = ranked(route, busy, {"replica 5"})
    assert set(first) == {*REPLICAS[1:5], *REPLICAS[6:]}  # the shortest queues
    assert second == ["replica 5"]
    two = ranked(route, busy, {"replica 5", "replica 6"})
    assert two[0] == ["replica 5", "replica 6"]  # one of those that have it is idle
    stuck = Route("gpt2 16x1x32", spill_at=NEVER)
    assert ranked(stuck, IDLE | {"replica 5": 500}, {"replica 5"})[0] == ["replica 5"]


def test_a_salt_goes_where_its_keys_and_values_are_kept() -> None:
    route = Route("gpt2 256x1x32x1", spill_at=3, salt="a visitor's")
    kept = home("a visitor's", REPLICAS)
    assert ranked(route, IDLE, {"replica 0", "replica 5"})[0] == [kept]
    # Another shape of the same talk goes there too, and a long queue is left as any.
    assert ranked(Route("gpt2 512x1x32x1", salt="a visitor's"), IDLE, set())[0] == [kept]
    assert kept not in ranked(route, IDLE | {kept: 3}, set())[0]


def test_how_long_a_queue_may_be_follows_from_measured_times() -> None:
    assert spill_at(1.0, 0.5) == 2
    assert spill_at(3.1, 0.5) == 7
    assert spill_at(0.1, 2.0) == 2  # one request more is no queue
    assert spill_at(None, 0.5) == spill_at(1.0, None) == NEVER


def test_a_replica_that_is_named_gets_the_request_or_somebody_who_will_say_no() -> None:
    assert ranked(Route(to="replica 3"), IDLE, set()) == [["replica 3"]]
    assert ranked(Route(to="gone"), IDLE, set()) == [REPLICAS]
