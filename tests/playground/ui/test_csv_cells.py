"""Cells that a spreadsheet must not run."""

import csv
import io

import pytest

from playground.ui.csv_cells import csv_table, guarded, unguarded

FORMULAS = (
    '=HYPERLINK("http://example.org")',
    "+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "  =1+1",
    "＝1",
)


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_begin_with_an_apostrophe(text: str) -> None:
    assert guarded(text) == "'" + text


@pytest.mark.parametrize("text", ["", "Once upon a time", "a=b", "1 - 1", "“=”", "🦊", "x'y"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert guarded(text) == text


@pytest.mark.parametrize("text", [*FORMULAS, "", "plain", "'", "''", "'quoted'", "'=1", "''=1"])
def test_reading_gives_back_what_was_written(text: str) -> None:
    assert unguarded(guarded(text)) == text


def test_a_table_keeps_numbers_and_guards_text() -> None:
    rows = [[1, -0.5, None, "=1+1", 'a "quoted", text\nof two lines\0']]
    text = csv_table(["n", "x", "none", "formula", "text"], rows)
    [head, row] = csv.reader(io.StringIO(text, newline=""))
    assert head == ["n", "x", "none", "formula", "text"]
    assert row == ["1", "-0.5", "", "'=1+1", 'a "quoted", text\nof two lines\ufffd']

    assert unguarded("'tis the season") == "'tis the season"
