"""The runs that a browser keeps, and whatever it or a file may send back instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from playground import history
from playground.families import ANSWERING
from playground.result_panel import Shown
from tests.playground.samples import miss, result
from xla_backend import GenerationOptions


def runs_of(number: int) -> list[history.Run]:
    runs: list[history.Run] = []
    for place in range(number):
        runs = history.add(runs, Shown(f"Prompt {place}", result()))
    return runs


def test_runs_are_numbered_and_the_newest_comes_first() -> None:
    runs = history.add([], Shown("Once", miss()))
    runs = history.add(runs, Shown("Once", result()))
    assert [(run["run"], run["cache"]) for run in runs] == [(2, "hit"), (1, "miss")]
    assert runs[0]["time"] >= runs[1]["time"] > 1.7e9


def test_every_metric_of_a_run_stays_with_it() -> None:
    options = GenerationOptions(temperature=0.7, seed=5)
    answer = result(options=options, load_s=0.5)
    [run] = history.add([], Shown("Once", answer, exact_key=True), ANSWERING)
    assert run["timing"] == answer.timing.to_dict()
    assert run["key"] == run["requested_key"] == answer.key.to_dict()
    assert run["first_call"] == {"trace_s": 1.0, "compile_s": 2.0, "run_s": 0.2}
    assert run["options"] == options.to_dict()
    assert run["tokens_per_second"] == pytest.approx(30)
    assert (run["prompt"], run["text"]) == ("Once", answer.text)
    assert (run["prompt_tokens"], run["new_tokens"], run["finish"]) == (5, 3, "length")
    assert (run["load_s"], run["exact_key"], run["is_apart"]) == (0.5, True, True)
    assert "TensorFlow" in run["machine"]


def test_a_record_survives_the_browser() -> None:
    runs = history.add([], Shown("One\ud800\0", result()))
    sent = json.loads(json.dumps(runs).encode("utf-8"))
    assert history.readable(sent) == runs


def test_a_record_from_before_there_were_batches_is_of_a_run_alone() -> None:
    [run] = history.add([], Shown("Once", result(batch_size=4)))
    assert run["batch_size"] == 4
    del run["batch_size"]
    assert history.checked(run)["batch_size"] == 1


def test_only_so_many_runs_are_kept() -> None:
    runs = runs_of(history.MOST_RUNS + 3)
    assert len(runs) == history.MOST_RUNS
    assert runs[0]["run"] == history.MOST_RUNS + 3


def test_long_texts_are_cut_and_the_whole_stays_small() -> None:
    runs: Any = []
    for _ in range(history.MOST_RUNS):
        runs = history.add(runs, Shown("a" * 10_000, result(text="b" * 10_000)))
    assert 20 < len(runs) < history.MOST_RUNS
    assert len(json.dumps(runs)) <= history.MOST_JSON_CHARACTERS
    assert len(runs[0]["prompt"]) == history.MOST_CHARACTERS
    assert runs[0]["prompt_is_whole"] is False
    assert history.readable(json.loads(json.dumps(runs))) == runs


def test_what_is_pinned_outlives_what_is_not() -> None:
    runs = history.pin(runs_of(history.MOST_RUNS), 1)
    runs = history.add(runs, Shown("One more", result()))
    assert [run["run"] for run in runs[-2:]] == [3, 1]


@pytest.mark.parametrize(
    "sent",
    [
        None,
        "runs",
        {"run": 1},
        [None, 1, "x", [], {}],
        [{"run": 1, "cache": "unheard of"}],
        [{"run": "1<script>", "cache": "hit"}],
    ],
)
def test_what_cannot_be_read_is_left_out(sent: object) -> None:
    assert history.readable(sent) == []


@pytest.mark.parametrize(
    "change",
    [
        {"run": True},
        {"run": 10**400},
        {"time": float("nan")},
        {"time": 1e300},
        {"key": {"padded_length": 16}},
        {"key": {"padded_length": "<b>", "num_beams": 1, "max_new_tokens": 1}},
        {"timing": {"total_s": 1}},
        {"first_call": None},
        {"tokens_per_second": "<b>"},
        {"prompt": None},
        {"prompt": "a" * (history.MOST_CHARACTERS + 1)},
        {"finish": "<b>"},
        {"options": {"num_beams": 1_000}},
        {"options": {"unheard_of": 1}},
        {"exact_key": "yes"},
        {"machine": 5},
        {"pinned": -1},
        {"cache": "<b>"},
    ],
)
def test_a_record_with_a_wrong_value_is_left_out(change: dict[str, Any]) -> None:
    [good] = history.add([], Shown("Once", result()))
    assert history.readable([{**good, **change}, good]) == [good]


def test_what_nobody_knows_is_dropped_from_a_record() -> None:
    [good] = history.add([], Shown("Once", result()))
    assert history.checked({**good, "extra": "x" * 10**6}) == good


def test_two_runs_can_be_pinned_and_a_third_replaces_the_first() -> None:
    runs = runs_of(4)
    for number in (2, 4):
        runs = history.pin(runs, number)
    assert [run["run"] for run in history.pinned(runs)] == [2, 4]
    runs = history.pin(runs, 1)
    assert [run["run"] for run in history.pinned(runs)] == [4, 1]
    assert [run["run"] for run in runs if run["pinned"]] == [4, 1]
    runs = history.pin(runs, 4)
    assert [run["run"] for run in history.pinned(runs)] == [1]


def test_one_run_can_be_found_and_left_out() -> None:
    runs = runs_of(3)
    assert history.find(runs, 2) == runs[1]
    assert history.find(runs, "2") is None
    assert [run["run"] for run in history.without(runs, 2)] == [3, 1]


def test_runs_of_elsewhere_join_once_and_are_numbered_after_the_own_ones() -> None:
    others = runs_of(3)
    own = history.add([], Shown("Mine", result()))
    merged, added = history.merge(own, others)
    assert added == 3
    assert [(run["run"], run["prompt"]) for run in merged] == [
        (4, "Prompt 2"),
        (3, "Prompt 1"),
        (2, "Prompt 0"),
        (1, "Mine"),
    ]
    assert history.merge(merged, others) == (merged, 0)


def test_an_import_never_pushes_own_runs_out() -> None:
    own = runs_of(history.MOST_RUNS - 1)
    merged, added = history.merge(own, history.add([], Shown("a", miss())) + runs_of(2))
    assert added == 1
    assert merged[1:] == own
