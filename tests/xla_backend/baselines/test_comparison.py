"""Baselines: what they measure, that all write the same, that their processes end in time."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from xla_backend import CacheOutcome, GenerationOptions, InvalidRequest
from xla_backend.baselines.comparison import (
    MODULE,
    Baseline,
    BaselineComparison,
    BaselineJob,
    BaselineProgress,
    variables_for,
)
from xla_backend.checkpoints.models import Registry
from xla_backend.child_process.parent_side import ChildProcess

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("baselines") / "t5"
    return checkpoints.t5(folder, num_layers=1, num_decoder_layers=1)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def began(comparison: BaselineComparison) -> tuple[Any, int]:
    """A comparison whose first baseline has begun, and the process of that baseline."""
    progress = iter(comparison)
    next(progress)
    return progress, comparison._processes[comparison.baselines[0]].pid


@pytest.mark.release
def test_all_baselines_answer_an_encoder_decoder_alike(t5: Path) -> None:
    options = GenerationOptions(max_new_tokens=5, num_beams=2)
    comparison = BaselineComparison(str(t5), PROMPT, options, cached_calls=2)
    reported = list(comparison)
    assert comparison.failures == {}
    assert comparison.identical is True
    results = comparison.results
    assert list(results) == list(Baseline), "they run in this order"

    prompt_tokens = results[Baseline.ENGINE].prompt_tokens
    assert {result.prompt_tokens for result in results.values()} == {prompt_tokens}
    assert results[Baseline.EAGER].padded_length == prompt_tokens < 16
    assert results[Baseline.GUIDE].padded_length == results[Baseline.ENGINE].padded_length == 16
    assert len({result.text for result in results.values()}) == 1

    eager, guide = results[Baseline.EAGER], results[Baseline.GUIDE]
    assert eager.trace_s == eager.compile_s == 0.0
    assert guide.trace_s > 0
    assert guide.compile_s > 0
    assert guide.first_s == pytest.approx(guide.trace_s + guide.compile_s + guide.run_s)
    assert guide.later.median_s < guide.first_s
    assert results[Baseline.ENGINE].cache is CacheOutcome.MISS
    assert results[Baseline.ENGINE_FROM_DISK].cache is CacheOutcome.DISK
    for result in results.values():
        assert len(result.cached_s) == 2
        assert result.import_s + result.load_s + result.first_s < result.wall_s

    stages = {each: {at.stage for at in reported if at.baseline is each} for each in Baseline}
    for baseline, expected in {
        Baseline.EAGER: {"importing", "loading", "running"},
        Baseline.GUIDE: {"importing", "loading", "tracing", "compiling"},
        Baseline.ENGINE: {"importing", "loading", "running", "tracing", "compiling"},
    }.items():
        assert stages[baseline] - {"cached"} == expected
    values = json.loads(json.dumps(comparison.to_json()))
    assert values["identical"] is True
    assert values["lanes"]["guide"]["median_s"] == guide.later.median_s
    assert values["lanes"]["guide"]["spread_s"] == sorted(guide.cached_s)
    first = next(place for place, at in enumerate(reported) if at.stage == "cached")
    assert {at.stage for at in reported[first:]} == {"cached"}, "all first calls come before"
    assert comparison.is_over


def test_stopping_ends_the_process_at_once(small_gpt2: Path) -> None:
    comparison = BaselineComparison(
        str(small_gpt2), PROMPT, baselines=(Baseline.EAGER, Baseline.GUIDE)
    )
    progress, pid = began(comparison)
    assert is_alive(pid)
    comparison.stop()
    assert not is_alive(pid)
    assert list(progress)[1:] == [], "at most what was told before"
    assert comparison.results == comparison.failures == {}


def test_nobody_who_reads_on_ends_the_process_too(small_gpt2: Path) -> None:
    progress, pid = began(BaselineComparison(str(small_gpt2), PROMPT, baselines=(Baseline.EAGER,)))
    progress.close()
    assert not is_alive(pid)


def test_a_baseline_ends_with_its_parent(small_gpt2: Path) -> None:
    request = str(small_gpt2), PROMPT, GenerationOptions(), Registry()
    job = BaselineJob(Baseline.EAGER, *request, "off", time.perf_counter())
    process = ChildProcess(MODULE, job, variables_for(Baseline.EAGER))
    assert process.receive() == ("chunk", None, "importing")
    process._channel.close()  # as the system does when the parent ends
    process.end(within_s=60)
    assert process.cause() == "it ended with exit status 1"


@pytest.mark.release
def test_later_calls_go_in_turn_and_survive_a_process_that_dies(small_gpt2: Path) -> None:
    ways = (Baseline.ENGINE, Baseline.ENGINE_FROM_DISK)
    comparison = BaselineComparison(
        str(small_gpt2), PROMPT, GenerationOptions(max_new_tokens=2), baselines=ways, cached_calls=4
    )
    reported = []
    for progress in comparison:
        if progress.stage == "cached":
            reported.append([len(comparison.results[way].cached_s) for way in ways])
            if len(reported) == 3:
                os.kill(comparison._processes[Baseline.ENGINE].pid, signal.SIGKILL)
    assert reported[:3] == [[0, 0], [1, 1], [2, 2]]
    assert [len(comparison.results[way].cached_s) for way in ways] == [2, 4]
    assert "memory runs out" in comparison.failures[Baseline.ENGINE]


def test_a_baseline_that_dies_is_a_failure_and_the_others_go_on(small_gpt2: Path) -> None:
    comparison = BaselineComparison(
        str(small_gpt2),
        PROMPT,
        GenerationOptions(max_new_tokens=2),
        baselines=(Baseline.GUIDE, Baseline.EAGER),
        cached_calls=1,
    )
    progress, pid = began(comparison)
    os.kill(pid, signal.SIGKILL)
    reported = list(progress)
    assert "memory runs out" in comparison.failures[Baseline.GUIDE]
    assert list(comparison.results) == [Baseline.EAGER]
    assert comparison.identical is None
    assert isinstance(reported[-1], BaselineProgress)


@pytest.mark.release
def test_the_engine_is_measured_where_transformers_has_no_tensorflow_model(tmp_path: Path) -> None:
    folder = checkpoints.rotary(tmp_path / "qwen3", "qwen3", num_hidden_layers=1)
    options = GenerationOptions(max_new_tokens=5)
    comparison = BaselineComparison(str(folder), PROMPT, options, cached_calls=1)
    list(comparison)
    reason = "TensorFlow has no class for a qwen3 model; this engine needs none."
    assert comparison.failures == {Baseline.EAGER: reason, Baseline.GUIDE: reason}
    assert list(comparison.results) == [Baseline.ENGINE, Baseline.ENGINE_FROM_DISK]


@pytest.mark.release
def test_a_llama_model_runs_as_mistral_s_in_transformers(tmp_path: Path) -> None:
    folder = checkpoints.rotary(
        tmp_path / "llama", "llama", num_hidden_layers=1, tie_word_embeddings=True
    )
    comparison = BaselineComparison(
        str(folder),
        PROMPT,
        GenerationOptions(max_new_tokens=8),
        baselines=(Baseline.EAGER, Baseline.GUIDE, Baseline.ENGINE),
        cached_calls=1,
    )
    list(comparison)
    assert comparison.failures == {}
    assert comparison.identical is True


def test_what_no_baseline_can_answer_is_said_as_everywhere(small_gpt2: Path) -> None:
    with pytest.raises(InvalidRequest, match="prompt is empty"):
        list(BaselineComparison(str(small_gpt2), " ", baselines=(Baseline.ENGINE,)))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"options": GenerationOptions(temperature=0.5)}, "set temperature to 0"),
        ({"options": GenerationOptions(presence_penalty=1, stop="a")}, "presence_penalty, stop: l"),
        ({"cached_calls": 0}, "cached_calls must be a whole number from 1 to 50, not 0"),
        ({"cached_calls": 51}, "from 1 to 50, not 51"),
        ({"cached_calls": "many"}, "from 1 to 50, not many"),
        ({"cached_calls": 1.5}, "from 1 to 50"),
    ],
)
def test_a_mistake_is_found_before_a_start(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        BaselineComparison("gpt2-stories", PROMPT, **arguments)
