"""The languages of the page: which there are, what each says, and the switch between them.

Knows the tables in `translations/`: for every English text that the page shows, what the other
languages say. In a text, {a} to {d} stand for anything, which is translated by itself where it can
be, and {i} to {n} for numbers. Must not know where on the page a text stands: modules write
English, and `assets/languages.js` puts what the visitor reads in its place.

The browser fetches the table of the language that it wants, from `PATH`; Gradio picks the language
of its own texts as this page does. It cannot translate ours: of a component it translates six
properties, and never what is inside HTML, in choices, or made of a text and a number.
"""

from __future__ import annotations

import contextlib
import functools
import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "translations"
PATH = "/translations"
_SCRIPT = Path(__file__).parent / "assets" / "languages.js"


@dataclass(frozen=True)
class Language:
    """One language.

    Attributes:
        code: as browsers and Gradio name it.
        name: in the language itself.
        direction: "ltr" or "rtl".
    """

    code: str
    name: str
    direction: str = "ltr"


ENGLISH = Language("en", "English")
LANGUAGES = (
    ENGLISH,
    Language("zh-CN", "简体中文"),
    Language("ko", "한국어"),
    Language("ar", "العربية", "rtl"),
)


@functools.cache
def table(code: str) -> dict[str, str]:
    """English text: what a language says; empty for English."""
    if code == ENGLISH.code:
        return {}
    return json.loads((FOLDER / f"{code}.json").read_text(encoding="utf-8"))


def preferred(accept_language: str) -> Language:
    """The language that a browser likes best of these, by its Accept-Language (RFC 9110, 12.5.4).

    English where it likes none of them, or what it says cannot be read.
    """
    liked = []
    for part in accept_language.replace(" ", "").split(","):
        name, _, quality = part.partition(";q=")
        with contextlib.suppress(ValueError):
            liked.append((float(quality or 1), name.lower().partition("-")[0]))
    by_name = {each.code.partition("-")[0]: each for each in LANGUAGES}
    # Of equally liked ones the first: sorting keeps their order.
    for weight, name in sorted(liked, key=lambda each: -each[0]):
        if weight > 0 and name in by_name:
            return by_name[name]
    return ENGLISH


def switch() -> str:
    """The list to choose from, in HTML; `assets/languages.js` is told of a choice."""
    options = "".join(
        f'<option value="{each.code}" lang="{each.code}">{each.name}</option>' for each in LANGUAGES
    )
    return f'<select id="language" aria-label="Language">{options}</select>'


def script() -> str:
    """JavaScript for the page's head, before Gradio's own."""
    directions = {each.code: each.direction for each in LANGUAGES}
    return _SCRIPT.read_text(encoding="utf-8").replace("LANGUAGES", json.dumps(directions))
