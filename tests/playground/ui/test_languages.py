"""The tables of the languages: whole, and about nothing that the page does not say."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from playground.ui import languages
from playground.ui.languages import ENGLISH, LANGUAGES

ROOT = Path(__file__).resolve().parents[3]
OTHERS = [language.code for language in LANGUAGES if language is not ENGLISH]
PLACEHOLDER = re.compile(r"\{[a-n]\}")
OF_GRADIO = {
    "number input for {a}",
    "range slider for {a}",
    "Reset to default value",
    "Gradio footer navigation",
    "Drop an audio file here to upload",
    "Upload file",
    "Record audio",
    "Code input container",
    "Copy",
    "Use via API",
    "chatbot conversation",
    "Copy message",
    "Edit",
    "Retry",
    "Undo",
    "undo",
    "Submit",
    "Select example {n}: {a}",
    "user's message: {a}",
    "bot's message: a component of type html",
}
"""What Gradio writes in English whatever the language is."""


def strings(tree: ast.AST) -> list[str]:
    """Every text in a module, joined as Python joins them, without its tags."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def words(text: str) -> list[list[str]]:
    """The words of each part of a text that tags and values leave whole."""
    return [
        re.findall(r"[^\s.,:;·()“”]+", part) for part in re.split(r"</?\w+|>|\"|\0|\{\w\}", text)
    ]


@pytest.fixture(scope="module")
def source() -> list[list[str]]:
    """The words of all texts of the modules and the page's scripts."""
    paths = [*ROOT.glob("playground/**/*.py"), *ROOT.glob("xla_backend/**/*.py")]
    texts = [text for path in paths for text in strings(ast.parse(path.read_text("utf-8")))]
    for path in ROOT.glob("playground/ui/assets/*.js"):
        texts += re.findall(r'"([^"\n]+)"', path.read_text("utf-8"))
    return [part for text in texts for part in words(text)]


@pytest.mark.parametrize("code", OTHERS)
def test_every_language_says_everything(code: str) -> None:
    said = languages.table(code)
    assert list(said) == list(languages.table(OTHERS[0]))
    assert [english for english, text in said.items() if not text.strip()] == []


@pytest.mark.parametrize("code", OTHERS)
def test_placeholders_stand_in_both_texts(code: str) -> None:
    for english, text in languages.table(code).items():
        named = set(PLACEHOLDER.findall(english))
        assert set(PLACEHOLDER.findall(text)) <= named, english
        tags = [sorted(re.findall(r"</?\w+", each)) for each in (english, text)]
        assert tags[0] == tags[1], english


def test_every_text_in_the_tables_is_one_of_the_pages(source: list[list[str]]) -> None:
    """Half of its pairs of words, or all words of a short one: some are put together of several."""
    said = {word.rstrip("s") for part in source for word in part}
    pairs = {pair for part in source for pair in pairwise(part)}
    unknown = []
    for english in languages.table(OTHERS[0]):
        own = [pair for part in words(english) for pair in pairwise(part)]
        is_said = 2 * sum(pair in pairs for pair in own) >= len(own) > 2
        if not is_said and any(w.rstrip("s") not in said for part in words(english) for w in part):
            unknown.append(english)
    assert [english for english in unknown if english not in OF_GRADIO] == []
