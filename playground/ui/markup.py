"""Text that is safe in HTML and for a browser.

Knows HTML as text and Markdown. Must not know what the text means. Reports are built of htpy's
elements, which escape every string; `rendered` makes text of them.
"""

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec

import htpy as h
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from xla_backend.answers.reader import split_thoughts

P = ParamSpec("P")

# No HTML from the text, and nothing that a browser would fetch, and no links.
_MARKDOWN = (
    MarkdownIt("commonmark", {"html": False, "breaks": True})
    .enable(["table", "strikethrough"])
    .disable(["image", "link", "autolink", "reference", "html_block", "html_inline"])
)


def rendered(build: Callable[P, h.Node]) -> Callable[P, Markup]:
    """Makes a function that builds elements return HTML as text."""

    @functools.wraps(build)
    def text(*args: P.args, **kwargs: P.kwargs) -> Markup:
        return Markup(clean(h.fragment[build(*args, **kwargs)]))

    return text


def nothing(sentence: h.Node) -> h.Element:
    """A placeholder where there is nothing to show yet."""
    return h.p(".nothing")[sentence]


def remarks(text: h.Node) -> h.Element:
    """A footnote of a report."""
    return h.p(".remarks")[text]


def with_note(value: str, *notes: str) -> h.Node:
    """A value followed by a note in small letters."""
    return value, [[" ", h.small[note]] for note in notes if note]


def caret(is_writing: bool) -> h.Node:
    """The cursor at the end of a text that grows."""
    return is_writing and h.span(".caret", aria_hidden="true")


def markdown(text: object) -> Markup:
    """A model's Markdown as HTML, without tags, pictures or links from the text.

    The page's script makes the button of a code block copy it.
    """
    return Markup(_MARKDOWN.render(clean(text)))


@rendered
def answer(text: str) -> h.Node:
    """A model's answer as HTML; its thoughts are folded."""
    thoughts, spoken = split_thoughts(text)
    if not thoughts:
        return markdown(spoken)
    summary = h.summary[h.bdi["Thinking"]]
    return h.details[summary, markdown(thoughts)], markdown(spoken)


def copied_code(code: str) -> h.Element:
    return h.div(".copied-code", dir="ltr")[
        h.button(type="button")["Copy"], h.pre(translate="no", tabindex="0")[h.code[code]]
    ]


@rendered
def _code(self: RendererHTML, tokens: Sequence[Token], place: int, *_: object) -> h.Node:
    return copied_code(tokens[place].content)


_MARKDOWN.add_render_rule("fence", _code)


def clean(text: object) -> str:
    """A text that can be encoded: lone surrogates and NUL become U+FFFD."""
    whole = str(text).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return whole.replace("\0", "\ufffd")


def quoted(text: object) -> str:
    """User input for an error message: in quotes, on one line and short."""
    short = clean(text)
    return repr(short if len(short) <= 40 else short[:37] + "...")
