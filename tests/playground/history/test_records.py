"""The runs that a browser keeps, and whatever it or a file may send back instead."""

import json
from typing import Any

import pytest

from playground.context.runs import Shown
from playground.history import records
from playground.ui.wording import ANSWERING
from tests.playground.samples import miss, result
from xla_backend import GenerationOptions, question


def runs_of(number: int) -> list[records.Record]:
    runs: list[records.Record] = []
    for place in range(number):
        runs = records.add(runs, Shown(f"Prompt {place}", result()))
    return runs


def test_every_metric_of_a_run_stays_with_it_and_the_newest_comes_first() -> None:
    runs = records.add([], Shown("Once", miss()))
    runs = records.add(runs, Shown("Once", result()))
    assert [(run["run"], run["cache"]) for run in runs] == [(2, "hit"), (1, "miss")]
    assert runs[0]["time"] >= runs[1]["time"] > 1.7e9

    options = GenerationOptions(temperature=0.7, seed=5, exact_key=True)
    answer = result(options=options, load_s=0.5)
    [run] = records.add([], Shown("Once", answer), ANSWERING)
    assert run["timing"] == answer.timing.to_dict()
    assert run["key"] == run["requested_key"] == answer.key.to_dict()
    assert run["first_call"] == {"trace_s": 1.0, "compile_s": 2.0, "run_s": 0.2}
    assert run["options"] == options.to_dict()
    assert (run["ttft_s"], run["tpot_s"]) == pytest.approx((0.022, 0.04))
    assert run["tokens_per_second"] == pytest.approx(25)
    assert (run["prompt"], run["text"]) == ("Once", answer.text)
    assert (run["prompt_tokens"], run["new_tokens"], run["finish"]) == (5, 3, "length")
    assert (run["load_s"], run["is_apart"]) == (0.5, True)
    assert "TensorFlow" in run["machine"]


def test_a_record_survives_the_browser_without_unknown_fields() -> None:
    runs = records.add([], Shown("One\ud800\0", result()))
    sent = json.loads(json.dumps(runs).encode("utf-8"))
    assert records.readable(sent) == runs
    [good] = records.add([], Shown("Once", result()))
    assert records.checked({**good, "extra": "x" * 10**6}) == good


def test_messages_stay_messages_and_texts_stay_texts() -> None:
    asked = [question("Where?", "Be brief."), question("Where?"), "Where?"]
    runs = [records.add([], Shown(prompt, result()))[0] for prompt in asked]
    assert [run["prompt"] for run in runs] == ["Where?"] * 3
    assert [run["system"] for run in runs] == ["Be brief.", "", None]
    assert [records.checked(run) for run in runs] == runs
    del runs[2]["system"]  # as older records are
    assert records.checked(runs[2])["system"] is None


def test_records_of_earlier_versions_have_defaults() -> None:
    [run] = records.add([], Shown("Once", result(batch_size=4)))
    assert run["batch_size"] == 4
    del run["batch_size"]
    assert records.checked(run)["batch_size"] == 1

    options = GenerationOptions(temperature=0.7, seed=5, min_p=0.1, stop="end")
    [run] = records.add([], Shown("Once", result(options=options, finish="stop")))
    assert records.checked(json.loads(json.dumps(run))) == run
    for name in ("min_p", "presence_penalty", "frequency_penalty", "logit_bias", "stop"):
        del run["options"][name]
    expected = GenerationOptions(temperature=0.7, seed=5).to_dict()
    assert records.checked(run)["options"] == expected

    [run] = records.add([], Shown("Once", result()))
    del run["options"]["exact_key"]
    assert records.checked({**run, "exact_key": True})["options"]["exact_key"] is True
    assert records.checked(run)["options"]["exact_key"] is False

    [run] = records.add([], Shown("Once", result()))
    older = {name: run[name] for name in run if name not in ("ttft_s", "tpot_s")}
    times = {name: run["timing"][name] for name in run["timing"] if name != "prefill_s"}
    older["timing"] = {**times, "first_token_s": run["timing"]["prefill_s"]}
    unknown = dict.fromkeys(("ttft_s", "tpot_s", "tokens_per_second"))
    assert records.readable([older]) == [{**run, **unknown}]


def test_runs_that_end_in_two_windows_at_once_are_both_kept() -> None:
    before = runs_of(1)
    mine = records.add(before, Shown("Mine", result()))
    theirs = records.add(before, Shown("Theirs", result()))
    merged = records.taken_over(mine, before, theirs)
    assert [(run["run"], run["prompt"]) for run in merged] == [
        (3, "Mine"),
        (2, "Theirs"),
        (1, "Prompt 0"),
    ]
    assert records.taken_over(theirs, theirs, merged) == merged, "the other window has the same"
    assert records.taken_over(merged, merged, merged[1:]) == merged[1:], "one was deleted there"


def test_runs_are_bounded() -> None:
    runs = runs_of(records.MAX_RUNS + 3)
    assert len(runs) == records.MAX_RUNS
    assert runs[0]["run"] == records.MAX_RUNS + 3

    runs: Any = []
    for _ in range(records.MAX_RUNS):
        runs = records.add(runs, Shown("a" * 10_000, result(text="b" * 10_000)))
    assert 20 < len(runs) < records.MAX_RUNS
    assert len(json.dumps(runs)) <= records.MAX_JSON_CHARACTERS
    assert len(runs[0]["prompt"]) == records.MAX_CHARACTERS
    assert runs[0]["prompt_is_whole"] is False
    assert records.readable(json.loads(json.dumps(runs))) == runs


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
def test_records_that_cannot_be_read_are_left_out(sent: object) -> None:
    assert records.readable(sent) == []


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
        {"ttft_s": -1},
        {"tpot_s": "<b>"},
        {"prompt": None},
        {"prompt": "a" * (records.MAX_CHARACTERS + 1)},
        {"finish": "<b>"},
        {"options": {"num_beams": 1_000}},
        {"options": {"unheard_of": 1}},
        {"exact_key": "yes"},
        {"machine": 5},
        {"cache": "<b>"},
    ],
)
def test_a_record_with_a_wrong_value_is_left_out(change: dict[str, Any]) -> None:
    [good] = records.add([], Shown("Once", result()))
    assert records.readable([{**good, **change}, good]) == [good]


def test_runs_are_found_and_left_out() -> None:
    runs = runs_of(3)
    assert records.find(runs, 2) == runs[1]
    assert records.find(runs, "2") is None
    assert [run["run"] for run in records.without(runs, 2)] == [3, 1]


def test_runs_of_elsewhere_join_once_and_push_none_out() -> None:
    others = runs_of(3)
    own = records.add([], Shown("Mine", result()))
    merged, added = records.merge(own, others)
    assert added == 3
    assert [(run["run"], run["prompt"]) for run in merged] == [
        (4, "Prompt 2"),
        (3, "Prompt 1"),
        (2, "Prompt 0"),
        (1, "Mine"),
    ]
    assert records.merge(merged, others) == (merged, 0)

    own = runs_of(records.MAX_RUNS - 1)
    merged, added = records.merge(own, records.add([], Shown("a", miss())) + runs_of(2))
    assert added == 1
    assert merged[1:] == own


def test_cleared_runs_come_back_below_those_that_came_since() -> None:
    cleared = runs_of(2)
    [new] = records.add([], Shown("New", result()))
    both = records.under([new], cleared)
    assert [(run["run"], run["prompt"]) for run in both] == [
        (3, "New"),
        (2, "Prompt 1"),
        (1, "Prompt 0"),
    ]
    assert both[1:] == cleared
    assert records.under([], cleared) == cleared
