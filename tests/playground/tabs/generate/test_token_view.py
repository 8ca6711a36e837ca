"""Tokens, their probabilities and the empty slots beside them."""

import html
import math
import re

import pytest

from playground.context.runs import Shown
from playground.tabs.generate.token_view import (
    empty_token_view,
    percent,
    probability,
    token_view,
    visible,
)
from playground.ui.wording import ANSWERING
from tests.playground.reader import is_text
from tests.playground.samples import INJECTIONS, result
from xla_backend import CacheKey, Token, TopLogprob


def view(*tokens: Token, **changes: object) -> str:
    return token_view(Shown("Once", result(tokens=tokens, **changes)))


def test_every_slot_of_the_shape_is_drawn_in_its_place() -> None:
    # The key has 16 and 32 slots; 5 tokens of prompt, 3 new ones.
    markup = token_view(Shown("Once", result()))
    assert [markup.count(f"slot-{name}") for name in ("padding", "prompt", "room")] == [11, 5, 29]
    assert markup.count("<button") == 3
    assert markup.index("slot-padding") < markup.index("slot-prompt") < markup.index("<button")
    assert markup.index("<button") < markup.index("slot-room")

    markup = token_view(Shown("Once", result()), ANSWERING)
    assert markup.index("slot-prompt") < markup.index("slot-padding")
    assert "5 input" in markup
    markup = view(Token(1, "a", -0.1), prompt_tokens=16, key=CacheKey(16, 1, 1))
    assert "slot-padding" not in markup
    assert "slot-room" not in markup

    markup = view(Token(1, "a", -0.1), key=CacheKey(1024, 1, 16))
    assert markup.count("slot-padding") == 256
    assert "1,019 padding" in markup
    assert "… 763 more" in markup

    texts = ("Once", " upon", "<", " a", " time")
    markup = token_view(Shown("Once", result(prompt_texts=texts)))
    assert markup.count('class="token given"') == 5
    assert "<i>␣</i>upon</span>" in markup and ">&lt;</span>" in markup
    assert markup.count("slot-padding") == 11 and "slot-prompt" not in markup
    assert markup.index("slot-padding") < markup.index("token given") < markup.index("<button")

    assert "tokens appear here" in empty_token_view()
    assert "No token was written" in view()


@pytest.mark.parametrize(
    ("share", "shade"),
    [(1.0, 4), (0.91, 4), (0.89, 3), (0.51, 3), (0.49, 2), (0.19, 1), (0.051, 1), (0.049, 0)],
)
def test_the_shade_follows_the_probability(share: float, shade: int) -> None:
    assert f'class="token likely-{shade}"' in view(Token(1, "a", math.log(share)))


def test_rounding_never_makes_a_probability_larger_than_one() -> None:
    assert probability(Token(1, "a", 1e-7)) == 1.0
    assert probability(Token(1, "a", math.log(0.25))) == pytest.approx(0.25)
    assert probability(Token(1, "a", -math.inf)) == 0.0


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100%"),
        (0.9999, "over 99.9%"),
        (0.996, "99.6%"),
        (0.34, "34%"),
        (0.015, "1.5%"),
        (0.0004, "0.04%"),
        (0.0, "under 0.01%"),
    ],
)
def test_percentages(share: float, text: str) -> None:
    assert percent(share) == text


def test_invisible_and_special_characters_are_named() -> None:
    assert visible(" a\n\tb\u200b") == "␣a↵⇥bU+200B"
    assert visible("") == "∅"
    markup = view(Token(1, " a", -0.1), Token(2, "\n\n", -0.1))
    assert "<i>␣</i>a</button>" in markup
    assert "<i>↵</i><i>↵</i></button><br><br>" in markup

    markup = view(Token(0, "<|endoftext|>", -0.1), Token(1, "</s>", -0.1), Token(2, "\ufffd", -1))
    assert markup.count("a special token") == 2
    assert "&lt;|endoftext|&gt;" in markup
    assert "part of a character" in markup

    assert re.findall(r'tabindex="(-?\d)"', token_view(Shown("Once", result()))) == [
        "0",
        "-1",
        "-1",
    ]


def test_the_detail_says_what_was_measured_and_what_was_most_likely() -> None:
    detail = re.search('data-detail="([^"]*)"', view(Token(42, " fox", math.log(0.25))))
    assert detail[1] == (
        "“␣fox”: 25% likely. Token 1 of 1, number 42 in the vocabulary, log probability -1.39."
    )

    tops = (TopLogprob(7, " dog\n", math.log(0.5)), TopLogprob(42, " fox", math.log(0.25)))
    markup = view(Token(42, " fox", math.log(0.25), tops))
    assert "The most likely in this place: “␣dog↵” 50%, “␣fox” 25%." in markup
    assert rows_of(markup) == [["␣dog↵", "50%", 50, ""], ["␣fox", "25%", 25, "chosen"]]

    tops = (TopLogprob(7, "<", math.log(0.5)), TopLogprob(8, '"', math.log(0.2)))
    rows = rows_of(view(Token(42, "&", math.log(0.1), tops)))
    assert rows == [["<", "50%", 50, ""], ['"', "20%", 20, ""], ["&", "10%", 10, "chosen"]]


def rows_of(markup: str) -> list[list]:
    attribute = re.search('data-top-logprobs="([^"]*)"', markup)
    rows = [line.split("\t") for line in html.unescape(attribute[1]).split("\n")]
    return [[text, share, int(width), style] for text, share, width, style in rows]


@pytest.mark.parametrize("text", INJECTIONS)
def test_a_token_stays_text(text: str) -> None:
    markup = view(Token(1, text, -0.1))
    assert is_text(markup)


def test_tokens_of_one_pass_and_what_a_form_forbade_are_told() -> None:
    markup = view(Token(1, "a", -0.1), Token(2, "b", -0.1, (), True))
    first, second = re.findall(r"<button[^>]*>", markup)
    assert "same-pass" not in first and "same pass" not in first
    assert "same-pass" in second and "from the same pass of the model as the token before" in second
    assert "underlined: in one pass with the token before" in markup
    assert "underlined" not in view(Token(1, "a", -0.1))

    tops = (TopLogprob(7, "Sure", math.log(0.6), True), TopLogprob(8, "{", math.log(0.25)))
    markup = view(Token(8, "{", math.log(0.25), tops, forbidden=0.7))
    assert "The form forbade tokens that were 70% likely together." in markup
    assert "“Sure” 60% (forbidden), “{” 25%." in markup
    assert [style for *_, style in rows_of(markup)] == ["forbidden", "chosen"]
    assert "diverted" in markup and "would rather have written" in markup
    assert "forced" not in markup
    forced = view(Token(8, "{", -0.1, is_forced=True))
    assert "The form left no other text." in forced and "hatched" in forced
    little = view(Token(8, "{", math.log(0.25), tops, forbidden=0.2))
    assert "20% likely together" in little and "diverted" not in little
