"""Which words of a transcript count as errors."""

import htpy as h
import pytest

from playground.ui.word_differences import WordPair, marked_pair, word_pairs


def pairs(said: str, heard: str) -> list[tuple[str | None, str | None]]:
    return [(pair.expected, pair.found) for pair in word_pairs(said, heard) if not pair.is_same]


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [
        ("turn it off", "turn it off", []),
        ("turn it off", "Turn it, OFF!", []),
        ("thirteen minutes", "thirty minutes", [("thirteen", "thirty")]),
        ("turn the light off", "turn light off", [("the", None)]),
        ("turn it off", "please turn it off", [(None, "please")]),
        ("a b c d", "b c d e", [("a", None), (None, "e")]),
        ("one two", "", [("one", None), ("two", None)]),
        ("", "one", [(None, "one")]),
        ("", "", []),
        ("- !", "- ?", [("!", "?")]),
    ],
)
def test_the_fewest_words_differ(
    said: str, heard: str, errors: list[tuple[str | None, str | None]]
) -> None:
    assert pairs(said, heard) == errors


def test_all_words_of_both_texts_are_there_in_order() -> None:
    said, heard = "set a timer for ten minutes now", "set timer for two ten minute"
    found = word_pairs(said, heard)
    assert " ".join(pair.expected for pair in found if pair.expected) == said
    assert " ".join(pair.found for pair in found if pair.found) == heard
    assert sum(not pair.is_same for pair in found) == 4

    assert not WordPair("a", None).is_same
    assert not WordPair(None, None).is_same


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (
            " a red\n fox",
            " a  blue fox",
            (" a <mark>red</mark>\n fox", " a  <mark>blue</mark> fox"),
        ),
        ("a b. C", "a x y z C", ("a <mark>b.</mark> C", "a <mark>x y z</mark> C")),
        ("Paris", "paris.", ("<mark>Paris</mark>", "<mark>paris.</mark>")),
        ("<i>", "", ("<mark>&lt;i&gt;</mark>", "")),
        ("same text", "same text", ("same text", "same text")),
    ],
)
def test_words_of_one_text_only_are_marked(one: str, other: str, shown: tuple[str, str]) -> None:
    assert tuple(str(h.fragment[text]) for text in marked_pair(one, other)) == shown
