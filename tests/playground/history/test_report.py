"""How runs look: the table, and what differs in two of them."""

import re

import htpy as h
import pytest

from playground.context.runs import Shown
from playground.history import records
from playground.history.report import comparison, history_table, verdict
from playground.ui.wording import ANSWERING
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS, miss, result
from xla_backend import GenerationOptions, Grammar, Timing


def first_and_second() -> list[records.Record]:
    runs = records.add([], Shown("Once", miss()))
    return records.add(runs, Shown("Once", result(options=GenerationOptions(seed=7))))


def test_where_runs_are_missing_it_says_so() -> None:
    assert "Your runs appear here" in history_table([])


def test_a_row_has_the_figures_its_details_the_rest_and_buttons_by_name() -> None:
    text = words(history_table(first_and_second()))
    assert "2 HIT Once there was a fox" in text
    assert "16 · 1 · 32 gpt2-stories" in text
    assert "102 ms 22 ms 25 Rerun Delete" in text
    for metric in ("Compile 2.00 s", "Seed 7", "Decode 80 ms", "Prompt tokens 5", "Early stopping"):
        assert metric in text

    table = history_table(first_and_second())
    assert re.findall(r'data-act="(\w+)" data-run="(\d)" aria-label="([^"]*)"', table)[:2] == [
        ("retry", "2", "Rerun run 2"),
        ("delete", "2", "Delete run 2"),
    ]

    runs = records.add([], Shown("question: " + "a" * 200, result(text="a fox")), ANSWERING)
    assert re.search(r"question: a{49}… → </span>a fox<", history_table(runs))


def test_runs_are_compared_by_what_differs() -> None:
    runs = first_and_second()
    # 3.2 s over 0.102 s
    told = words(str(verdict(runs, ["A", "B"])))
    assert "A was 31× faster than B, in total." in told
    different, _, alike = words(str(h.fragment[comparison(h.thead, runs)])).partition("Alike in")
    for metric in ("End to end 102 ms 3.20 s", "Trace – 1.00 s", "Seed 7 0"):
        assert metric in different
    assert "Model gpt2-stories" in alike
    assert "Top k 50" in alike
    assert "Top k" not in different


@pytest.mark.parametrize(
    ("slow", "told"),
    [
        ({"compile_s": 2.0}, "2.00 s of the difference is compiling."),
        ({"queue_s": 3.0}, "3.00 s of the difference is waiting in the queue."),
        ({"tokenize_s": 1.0}, "1.00 s of the difference is building its grammar."),
        ({"decode_s": 1.0}, ""),
    ],
)
def test_why_a_run_took_longer_is_told_where_it_is_known(slow: dict[str, float], told: str) -> None:
    grammar = GenerationOptions(grammar=Grammar.json_schema({"type": "integer"}))
    whole_s = 0.1 + sum(slow.values())
    timing = {"fast": Timing(total_s=0.1), "slow": Timing(total_s=whole_s, **slow)}
    shown = [Shown("", result(timing=each, options=grammar)) for each in timing.values()]
    said = str(verdict([records.record(each, 1) for each in shown], ["A", "B"]))
    assert words(said) == f"A was {whole_s / 0.1:,.0f}× faster than B, in total. {told}".strip()


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_of_a_record_stays_text(text: str) -> None:
    runs = records.add([], Shown(text, result(text=text, model=text)))
    assert is_text(history_table(runs))
