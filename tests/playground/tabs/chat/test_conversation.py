"""Conversations as values and as JSON, and what a model reads of them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from playground.tabs.chat.conversation import (
    MAX_NAME,
    Conversation,
    Figures,
    Turn,
    checked,
    name_for,
    readable,
)
from tests.playground.samples import result
from xla_backend import GenerationOptions, Message

FIGURES = Figures.of(result(cached_tokens=3), reuses=True, left_out=0)
TURNS = (Turn("One?", "1.", FIGURES), Turn("Two?", "2.", None), Turn("Three?", " ", FIGURES))
TALK = Conversation(
    "talker", "Be brief.", GenerationOptions(temperature=0.5, seed=3), TURNS, name="Numbers"
)


def test_the_model_reads_the_turns_that_have_an_answer_and_what_is_kept_is_read_again() -> None:
    assert TALK.messages("Four?", 0) == (
        Message("system", "Be brief."),
        Message("user", "One?"),
        Message("assistant", "1."),
        Message("user", "Two?"),
        Message("assistant", "2."),
        Message("user", "Four?"),
    )
    assert TALK.messages("Four?", 2) == (Message("system", "Be brief."), Message("user", "Four?"))
    assert replace(TALK, system=" ").messages("Four?", 3) == (Message("user", "Four?"),)

    assert readable(TALK.to_json()) == TALK
    # Whatever a model wrote, its next turn begins with the same tokens.
    odd = replace(TALK, turns=(Turn("?", "a\0b\n\u2028c"),))
    assert readable(odd.to_json()) == odd


@pytest.mark.parametrize(
    "changes",
    [
        {"turns": None},
        {"turns": [{}]},
        {"turns": [{"question": "a", "answer": 1, "figures": None}]},
        {"turns": [{"question": "a", "answer": "b", "figures": {"cache": "hit"}}]},
        {"id": "../x"},
        {"id": 5},
        {"left_out": -1},
        {"changed_s": float("nan")},
        {"model": ["talker"]},
        {"options": {"temperature": "hot"}},
        {"options": {"unknown": 1}},
    ],
)
def test_what_is_not_a_conversation_is_none(changes: dict[str, Any]) -> None:
    assert checked(TALK.to_dict()) == TALK
    assert checked({**TALK.to_dict(), **changes}) is None
    assert readable(json.dumps({**TALK.to_dict(), **changes})) is None


@pytest.mark.parametrize("kept", [None, 5, "", "{", "[]", "null", "[" * 100_000])
def test_what_is_not_json_of_one_is_none(kept: object) -> None:
    assert readable(kept) is None


def test_turns_come_and_go_and_the_first_question_names_a_conversation() -> None:
    longer = TALK.after(Turn("Four?", "4."), left_out=2)
    assert (len(longer.turns), longer.left_out, longer.id) == (4, 2, TALK.id)
    assert longer.before(3).left_out == 2
    # What is left of it fits, so that all of it is read again.
    assert longer.before(2).left_out == 0
    assert TALK.branch().id != TALK.id
    assert TALK.branch().turns == TALK.turns

    first = Conversation("talker").after(Turn("  Where is\nthe kite?", "There."), 0)
    assert first.name == "Where is"
    assert first.before(0).after(Turn("Who?", "I."), 0).name == "Who?"
    named = first.named("  Kites ")
    assert named.name == "Kites"
    assert named.before(0).name == "Kites"
    assert named.named(" ").name == "Where is"
    assert len(name_for("x" * 1000)) == MAX_NAME
    assert name_for(" \n ") == ""
