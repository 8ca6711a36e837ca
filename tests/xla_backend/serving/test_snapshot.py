"""Tests of `xla_backend.serving.snapshot` and `board`: several engines' states as one."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from xla_backend import CacheEntry, CacheKey, CacheOutcome, EngineStatus, FirstCall, ModelInfo
from xla_backend.interface.results import KeyHistory
from xla_backend.interface.timing import summarize
from xla_backend.serving import board as boards
from xla_backend.serving import snapshot as views
from xla_backend.serving.board import Board
from xla_backend.serving.snapshot import Snapshot

KEY, OTHER = CacheKey(16, 1, 32), CacheKey(32, 1, 32)
COMPILED = FirstCall(CacheOutcome.MISS, 1.0, 0.5, 0.5, made_at=1.7e9)


def entry(key: CacheKey, runs: list[float]) -> CacheEntry:
    first = FirstCall(CacheOutcome.MISS, 1.0, 2.0, 0.5)
    return CacheEntry("gpt2", key, first, hits=len(runs), cached=summarize(runs))


def snapshot(replica: str, number: int = 1, **values: Any) -> Snapshot:
    defaults: dict[str, Any] = {
        "status": EngineStatus("ready", since=time.perf_counter()),
        "status_age_s": 0.0,
        "models": (),
        "entries": (),
        "past": {},
        "stored_keys": (),
        "prefetching": (),
        "pid": 1,
    }
    return Snapshot(replica, number, **(defaults | values))


def model(loaded: bool) -> ModelInfo:
    return ModelInfo("gpt2", "decoder-only", "bundled", "", loaded=loaded)


def test_a_function_on_two_replicas_is_one_entry_with_the_times_of_the_busier() -> None:
    both = [
        snapshot("a", entries=(entry(KEY, [0.5]), entry(OTHER, []))),
        snapshot("b", entries=(entry(KEY, [0.2, 0.3]),)),
    ]
    merged = {one.key: one for one in views.merged_cached_functions(both)}
    assert set(merged) == {KEY, OTHER}
    assert merged[KEY].hits == 3
    assert merged[KEY].cached == summarize([0.2, 0.3])


def test_models_pasts_and_work_are_everybody_s() -> None:
    both = [
        snapshot(
            "a",
            models=(model(False),),
            past={"gpt2": {KEY: KeyHistory(3, miss_s=2.0, compiled=COMPILED)}},
            prefetching=(("gpt2", KEY),),
        ),
        snapshot(
            "b",
            models=(model(True),),
            past={"gpt2": {KEY: KeyHistory(5, run_s=0.1)}},
            prefetching=(("gpt2", KEY), ("gpt2", OTHER)),
        ),
    ]
    assert views.merged_models(both) == [model(True)]
    assert views.merged_past(both)["gpt2"][KEY] == KeyHistory(
        5, miss_s=2.0, run_s=0.1, compiled=COMPILED
    )
    assert views.merged_warming(both) == [("gpt2", KEY), ("gpt2", OTHER)]


def test_the_status_is_that_of_the_longest_busy_and_says_how_many_are() -> None:
    ready = snapshot("a")
    tracing = snapshot("b", status=EngineStatus("tracing", "gpt2", since=50.0))
    later = snapshot("c", status=EngineStatus("generating", "opt", since=60.0))
    assert views.merged_status([]) is None
    assert views.merged_status([ready]).state == "ready"
    status = views.merged_status([ready, later, tracing])
    assert (status.state, status.detail) == ("tracing", "gpt2 · 2 of 3 replicas busy")
    dead = snapshot("d", status=EngineStatus("stopped", "why", since=1.0))
    assert views.merged_status([dead, ready]).state == "ready"
    assert views.merged_status([dead]).state == "stopped"


def test_a_status_is_dated_by_the_clock_of_who_reads_it() -> None:
    status = EngineStatus("tracing", since=1e9)  # another machine's clock
    mine = snapshot("a", status=status, status_age_s=3.0).received()
    assert time.perf_counter() - mine.status.since == pytest.approx(3.0, abs=0.5)


def test_the_board_keeps_the_newest_and_wakes_its_readers() -> None:
    async def tell() -> None:
        board = Board()
        version, nobody = await board.read(0, 0.0)
        assert nobody == []
        reading = asyncio.create_task(board.read(version, 30.0))
        await asyncio.sleep(0)
        await board.report(snapshot("a", 2))
        version, reported = await reading
        await board.report(snapshot("a", 1))  # overtaken on its way
        same, still = await board.read(version, 0.0)
        assert (same, still) == (version, reported)
        await board.leave("a")
        assert (await board.read(version, 30.0))[1] == []

    asyncio.run(tell())


def test_a_silent_replica_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell() -> None:
        board = Board()
        await board.report(snapshot("a"))
        version, reported = await board.read(0, 0.0)
        assert len(reported) == 1
        monkeypatch.setattr(boards, "SILENCE_S", -1.0)
        assert (await board.read(version, 0.0))[1] == []

    asyncio.run(tell())
