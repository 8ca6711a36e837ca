"""Stop strings: where a text ends, whatever the borders of tokens and chunks."""

import random

import pytest

from xla_backend.answers.reader import StopStrings


def read(strings: list[str], chunks: list[str]) -> tuple[str, bool]:
    """The text, and whether a string ended it; what was final never changed."""
    stops = StopStrings(strings)
    text = "".join([*map(stops.push, chunks), stops.finish()])
    return text, bool(stops.found)


@pytest.mark.parametrize(
    ("strings", "text", "expected"),
    [
        ([], "a text", "a text"),
        (["end"], "the en", "the en"),
        (["end"], "the end, the end", "the "),
        (["end"], "enend", "en"),
        (["aab"], "aaab", "a"),
        (["abab", "x"], "abaxbab", "aba"),
        (["abc", "b"], "abc", "a"),  # complete first
        (["bc", "abc"], "abc", ""),  # complete at once: the longest
        (["🦊"], "a 🦊", "a "),
        (["\n\n"], "\none\n\ntwo", "\none"),
    ],
)
def test_a_text_ends_before_the_first_string(strings: list[str], text: str, expected: str) -> None:
    draw = random.Random(0)
    for _ in range(30):
        cuts = sorted(draw.choices(range(len(text) + 1), k=draw.randint(0, 6)))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert read(strings, chunks) == (expected, expected != text)


def test_only_what_may_begin_a_string_is_held_back() -> None:
    stops = StopStrings(["The end", "hen"])
    assert [stops.push(chunk) for chunk in ("Then", " The", " en", "t", "h")] == [
        *("T", "", "", "", "")
    ]
    assert stops.found
