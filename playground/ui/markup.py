"""Text that is safe to put into HTML and to send to a browser.

Knows HTML as text and Markdown. Must not know what the text means. Reports are built of htpy's
elements, which escape every string that they are given; `rendered` makes text of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec

import htpy as h
from markdown_it import MarkdownIt
from markupsafe import Markup

if TYPE_CHECKING:
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token

P = ParamSpec("P")

# No HTML of the text's own, and nothing that a browser would fetch or that leads elsewhere.
_MARKDOWN = (
    MarkdownIt("commonmark", {"html": False, "breaks": True})
    .enable(["table", "strikethrough"])
    .disable(["image", "link", "autolink", "reference", "html_block", "html_inline"])
)

# An answer that was cut while the model thought has no end of it.
_THOUGHT = re.compile(r"\s*<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def rendered(build: Callable[P, h.Node]) -> Callable[P, Markup]:
    """A function that returns HTML as text that can travel, of one that builds elements."""

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
    """The mark at the end of a text that grows."""
    return is_writing and h.span(".caret", aria_hidden="true")


def markdown(text: object) -> Markup:
    """A model's Markdown as HTML: no tag, picture or link of the text's own survives in it.

    The page's script has the button of a block of code copy it.
    """
    return Markup(_MARKDOWN.render(clean(text)))


@rendered
def answer(text: str) -> h.Node:
    """A model's answer as HTML; what it thought before, as Qwen3 marks it, is folded."""
    found = _THOUGHT.match(text)
    if found is None:
        return markdown(text)
    thought, said = found[1].strip(), markdown(text[found.end() :])
    if not thought:
        return said
    summary = h.summary[h.bdi["Thinking"]]
    return h.details[summary, markdown(thought)], said


def copied_code(code: str) -> h.Element:
    """A block of code, with a button to copy it."""
    return h.div(".copied-code", dir="ltr")[
        h.button(type="button")["Copy"], h.pre(translate="no")[h.code[code]]
    ]


@rendered
def _code(self: RendererHTML, tokens: Sequence[Token], place: int, *_: object) -> h.Node:
    return copied_code(tokens[place].content)


_MARKDOWN.add_render_rule("fence", _code)


def clean(text: object) -> str:
    """Any text as characters that can travel: lone surrogates and NUL become U+FFFD."""
    whole = str(text).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return whole.replace("\0", "\ufffd")


def quoted(text: object) -> str:
    """What somebody sent, for a sentence about it: in quotes, on one line and short."""
    short = clean(text)
    return repr(short if len(short) <= 40 else short[:37] + "...")
