"""Columns as values: what a press makes of them, and what a browser may have written."""

import pytest

from playground.settings.columns import Columns, columns_in, runs_of
from playground.tabs.generate.columns_report import bar
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS
from xla_backend import InvalidRequest

A, B, C = ({"model": name} for name in "abc")


@pytest.mark.parametrize(
    ("before", "act", "at", "after"),
    [
        (Columns((A,)), "add", 0, Columns((A, A), 1)),
        (Columns((A, B, C)), "add", 0, Columns((A, B, C))),
        (Columns((A, B)), "open", 1, Columns((A, B), 1)),
        (Columns((A, B), 1), "open", 7, Columns((A, B), 1)),
        (Columns((A, B, C), 2), "remove", 0, Columns((B, C), 1)),
        (Columns((A, B, C), 1), "remove", 1, Columns((A, C), 1)),
        (Columns((A, B), 1), "remove", 1, Columns((A,))),
        (Columns((A,)), "remove", 0, Columns((A,))),
        (Columns((A, B)), "order", 0, Columns((A, B), 0, in_turn=True)),
        (Columns((A, B)), None, "x", Columns((A, B))),
    ],
)
def test_each_button_does_what_it_says(
    before: Columns, act: object, at: object, after: Columns
) -> None:
    assert before.after(act, at) == after
    assert columns_in(after.to_json()) == after


@pytest.mark.parametrize(
    "text", ["", None, "{", "[]", '{"columns": []}', '{"columns": [{}, {}, {}, {}]}']
)
def test_what_no_page_has_written_is_a_single_column(text: str | None) -> None:
    assert columns_in(text) == Columns()


def test_a_column_is_named_by_its_model_and_by_what_differs() -> None:
    one = {"model": "a", "temperature": 0, "raw": False, "system": ""}
    other = {"model": "a", "temperature": 0.5, "raw": True, "top_k": 50}
    columns = Columns(({**one, "top_k": 50}, other))
    assert columns.differences() == [{"temperature": "0"}, {"raw": "True", "temperature": "0.5"}]
    text = words(bar(columns, [None, None]))
    assert "A a · Temperature 0 ×" in text
    assert "B a · raw prompt · Temperature 0.5 ×" in text
    assert words(bar(Columns((A,)))) == "+ compare"


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_of_a_column_becomes_markup(text: str) -> None:
    assert is_text(bar(Columns((A, {"model": text, "system": text})), [None, None]))


def test_a_mistake_names_its_column_and_nothing_is_sent() -> None:
    def fail(values: object, seed: object) -> None:
        raise InvalidRequest(f"{values} {seed}")

    with pytest.raises(InvalidRequest, match=r"^A: 0 None$"):
        runs_of(Columns((A, B)), lambda place: place, fail)
