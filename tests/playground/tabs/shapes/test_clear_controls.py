"""What is said before something is cleared."""

import json

import pytest

from playground.tabs.shapes.clear_controls import (
    ALL,
    MEMORY,
    ONE,
    confirmation,
    parse,
    shape_label,
)
from tests.playground.reader import words
from tests.playground.samples import INJECTIONS, KEY
from xla_backend import CacheKey


@pytest.mark.parametrize("what", [MEMORY, ONE, ALL])
def test_the_sentence_says_whom_it_concerns_and_what_stays(what: str) -> None:
    value = json.dumps(["gpt2-stories", KEY.to_dict()])
    text = words(confirmation(what, value, 2))
    assert "affects everybody who uses this page" in text
    assert "The engine restarts" in text
    assert "2 functions are removed from memory" in text
    assert "list of your runs stays" in text


def test_the_sentence_tells_what_leaves_the_disk() -> None:
    value, label = json.dumps(["gpt2-stories", KEY.to_dict()]), shape_label("gpt2-stories", KEY)
    assert label == "gpt2-stories · 16 slots · 1 beam · 32 new"
    assert "Nothing is removed from disk" in confirmation(MEMORY, value, 1)
    assert f"Removed from disk: {label}" in confirmation(ONE, value, 1)
    assert "All saved functions of all models" in confirmation(ALL, value, 1)


@pytest.mark.parametrize("name", INJECTIONS)
def test_a_choice_comes_back_as_what_it_was_and_stays_text(name: str) -> None:
    value = json.dumps([name, KEY.to_dict()])
    assert parse(value) == (name, KEY)
    pool, lookup = CacheKey(48, 1, 48, is_pooled=True), CacheKey(48, 1, 48, True, 3)
    found = [shape_label("m", key).rpartition(" · ")[2] for key in (pool, lookup)]
    assert found == ["all lengths to 48", "lookup 3"]
    assert "<img" not in confirmation(ONE, value, 1)
