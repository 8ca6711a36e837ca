"""What the benchmarks compute from what they measured, and the tables that they print.

No measure is run here: each needs minutes, a quiet machine, or programs that tests do not install.
"""

import argparse
import importlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmarks import checkpoints, harness
from benchmarks.__main__ import MEASURES, add_options
from benchmarks.client import Answer, ask_all
from benchmarks.contenders.memory_reader import float32_bytes
from benchmarks.contenders.running import CONTENDERS, ENGINE, LIMIT, Contender, ContenderFailed
from benchmarks.harness import MeasureFailed
from benchmarks.measures import crowd, load, numbers, peers, tools
from tests.gguf_files import finish

NAMED = {contender.name: contender for contender in CONTENDERS}
FLOAT32, INT8, Q4_1 = (NAMED[name] for name in (ENGINE, f"{ENGINE}, int8", f"{ENGINE}, Q4_1"))
LLAMA_CPP, PYTORCH = NAMED["llama.cpp, Q4_1"], NAMED["PyTorch"]


def answer(sent: float = 0.0, first: float = 1.0, last: float = 3.0, text: str = "a") -> Answer:
    return Answer(sent, first, last, text, tokens=5, prompt_tokens=3, cached_tokens=0, cache="hit")


@pytest.mark.parametrize("says", [True, False])
def test_the_format_is_the_file_s_whatever_its_name(tmp_path: Path, says: bool) -> None:
    file = tmp_path / "gemma-3-270m-q8_0-mine.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    if says:
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    blocks = np.zeros((256, 144), np.uint8)
    writer.add_tensor("a", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    writer.add_tensor("b", np.zeros(256, np.float32))
    finish(writer)
    form = "Q4_K_M" if says else "Q4_K"
    assert checkpoints.format_of_file(str(file)) == form
    chosen = peers._chosen(str(file), ["this engine", "llama.cpp"])  # noqa: SLF001
    assert [one.name for one in chosen] == [
        f"this engine, {form}",
        f"this engine, {form} with int8",
        f"llama.cpp, {form}",
    ]
    file.write_bytes(b"no model")
    with pytest.raises(MeasureFailed, match="is no GGUF file"):
        checkpoints.format_of_file(str(file))


def test_peers_fail_where_nobody_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise ContenderFailed("not installed")

    monkeypatch.setattr(peers, "Running", fails)
    monkeypatch.setattr(checkpoints, "folder", Path)
    options = argparse.Namespace(**peers.OPTIONS | {"models": ["a model"]})
    with pytest.raises(MeasureFailed, match="none of the contenders can run a model"):
        list(peers.measure(options))


def test_calls_take_turns_for_so_many_rounds_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, called = 0.0, []
    monkeypatch.setattr("time.perf_counter", lambda: now)

    def call(name: str) -> str:
        nonlocal now
        now += 1.0
        called.append(name)
        return name * 2

    calls = {"a": lambda: call("a"), "b": lambda: call("b")}
    assert harness.in_turn(calls, rounds=2) == {"a": ["aa"] * 2, "b": ["bb"] * 2}
    assert called == ["a", "b", "a", "b"]
    assert len(harness.in_turn(calls, rounds=1, least_s=5.0)["a"]) == 3


def test_ratios_shares_and_calls_make_the_numbers_of_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A machine that halves its speed for one round changes no ratio.
    assert harness.ratio([1.0, 2.0, 1.0], [0.5, 1.0, 0.5]) == 2.0
    readings = iter([(100.0, 50.0, 10.0), (200.0, 100.0, 40.0)])  # of all, busy, our own
    monkeypatch.setattr(harness.OtherPrograms, "_read", staticmethod(lambda: next(readings)))
    assert harness.OtherPrograms().share() == pytest.approx(0.2)
    times = peers.Times.of([0.32, 0.33], [0.94, 1.57], 64, [1, 2])
    assert times.token == pytest.approx([0.01, 0.02])
    assert times.first == pytest.approx([0.31, 0.31])


def test_a_table_has_a_head_rows_and_sentences_below() -> None:
    rows: list[harness.Row | str] = [
        {"what": "one", "ms": 1234.5},
        "A sentence.",
        {"what": "two", "ms": 12.34},
        {"what": "three", "ms": 1.234},
        {"what": "four", "ms": 12345},
    ]
    assert list(harness.table(rows)) == [
        "| what | ms |",
        "| --- | --- |",
        "| one | 1,234 |",
        "| two | 12.3 |",
        "| three | 1.23 |",
        "| four | 12,345 |",
        "",
        "A sentence.",
    ]


@pytest.mark.parametrize("name", MEASURES)
def test_options_have_the_types_of_their_defaults(name: str) -> None:
    module = importlib.import_module(f"benchmarks.measures.{name}")
    parser = argparse.ArgumentParser()
    add_options(parser, module)
    assert vars(parser.parse_args([])) == module.OPTIONS
    for option, default in module.OPTIONS.items():
        given = [str(one) for one in default] if isinstance(default, list) else [str(default)]
        flag = f"--{option.replace('_', '-')}"
        assert vars(parser.parse_args([flag, *given]))[option] == default


def test_peers_and_bytes_are_of_the_same_weights(tmp_path: Path) -> None:
    with_int8 = NAMED[f"{Q4_1.name} with int8"]
    assert peers.base_of(LLAMA_CPP, [FLOAT32, Q4_1, with_int8, PYTORCH]) == Q4_1
    assert peers.base_of(with_int8, [FLOAT32, Q4_1, with_int8]) == Q4_1
    assert peers.base_of(LLAMA_CPP, [FLOAT32, INT8]) == FLOAT32
    assert peers.base_of(PYTORCH, [PYTORCH, INT8]) is None
    tensors = {"a": np.zeros((3, 5), np.float16), "b": np.zeros(7, np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert float32_bytes(tmp_path) == 4 * (15 + 7)


@pytest.mark.parametrize(
    ("contender", "tokens", "said"),
    [
        (PYTORCH, [1, 2, 3], "the same"),
        (PYTORCH, [1, 2, 4], "others from 3 on"),
        (PYTORCH, [1, 2], "only 2: its time does not compare"),
        (LLAMA_CPP, [-1, -1, -1], ""),
        (NAMED[LIMIT], [], ""),
    ],
)
def test_other_tokens_are_told(contender: Contender, tokens: list[int], said: str) -> None:
    over = peers.Times([1.0], [1.0], [1, 2, 3])
    assert peers.remark(contender, tokens, 3, over) == said


@pytest.mark.parametrize(
    ("arguments", "are_right"),
    [
        ({"base": 10, "town": "New York, NY"}, True),
        ({"base": 10, "town": "new york ny", "unit": "cm"}, True),
        ({"base": 11, "town": "New York, NY"}, False),
        ({"town": "New York, NY"}, False),
        ({"base": 10, "town": "New York, NY", "height": 5}, False),
        ({"base": 10, "town": "New York, NY", "unit": "m"}, False),
    ],
)
def test_arguments_of_calls_are_those_that_bfcl_allows(
    arguments: dict[str, Any], are_right: bool
) -> None:
    allowed = {"base": [10], "town": ["New York NY"], "unit": ["cm", ""]}
    assert tools.are_right(arguments, allowed) is are_right


def test_what_a_crowd_sees() -> None:
    answers = [answer(0.0, 1.0, 3.0), answer(1.0, 3.0, 5.0), answer(2.0, 9.0, 10.0)]
    given, wall_s = ask_all([lambda one=one: one for one in answers])
    assert (given, wall_s) == (answers, 10.0)
    wave = crowd.Wave.of(answers, wall_s)
    assert (wave.ttft_s, wave.longest_ttft_s, wave.tpot_s, wave.rate) == (2.0, 7.0, 0.5, 1.5)


def test_wrong_and_failed_answers_of_a_load_are_counted() -> None:
    asked = [
        load.Visit(0, answer()),
        load.Visit(1, answer(last=5.0), "another text than alone"),
        load.Visit(1, None, "failed: no"),
    ]
    samples = [load.Sample(100 + number, 50 * 10**6, 80 * 10**6, 2) for number in range(12)]
    told = {row["what"]: row[""] for row in load.summary(asked, samples, clients=2, seconds=4.0)}
    assert told["answers, a second"] == "2, 0.5"
    assert (told["failed"], told["another text than alone"]) == (1, 1)
    assert told["answers to each client"] == "1 to 1"
    assert told["engine, the most of its limit, MB"] == "50 of 80"
    assert 0.0 < load.growth(samples) < 0.1


@pytest.mark.parametrize("model", ["no-such-Q4_K_M.gguf", "no-such-model", "no-such-model-Q4_K"])
def test_a_model_that_is_not_there_is_named(model: str) -> None:
    with pytest.raises(harness.MeasureFailed, match=f"there is no (file|model) {model}"):
        checkpoints.folder(model)


def test_the_divergence_is_that_of_all_tokens_where_the_rest_is_alike() -> None:
    first, second = np.array([0.5, 0.25, 0.15, 0.1]), np.array([0.4, 0.35, 0.15, 0.1])
    whole = float(np.sum(first * np.log(first / second)))
    known = [dict(enumerate(np.log(shares)[:3].tolist())) for shares in (first, second)]
    assert numbers.divergence(*known) == pytest.approx(whole)
    assert numbers.divergence(known[0], known[0]) == pytest.approx(0.0, abs=1e-9)
    # Tokens that only one of them names belong to the rest of both.
    del known[1][0]
    coarse = 0.25 * np.log(0.25 / 0.35) + 0.6 * np.log(0.6 / 0.5)
    assert numbers.divergence(*known) == pytest.approx(coarse)
