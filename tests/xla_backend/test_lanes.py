"""Lanes: what they measure, that all write the same, that their processes end when they must."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from xla_backend import CacheOutcome, GenerationOptions, InvalidRequest, lanes
from xla_backend.lanes import Lane, LaneComparison, LaneProcess, LaneProgress

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.t5(tmp_path_factory.mktemp("lanes") / "t5")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def began(comparison: LaneComparison) -> tuple[Any, int]:
    """A comparison whose first lane has begun, and the process of that lane."""
    progress = iter(comparison)
    next(progress)
    assert comparison._process is not None
    return progress, comparison._process.pid


def test_all_lanes_answer_an_encoder_decoder_alike(t5: Path) -> None:
    options = GenerationOptions(max_new_tokens=5, num_beams=2)
    comparison = LaneComparison(str(t5), PROMPT, options, cached_calls=2)
    told = list(comparison)
    assert comparison.failures == {}
    assert comparison.identical is True
    results = comparison.results
    assert list(results) == list(Lane), "they run in this order"

    prompt_tokens = results[Lane.ENGINE].prompt_tokens
    assert {result.prompt_tokens for result in results.values()} == {prompt_tokens}
    assert results[Lane.EAGER].padded_length == prompt_tokens < 16
    assert results[Lane.GUIDE].padded_length == results[Lane.ENGINE].padded_length == 16
    assert len({result.text for result in results.values()}) == 1

    eager, guide = results[Lane.EAGER], results[Lane.GUIDE]
    assert eager.trace_s == eager.compile_s == 0.0
    assert guide.trace_s > 0.1
    assert guide.compile_s > 0.1
    assert guide.first_s == pytest.approx(guide.trace_s + guide.compile_s + guide.run_s)
    assert guide.median_s < guide.first_s / 10
    assert results[Lane.ENGINE].cache is CacheOutcome.MISS
    assert results[Lane.ENGINE_FROM_DISK].cache is CacheOutcome.DISK
    for result in results.values():
        assert len(result.cached_s) == 2
        assert result.import_s + result.load_s + result.first_s < result.wall_s

    stages = {lane: [each.stage for each in told if each.lane is lane] for lane in Lane}
    for lane, expected in {
        Lane.EAGER: {"importing", "loading", "running", "cached"},
        Lane.GUIDE: {"importing", "loading", "tracing", "compiling", "cached"},
        Lane.ENGINE: {"importing", "loading", "running", "tracing", "compiling", "cached"},
    }.items():
        assert set(stages[lane]) == expected
    values = json.loads(json.dumps(comparison.to_json()))
    assert values["identical"] is True
    assert values["lanes"]["guide"]["median_s"] == guide.median_s


def test_stopping_ends_the_process_at_once(small_gpt2: Path) -> None:
    comparison = LaneComparison(str(small_gpt2), PROMPT, lanes=(Lane.EAGER, Lane.GUIDE))
    progress, pid = began(comparison)
    assert is_alive(pid)
    start = time.perf_counter()
    comparison.stop()
    assert not is_alive(pid)
    assert list(progress)[1:] == [], "at most what was told before"
    assert time.perf_counter() - start < 2.0
    assert comparison.results == comparison.failures == {}


def test_nobody_who_reads_on_ends_the_process_too(small_gpt2: Path) -> None:
    progress, pid = began(LaneComparison(str(small_gpt2), PROMPT, lanes=(Lane.EAGER,)))
    progress.close()
    assert not is_alive(pid)


def test_a_lane_ends_with_its_parent(small_gpt2: Path) -> None:
    comparison = LaneComparison(str(small_gpt2), PROMPT)
    process = LaneProcess(comparison._job(Lane.EAGER, "off"))
    process._process.stdin.close()  # as the system does when the parent ends
    assert process._process.wait(timeout=60) == 1


def test_a_lane_that_dies_is_a_failure_and_the_others_go_on(small_gpt2: Path) -> None:
    comparison = LaneComparison(
        str(small_gpt2),
        PROMPT,
        GenerationOptions(max_new_tokens=2),
        lanes=(Lane.GUIDE, Lane.EAGER),
        cached_calls=1,
    )
    progress, pid = began(comparison)
    os.kill(pid, signal.SIGKILL)
    told = list(progress)
    assert "memory runs out" in comparison.failures[Lane.GUIDE]
    assert list(comparison.results) == [Lane.EAGER]
    assert comparison.identical is None
    assert isinstance(told[-1], LaneProgress)


def test_what_no_lane_can_answer_is_said_as_everywhere(small_gpt2: Path) -> None:
    with pytest.raises(InvalidRequest, match="prompt is empty"):
        list(LaneComparison(str(small_gpt2), " ", lanes=(Lane.ENGINE,)))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"options": GenerationOptions(temperature=0.5)}, "set temperature to 0"),
        ({"cached_calls": 0}, "cached_calls must be a whole number from 1 to 50, not 0"),
        ({"cached_calls": 51}, "from 1 to 50, not 51"),
        ({"cached_calls": "many"}, "from 1 to 50, not many"),
        ({"cached_calls": 1.5}, "from 1 to 50"),
    ],
)
def test_a_mistake_is_found_before_anything_starts(
    arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        LaneComparison("gpt2-stories", PROMPT, **arguments)


def test_no_lane_finds_code_that_was_compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = "--tf_xla_persistent_cache_directory=/tmp/somebody"
    monkeypatch.setenv("TF_XLA_FLAGS", f"--tf_xla_auto_jit=0 {flag}")
    assert lanes._environment()["TF_XLA_FLAGS"] == "--tf_xla_auto_jit=0"
