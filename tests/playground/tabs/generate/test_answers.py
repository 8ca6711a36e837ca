"""Answers that are no texts, as HTML."""

import dataclasses

import pytest

from playground.context.runs import Shown
from playground.tabs.generate.answers import decisions_view, form_view
from playground.tabs.generate.report import origin, report
from playground.tabs.generate.token_view import token_view
from tests.playground.samples import result
from xla_backend import Grammar
from xla_backend.interface.decisions import Decision, Decisions, Question

ASKED = Question.all_of(
    {
        "<b>spam</b>?": {"type": "yes_no"},
        "tone": {"type": "choice", "criteria": ["<i>calm</i>", "angry"]},
    }
)
DECIDED = Decisions(
    **vars(result(tokens=(), text="", finish="eos")),
    decisions=tuple(Decision(each, (-0.1, -3.0), 0.5 + i) for i, each in enumerate(ASKED)),
    rows_at_once=2,
)


def test_each_answer_has_a_bar_and_nothing_is_said_of_a_text() -> None:
    html = decisions_view(DECIDED)
    assert html.count("<li>") == 2
    assert html.count('class="bar"') == 4
    assert "&lt;b&gt;spam" in html
    assert "&lt;i&gt;calm" in html
    assert "The first of 2 answers was known after 500 ms, the last after 1.50 s" in html

    shown = Shown("A text", DECIDED)
    for html in (origin(shown), report(shown)):
        assert "Temperature" not in html
        assert "TPOT" not in html
    assert "2 questions" in origin(shown)
    assert "Read side by side" in report(shown)
    assert "No token was written" in token_view(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a": {"b": ["<i>", 2, null, true]}}', ["&lt;i&gt;", "null", "true", "<ol>", "<dl>"]),
        ('<think>Hm {</think>\n\n{"a": 7}', ["7"]),
        ('{"a": "cut', []),
        ("[]", ["<ol>"]),
        ("3", ["3"]),
    ],
)
def test_json_is_drawn_as_a_form_where_it_is_whole(text: str, shown: list[str]) -> None:
    made = result(text=text)
    options = made.options.replace(grammar=Grammar.json_schema({}))
    html = form_view(Shown("A text", dataclasses.replace(made, options=options)))
    assert bool(html) == bool(shown)
    assert all(part in html for part in shown)
    assert form_view(Shown("A text", made)) == "", "its form was free"
