"""The reader of stories: silent about true ones, and awake to planted mistakes."""

import pytest

from demo_models.reading import contradictions, unknown_words, words
from demo_models.stories import SPLITS, tell


@pytest.mark.parametrize("split", SPLITS)
def test_true_stories_have_no_contradiction_and_no_unknown_word(split):
    for seed in range(1500):
        text = tell(seed, split).text
        assert contradictions(text) == [], text
        assert unknown_words(text) == [], text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Pip met Mia and then Otto.", "3 names"),
        ("Pip was a brave fox. Pip the owl slept.", "Pip is fox and owl"),
        ("A fox named Pip slept. Pip, a sleepy owl, slept too.", "Pip is fox and owl"),
        ("Pip the fox found her hat.", "nobody is 'her'"),
        ("Pip looked for the kite.", "no kite was mentioned"),
    ],
)
def test_mistakes_are_found(text, complaint):
    assert any(complaint in found for found in contradictions(text))


def test_a_name_may_follow_its_pronoun():
    assert contradictions("There lived a brave fox. His name was Pip.") == []


def test_unknown_words():
    assert unknown_words("Pip had a blorple kite.") == ["blorple"]
    assert unknown_words("Pip had a kit", is_cut=True) == []
    assert unknown_words("Pip had 7 kites 日本.") == ["7", "kites", "日本"]


def test_words_keep_an_apostrophe():
    assert words("The king's PARADE") == ["the", "king's", "parade"]
