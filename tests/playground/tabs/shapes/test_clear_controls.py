"""What is said before something is cleared."""

import pytest

from playground.tabs.shapes.clear_controls import ALL, MEMORY, ONE, choices, confirmation, parse
from tests.playground.reader import words
from tests.playground.samples import INJECTIONS, KEY
from xla_backend import CacheKey


@pytest.mark.parametrize("what", [MEMORY, ONE, ALL])
def test_the_sentence_says_whom_it_concerns_and_what_stays(what: str) -> None:
    [(_, value)] = choices([("gpt2-stories", KEY)])
    text = words(confirmation(what, value, 2))
    assert "affects everybody who uses this page" in text
    assert "The engine restarts" in text
    assert "2 functions are removed from memory" in text
    assert "list of your runs stays" in text


def test_the_sentence_tells_what_leaves_the_disk() -> None:
    [(label, value)] = choices([("gpt2-stories", KEY)] * 2)
    assert label == "gpt2-stories · 16 slots · 1 beam · 32 new"
    assert "Nothing is removed from disk" in confirmation(MEMORY, value, 1)
    assert f"Removed from disk: {label}" in confirmation(ONE, value, 1)
    assert "All saved functions of all models" in confirmation(ALL, value, 1)


@pytest.mark.parametrize("name", INJECTIONS)
def test_a_choice_comes_back_as_what_it_was_and_stays_text(name: str) -> None:
    [(_, value)] = choices([(name, KEY)])
    assert parse(value) == (name, KEY)
    pool, lookup = CacheKey(48, 1, 48, is_pooled=True), CacheKey(48, 1, 48, True, 3)
    found = choices([(name, pool), (name, lookup)])
    assert {parse(value) for _, value in found} == {(name, pool), (name, lookup)}
    assert sorted(label.rpartition(" · ")[2] for label, _ in found) == [
        "all lengths to 48",
        "lookup 3",
    ]
    assert "<img" not in confirmation(ONE, value, 1)
