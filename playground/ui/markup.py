"""Text that is safe to put into HTML and to send to a browser.

Knows escaping. Must not know what the text means. Every module that writes HTML passes whatever
came from outside (prompts, generated text, model names, messages) through `escape`.
"""

from __future__ import annotations

import html


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
