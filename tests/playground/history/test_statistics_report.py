"""What statistics of runs say, empty and filled."""

import re

import pytest

from playground.context.runs import Shown
from playground.history import records
from playground.history.statistics_report import visitor_statistics
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS, miss, result


def test_own_runs_have_speeds_a_histogram_and_a_table() -> None:
    assert "Nothing to count yet" in visitor_statistics([])
    runs = records.add([], Shown("Once", miss()))
    for _ in range(2):
        runs = records.add(runs, Shown("Once", result()))
    markup = visitor_statistics(runs)
    assert re.findall(r'"mark mark-(\w+)" title', markup) == ["miss", "hit", "hit"]
    text = words(markup)
    assert "2 cached runs by time" in text
    assert "gpt2-stories 16 · 1 · 32 2 3.20 s 100 ms – – 25" in text

    text = words(visitor_statistics(records.add([], Shown("Once", miss()))))
    assert "No cached run yet" in text


@pytest.mark.parametrize("text", INJECTIONS)
def test_names_stay_text(text: str) -> None:
    runs = records.add([], Shown("Once", result(model=text)))
    assert is_text(visitor_statistics(runs))
