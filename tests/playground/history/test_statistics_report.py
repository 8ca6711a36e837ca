"""What statistics of runs say, empty and filled."""

import pytest

from playground.context.runs import Shown
from playground.history import records
from playground.history.statistics_report import visitor_statistics
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS, miss, result


def test_own_runs_have_percentiles_by_shape() -> None:
    runs = records.add([], Shown("Once", miss()))
    assert "No cached run yet" in visitor_statistics(runs)
    for _ in range(2):
        runs = records.add(runs, Shown("Once", result()))
    assert "gpt2-stories 16 · 1 · 32 2 3.20 s 100 ms – – 25" in words(visitor_statistics(runs))


@pytest.mark.parametrize("text", INJECTIONS)
def test_names_stay_text(text: str) -> None:
    runs = records.add([], Shown("Once", result(model=text)))
    assert is_text(visitor_statistics(runs))
