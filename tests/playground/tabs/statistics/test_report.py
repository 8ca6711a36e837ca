"""What the Statistics tab says, empty and filled."""

import re

import pytest

from playground.context.runs import Shown
from playground.history import records
from playground.tabs.statistics.report import engine_statistics, visitor_statistics
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS, KEY, entry, miss, result
from xla_backend import CacheKey, Signature
from xla_backend.interface.results import KeyHistory


def test_functions_show_their_first_calls_and_later_ones_on_one_scale() -> None:
    assert "has made no function yet" in engine_statistics([], {})
    assert "Nothing to count yet" in visitor_statistics([])

    text = words(engine_statistics([entry()], {"gpt2-stories": {KEY: KeyHistory(times=4)}}))
    assert "gpt2-stories 16 · 1 · 32 · first call and 3 later ones" in text
    assert "First call, compiled 3.20 s" in text
    assert "Cached 100 ms median of 3" in text

    other = CacheKey(64, 1, 32)
    past = {"gpt2-stories": {other: KeyHistory(times=9, miss_s=6.4, disk_s=0.64, run_s=0.2)}}
    markup = engine_statistics([entry()], past)
    assert re.findall(r"width:([\d.]+)%", markup) == ["100.00", "10.00", "3.12", "50.00", "1.56"]
    assert "From disk" not in markup
    assert "First call, from disk 640 ms" in words(markup)
    assert "Cached 200 ms last run" in words(markup)

    assert "no function yet" in engine_statistics([entry(key=Signature("float32[8, 4]"))], {})

    past = {"m": {CacheKey(16, 1, new): KeyHistory(times=new, miss_s=1.0) for new in range(1, 16)}}
    markup = engine_statistics([], past)
    assert markup.count("<figure") == 12
    assert "And 3 shapes less used." in markup
    assert "16 · 1 · 15 " in words(markup).partition("16 · 1 · 14 ")[0]


def test_own_runs_have_speeds_a_histogram_and_a_table() -> None:
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
    for markup in (visitor_statistics(runs), engine_statistics([entry(model=text)], {})):
        assert is_text(markup)
