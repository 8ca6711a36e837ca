"""The runs that a browser keeps, and whatever it may send back instead."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from playground import history
from playground.families import ANSWERING
from playground.result_panel import Shown
from tests.playground.samples import INJECTIONS, miss, result


def test_runs_are_numbered_and_the_newest_comes_first() -> None:
    runs = history.add([], Shown("Once", miss()))
    runs = history.add(runs, Shown("Once", result()))
    assert [(run["run"], run["cache"]) for run in runs] == [(2, "hit"), (1, "miss")]


def test_a_record_survives_the_browser() -> None:
    runs = history.add([], Shown("One\ud800\0", result()))
    sent = json.loads(json.dumps(runs).encode("utf-8"))
    assert history.readable(sent) == runs
    assert "gpt2-stories" in history.history_table(sent)


def test_only_so_many_runs_are_kept_and_long_texts_are_cut() -> None:
    runs: Any = []
    for _ in range(history.MOST_RUNS + 3):
        runs = history.add(runs, Shown("a" * 10_000, result()))
    assert len(runs) == history.MOST_RUNS
    assert runs[0]["run"] == history.MOST_RUNS + 3
    assert len(json.dumps(runs)) < 100_000


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
    assert "Your runs appear here" in history.history_table(sent)


def test_a_record_with_wrong_types_is_left_out() -> None:
    [good] = history.add([], Shown("Once", result()))
    bad = [
        {**good, "key": {**good["key"], "padded_length": "<b>16</b>"}},
        {**good, "key": {"padded_length": 16}},
        {**good, "timing": {"total_s": "<b>"}},
        {**good, "tokens_per_second": "<b>"},
        {**good, "prompt": None},
    ]
    assert history.readable([*bad, good]) == [good]


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_of_a_record_stays_text(text: str) -> None:
    table = history.history_table(history.add([], Shown(text, result(text=text))))
    assert "<script" not in table
    assert "<img" not in table
    assert 'x="' not in table


def test_an_answer_is_seen_behind_a_long_input() -> None:
    runs = history.add([], Shown("question: " + "a" * 200, result(text="a fox")), ANSWERING)
    assert re.search(r"question: a{49}… → </span>a fox<", history.history_table(runs))
