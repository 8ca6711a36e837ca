"""Nothing that comes from outside can become markup."""

from __future__ import annotations

import html
from html.parser import HTMLParser

import pytest

from playground.ui.markup import clean, escape
from tests.playground.samples import INJECTIONS


class Tags(HTMLParser):
    """Collects the tags of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


@pytest.mark.parametrize("text", INJECTIONS)
def test_escaped_text_has_no_tags_and_reads_the_same(text: str) -> None:
    parser = Tags()
    parser.feed(f'<p title="{escape(text)}">{escape(text)}</p>')
    assert parser.tags == ["p"]
    assert html.unescape(escape(text)) == text


def test_characters_that_cannot_be_sent_are_replaced() -> None:
    assert clean("a\ud800b\0c").encode("utf-8")
    assert "\0" not in escape("a\0b")
    assert clean("naïve שלום 🦊") == "naïve שלום 🦊"


def test_anything_can_be_escaped() -> None:
    assert escape(16) == "16"
