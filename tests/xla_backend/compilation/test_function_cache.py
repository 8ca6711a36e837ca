"""Tests of `xla_backend.compilation.function_cache`: one build for many callers, a true account."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from xla_backend import CacheKey, CacheOutcome
from xla_backend.compilation.function_cache import MAX_TIMED_RUNS, Built, FunctionCache

KEY, OTHER_KEY = CacheKey(16, 1, 16), CacheKey(32, 1, 16)


def built(name: str, outcome: CacheOutcome = CacheOutcome.MISS) -> Built[str]:
    return Built(name, outcome, trace_s=2.0, compile_s=3.0)


def no_build() -> Built[str]:
    raise AssertionError("it is there already")


def test_a_key_of_a_model_is_built_once_and_then_hit() -> None:
    cache: FunctionCache[str] = FunctionCache()
    slot, outcome = cache.get("a", KEY, lambda: built("function"))
    assert (slot.built.function, outcome) == ("function", CacheOutcome.MISS)
    again, outcome = cache.get("a", KEY, no_build)
    assert again is slot
    assert outcome is CacheOutcome.HIT

    cache: FunctionCache[str] = FunctionCache()
    for model, key, name in (("a", KEY, "1"), ("a", OTHER_KEY, "2"), ("b", KEY, "3")):
        assert cache.get(model, key, lambda name=name: built(name))[1] is CacheOutcome.MISS
    assert cache.get("a", KEY, no_build)[0].built.function == "1"
    assert cache.get("b", KEY, no_build)[0].built.function == "3"
    assert [(entry.model, entry.key) for entry in cache.cached_functions()] == [
        ("a", KEY),
        ("a", OTHER_KEY),
        ("b", KEY),
    ]

    cache: FunctionCache[str] = FunctionCache()
    assert cache.get("a", KEY, lambda: built("f", CacheOutcome.DISK))[1] is CacheOutcome.DISK
    assert cache.get("a", KEY, no_build)[1] is CacheOutcome.HIT


def test_eight_callers_of_one_missing_key_build_it_once() -> None:
    cache: FunctionCache[str] = FunctionCache()
    together = threading.Barrier(8)
    builds = []

    def build() -> Built[str]:
        builds.append(threading.get_ident())
        return built("function")

    def call(_: int) -> tuple[str, CacheOutcome]:
        together.wait()
        slot, outcome = cache.get("a", KEY, build)
        return slot.built.function, outcome

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(call, range(8)))
    assert len(builds) == 1
    assert [function for function, _ in answers] == ["function"] * 8
    outcomes = [outcome for _, outcome in answers]
    assert sorted(outcomes) == [CacheOutcome.HIT] * 7 + [CacheOutcome.MISS]
    assert cache.cached_functions()[0].hits == 7


def test_two_keys_do_not_wait_for_each_other() -> None:
    cache: FunctionCache[str] = FunctionCache()
    both_building = threading.Barrier(2)

    def build() -> Built[str]:
        both_building.wait()  # for ever if the other one is kept waiting
        return built("function")

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(lambda key: cache.get("a", key, build)[1], (KEY, OTHER_KEY)))
    assert outcomes == [CacheOutcome.MISS] * 2


def test_a_builder_that_raises_leaves_nothing_behind_and_who_waits_builds_anew() -> None:
    cache: FunctionCache[str] = FunctionCache()

    def fail() -> Built[str]:
        raise MemoryError("too large")

    for _ in range(2):
        with pytest.raises(MemoryError):
            cache.get("a", KEY, fail)
    assert cache.cached_functions() == []
    assert cache.get("a", KEY, lambda: built("function"))[1] is CacheOutcome.MISS
    assert cache.get("a", KEY, no_build)[1] is CacheOutcome.HIT

    cache: FunctionCache[str] = FunctionCache()
    started = threading.Event()
    attempts = []

    def build() -> Built[str]:
        attempts.append(None)
        started.set()
        if len(attempts) == 1:
            raise MemoryError("only the first time")
        return built("function")

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(cache.get, "a", KEY, build)
        started.wait()
        others = [threads.submit(cache.get, "a", KEY, build) for _ in range(3)]
        assert isinstance(first.exception(), MemoryError)
        outcomes = sorted(other.result()[1] for other in others)
    assert outcomes == [CacheOutcome.HIT] * 2 + [CacheOutcome.MISS]
    assert len(attempts) == 2


def test_the_first_run_is_kept_apart_from_the_latest_cached_ones() -> None:
    cache: FunctionCache[str] = FunctionCache()
    slot, _ = cache.get("a", KEY, lambda: built("function"))
    assert slot.first_call.total_s == 5.0
    assert cache.cached_functions()[0].cached is None
    for run_s in (0.5, 0.1, 0.3):
        cache.record(slot, run_s)
    (entry,) = cache.cached_functions()
    assert (entry.first_call.trace_s, entry.first_call.compile_s) == (2.0, 3.0)
    assert (entry.first_call.run_s, entry.first_call.total_s) == (0.5, 5.5)
    assert entry.first_call.outcome is CacheOutcome.MISS
    assert (entry.cached.n, entry.cached.min_s) == (2, 0.1)
    assert entry.cached.p50_s == entry.cached.mean_s == pytest.approx(0.2)

    cache: FunctionCache[str] = FunctionCache()
    slot, _ = cache.get("a", KEY, lambda: built("function"))
    for run_s in range(MAX_TIMED_RUNS + 11):
        cache.record(slot, float(run_s))
    (entry,) = cache.cached_functions()
    assert entry.cached.n == MAX_TIMED_RUNS
    assert entry.cached.min_s == 11.0
