"""How runs look: the table, the timeline and two runs side by side."""

import re

import pytest

from playground.context.runs import Shown
from playground.history import records
from playground.history.report import history_table, side_by_side, timeline, verdict
from playground.ui.wording import ANSWERING
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS, miss, result
from xla_backend import GenerationOptions, Grammar, Timing


def first_and_second() -> list[records.Record]:
    runs = records.add([], Shown("Once", miss()))
    return records.add(runs, Shown("Once", result(options=GenerationOptions(seed=7))))


def test_where_runs_are_missing_it_says_so() -> None:
    assert "Your runs appear here" in history_table([])
    assert timeline([]) == side_by_side([]) == ""
    text = side_by_side(records.pin(first_and_second(), 1))
    assert "Pin another run" in text
    assert "faster" not in text


def test_a_row_has_the_figures_its_details_the_rest_and_buttons_by_name() -> None:
    text = words(history_table(first_and_second()))
    assert "2 HIT Once there was a fox" in text
    assert "16 · 1 · 32 gpt2-stories" in text
    assert "102 ms 22 ms 25 Rerun Pin Delete" in text
    for metric in ("Compile 2.00 s", "Seed 7", "Decode 80 ms", "Prompt tokens 5", "Early stopping"):
        assert metric in text

    table = history_table(first_and_second())
    assert re.findall(r'data-act="(\w+)" data-run="(\d)" aria-label="([^"]*)"', table)[:3] == [
        ("retry", "2", "Rerun run 2"),
        ("select", "2", "Pin run 2"),
        ("delete", "2", "Delete run 2"),
    ]

    runs = records.add([], Shown("question: " + "a" * 200, result(text="a fox")), ANSWERING)
    assert re.search(r"question: a{49}… → </span>a fox<", history_table(runs))


def test_the_timeline_is_coloured_by_outcome_in_the_order_of_the_runs() -> None:
    marks = timeline(first_and_second()).partition("legend")[0]
    assert re.findall(r"mark-(\w+)", marks) == ["miss", "hit"]
    assert "Run 1: MISS, 3.20 s" in marks


def test_two_pinned_runs_stand_beside_each_other_with_their_differences() -> None:
    runs = records.pin(records.pin(first_and_second(), 1), 2)
    text = side_by_side(runs)
    # 3.2 s over 0.102 s
    assert "Run 2 was 31× faster than run 1, in total." in words(text)
    different, _, alike = words(text).partition("Alike in")
    for metric in ("End to end 3.20 s 102 ms", "Trace 1.00 s –", "Seed 0 7", "Text Once there was"):
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
    runs = records.pin(records.add(runs, Shown(text, result(text=text, model=text))), 1)
    for markup in (history_table(runs), side_by_side(runs), timeline(runs)):
        assert is_text(markup)
