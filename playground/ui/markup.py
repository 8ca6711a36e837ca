"""Text that is safe to put into HTML and to send to a browser.

Knows escaping and Markdown. Must not know what the text means. Every module that writes HTML
passes all that came from outside (prompts, generated text, model names, messages) through `escape`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token

# No HTML of the text's own, and nothing that a browser would fetch or that leads elsewhere.
_MARKDOWN = (
    MarkdownIt("commonmark", {"html": False, "breaks": True})
    .enable(["table", "strikethrough"])
    .disable(["image", "link", "autolink", "reference", "html_block", "html_inline"])
)

# An answer that was cut while the model thought has no end of it.
_THOUGHT = re.compile(r"\s*<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def markdown(text: object) -> str:
    """A model's Markdown as HTML: no tag, picture or link of the text's own survives in it.

    The page's script has the button of a block of code copy it.
    """
    return _MARKDOWN.render(clean(text))


def answer(text: str) -> str:
    """A model's answer as HTML; what it thought before, as Qwen3 marks it, is folded."""
    found = _THOUGHT.match(text)
    if found is None:
        return markdown(text)
    thought, said = found[1].strip(), markdown(text[found.end() :])
    if not thought:
        return said
    return f"<details><summary><bdi>Thinking</bdi></summary>{markdown(thought)}</details>{said}"


def _code(self: RendererHTML, tokens: Sequence[Token], place: int, *_: object) -> str:
    return (
        '<div class="copied-code" dir="ltr"><button type="button">Copy</button>'
        f'<pre translate="no"><code>{escape(tokens[place].content)}</code></pre></div>'
    )


_MARKDOWN.add_render_rule("fence", _code)


def clean(text: object) -> str:
    """Any text as characters that can travel: lone surrogates and NUL become U+FFFD."""
    whole = str(text).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return whole.replace("\0", "\ufffd")


def quoted(text: object) -> str:
    """What somebody sent, for a sentence about it: in quotes, on one line and short."""
    short = clean(text)
    return repr(short if len(short) <= 40 else short[:37] + "...")


def escape(text: object) -> str:
    """Any text as HTML character data, in element content and in quoted attributes alike."""
    return html.escape(clean(text), quote=True)
