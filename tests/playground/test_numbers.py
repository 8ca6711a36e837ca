"""Numbers of one screen agree, wherever a request is shown. The times are made up."""

import re
from dataclasses import replace

import htpy as h
import pytest

from playground.context.runs import Shown
from playground.history import records
from playground.history.report import comparison
from playground.tabs.generate.in_words import latency
from playground.tabs.generate.report import origin, report
from playground.ui.quantities import seconds, times
from playground.ui.tables import functions_table
from tests.playground.reader import words
from tests.playground.samples import FIRST_CALL, KEY, entry, miss, result
from xla_backend import (
    CacheEntry,
    CacheOutcome,
    GenerationOptions,
    GenerationResult,
    Grammar,
    Timing,
)
from xla_backend.interface.results import KeyHistory
from xla_backend.interface.timing import Span

_UNITS = {"s": 1.0, "ms": 0.001}


def read(text: str, name: str) -> float:
    """The seconds that stand behind a name."""
    found = re.search(rf"{re.escape(name)} ([\d.]+) (s|ms)\b", text)
    assert found, f"{name} in {text}"
    return float(found[1]) * _UNITS[found[2]]


def row_of_a_pool() -> GenerationResult:
    """Its queue was between the chunks of its text, which took no time from its first token."""
    spans = (
        Span("prefill", 0.0, 0.550, 1),
        Span("queue", 0.550, 0.253),
        Span("decode", 0.803, 0.100, 2),
    )
    timing = Timing(queue_s=0.253, prefill_s=0.550, decode_s=0.100, total_s=0.903)
    return result(timing=timing, spans=spans, since_first_token_s=0.353, first_call=FIRST_CALL)


RESULTS = {
    "hit": result(),
    "miss": miss(),
    "disk": miss(cache=CacheOutcome.DISK),
    "reused": result(cache=CacheOutcome.REUSED),
    "row": row_of_a_pool(),
    "waited": result().after_waiting(2.5),
    "long": result(
        timing=Timing(prefill_s=0.02, decode_s=9.0, total_s=9.02), since_first_token_s=9.0
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_phases_of_a_report_add_up_and_those_before_the_first_token_to_ttft(name: str) -> None:
    answer = RESULTS[name]
    text = words(report(Shown("Once", answer)))
    phases = text.partition("Where the time of this call went")[2].partition("Save as")[0]
    shown = {
        name: float(number) * _UNITS[unit]
        for name, number, unit in re.findall(r"([A-Z][A-Za-z ,]*?) ([\d.]+) (s|ms)\b", phases)
    }
    whole_s = answer.timing.total_s
    assert sum(shown.values()) == pytest.approx(whole_s, rel=0.02, abs=0.004)
    later = ("Decode", "Detokenize", "Queue after the first token")
    before = sum(each for name, each in shown.items() if name not in later)
    assert read(text, "TTFT") == pytest.approx(before, rel=0.02, abs=0.004)
    if "End to end" in text:
        assert read(text, "End to end") == pytest.approx(whole_s, rel=0.01)
    else:
        assert read(text, "Work") + read(text, "Waited") == pytest.approx(whole_s, rel=0.02)
    assert latency(answer).startswith(f"First token after {seconds(answer.ttft_s or 0.0)}")


@pytest.mark.parametrize("name", ["hit", "reused", "row", "waited", "long"])
def test_how_many_times_faster_is_the_ratio_of_the_bars_below_it(name: str) -> None:
    text = words(report(Shown("Once", RESULTS[name])))
    ratio = read(text, "First call") / read(text, "This call")
    [shown] = re.findall(r"([\d.,]+)× faster to the first token", text)
    assert float(shown.replace(",", "")) == pytest.approx(ratio, rel=0.02)
    once_s = FIRST_CALL.trace_s + FIRST_CALL.compile_s
    assert read(text, "First call") - read(text, "This call") == pytest.approx(once_s, rel=0.02)


def test_a_longer_text_is_not_less_gain() -> None:
    short, long = RESULTS["hit"], RESULTS["long"]
    assert short.speedup == pytest.approx(long.speedup)


def test_queue_and_prefill_beside_ttft_agree_in_a_comparison_of_runs() -> None:
    runs = records.add(records.add([], Shown("A", result())), Shown("B", row_of_a_pool()))
    shown = str(h.fragment[comparison(h.thead, runs)])
    row = dict(re.findall(r">(Queue[^<]*|TTFT|Prefill)</th><td>([^<]*)<", shown))
    assert (row["TTFT"], row["Prefill"]) == ("550 ms", "550 ms")
    assert row["Queue after the first token"] == "253 ms"
    assert row.get("Queue", "–") == "–"


def test_a_function_s_calls_are_counted_once_and_its_own_run_is_no_cached_one() -> None:
    past = {"gpt2-stories": {KEY: KeyHistory(times=7)}}
    text = words(functions_table([entry()], past))
    assert "100 ms median of 3" in text and "requested 7 times" not in text
    own = KeyHistory(times=1, miss_s=3.2, run_s=FIRST_CALL.run_s, compiled=FIRST_CALL)
    for entries in ([], [entry(cached=None, hits=0)]):
        text = words(functions_table(entries, {"gpt2-stories": {KEY: own}}))
        assert "last run" not in text and "median" not in text


def test_the_table_of_functions_has_the_gain_of_its_own_numbers() -> None:
    shown: CacheEntry = entry()
    text = words(functions_table([shown], {}))
    assert shown.cached is not None
    run_s = shown.cached.p50_s
    assert times((read(text, "trace") + read(text, "compile") + run_s) / run_s) in text


def test_limits_and_grammars_are_named_as_what_they_are() -> None:
    options = GenerationOptions(max_new_tokens=128, grammar=Grammar.regex("[0-9]+"))
    answer = replace(result(), options=options)
    assert "Limit 128, written 3" in words(origin(Shown("Once", answer)))
    assert "Tokenize, build grammar" in words(report(Shown("Once", answer)))
