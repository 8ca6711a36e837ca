"""Nothing that comes from outside can become markup."""

import html
from html.parser import HTMLParser

import htpy as h
import pytest

from playground.ui.markup import answer, clean, markdown, rendered
from tests.playground.samples import INJECTIONS


class Tags(HTMLParser):
    """Collects the tags of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_in_an_element_has_no_tags_and_reads_the_same(text: str) -> None:
    made = rendered(lambda: h.p(title=text)[text])()
    parser = Tags()
    parser.feed(made)
    assert parser.tags == ["p"]
    assert html.unescape(made) == f'<p title="{text}">{text}</p>'


OF_MARKDOWN = {"p", "strong", "em", "ul", "ol", "li", "pre", "code", "div", "button", "table"}
OF_MARKDOWN |= {"thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "blockquote", "hr", "br", "s"}


@pytest.mark.parametrize(
    "text",
    [
        *INJECTIONS,
        "[a](javascript:alert(1)) ![i](http://x/y.png) <http://a.b> https://a.b",
        "[a][1]\n\n[1]: http://x",
        "```html\n<script>alert(1)</script>\n```",
        '```"><img src=x>\n1\n```',
        "<div onclick=alert(1)>x</div>",
    ],
)
def test_markdown_has_no_tag_that_runs_leads_or_fetches(text: str) -> None:
    parser = Tags()
    parser.feed(markdown(text))
    assert set(parser.tags) <= OF_MARKDOWN


def test_markdown_is_written_as_html_and_only_what_can_be_sent() -> None:
    parser = Tags()
    parser.feed(markdown("**b**\n\n1. one\n\n```sql\nSELECT 1;\n```\n\n|a|\n|-|\n|1|"))
    assert {"strong", "ol", "li", "pre", "table", "td"} <= set(parser.tags)
    assert clean("a\ud800b\0c").encode("utf-8")
    assert "\0" not in rendered(lambda: "a\0b")()
    assert clean("naïve שלום 🦊") == "naïve שלום 🦊"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Paris.", "<p>Paris.</p>\n"),
        ("<think>\n\n</think>\n\nParis.", "<p>Paris.</p>\n"),
        (
            "<think>\nA **city**.\n</think>\n\nParis.",
            "<details><summary><bdi>Thinking</bdi></summary><p>A <strong>city</strong>.</p>\n"
            "</details><p>Paris.</p>\n",
        ),
        (
            "<think>I was cut",
            "<details><summary><bdi>Thinking</bdi></summary><p>I was cut</p>\n</details>",
        ),
        ("Say <think> so", "<p>Say &lt;think&gt; so</p>\n"),
        (
            "<think></details><script>x</script></think>",
            "<details><summary><bdi>Thinking</bdi></summary><p>&lt;/details&gt;&lt;script&gt;x&lt;/script&gt;"
            "</p>\n</details>",
        ),
    ],
)
def test_what_a_model_thought_is_folded(text: str, expected: str) -> None:
    assert answer(text) == expected
