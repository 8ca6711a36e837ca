"""The page in each language, as a visitor with that language finds it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from playground.ui.languages import LANGUAGES, Language
from tests.browser.visit import Visit
from tests.playground.served import Site

Open = Callable[..., Visit]
OTHERS = [language for language in LANGUAGES if language.code != "en"]

NAMES = set(
    """XLA Playground TensorFlow Transformers Python Gradio Hugging Face Hub GenerationConfig
    GPT OPT Whisper CSV JSON API UTC WAV FLAC OGG MP3 Enter Ctrl Cmd Esc Mac Shift
    TTFT TPOT token Token eager Eager temperature Top Min jit compile True function float prompt run
    """.split()
)
"""Names, and words that engineers leave as they are in every language."""

# What is to be read or heard, but for what visitors, models and programmers have written.
_WORDS = """() => {
  const theirs = "[dir=auto], [translate=no], script, style, textarea, pre, code, kbd, " +
    ".cm-editor, #language, .token, .token-detail";
  const said = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const {nodeValue, parentElement} = texts.currentNode;
    if (!parentElement.closest(theirs) && parentElement.checkVisibility()) said.push(nodeValue);
  }
  for (const name of ["placeholder", "title", "aria-label", "data-label"])
    for (const each of document.querySelectorAll(`[${name}]`))
      if (!each.closest(theirs) && each.checkVisibility()) said.push(each.getAttribute(name));
  const shown = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").get;
  for (const each of document.querySelectorAll("input[role=combobox]"))
    if (each.checkVisibility()) said.push(shown.call(each));
  return said;
}"""


# Gradio translates a value that is a word of the table, and then it is no choice's any more.
NOTHING_CHOSEN = """() => [...document.querySelectorAll("fieldset:has([type=radio])")]
  .filter((group) => !group.querySelector(":checked")).map((group) => group.id)"""


def english(window: Visit, own: set[str]) -> set[str]:
    """Words in Latin letters that are no names, nor an English term beside its translation."""
    texts = [
        re.sub(r"[(（][a-z ]+[)）]", "", text)
        for text in window.page.evaluate(_WORDS)
        if not any(each in text for each in own)
    ]
    return {word for text in texts for word in re.findall(r"[A-Za-z]{3,}", text)} - NAMES


@pytest.mark.parametrize("language", OTHERS, ids=lambda language: language.code)
def test_every_tab_speaks_the_language_of_the_browser(
    visit: Open, site: Site, language: Language
) -> None:
    window = visit(locale=language.code)
    root = "[document.documentElement.lang, document.documentElement.dir]"
    assert window.page.evaluate(root) == [language.code, language.direction]
    # Models have names of their own, and on this site folders; any of them may have functions.
    own = set(window.at("#model input").input_value().split(" · ")) | {"whisper", "gpt2", "t5-"}
    for model in (site.fast, site.slow, site.multilingual):
        own |= {model, Path(model).name}
    window.write("A prompt of my own")
    window.set_number("max_new_tokens", 8)
    window.generate()
    corners = "(label) => getComputedStyle(label).borderTopLeftRadius"
    first, last = window.at("#result_view label").all()
    left_end, right_end = (first, last) if language.direction == "ltr" else (last, first)
    assert (left_end.evaluate(corners), right_end.evaluate(corners)) == ("8px", "0px")
    assert first.get_by_role("radio").is_checked()
    last.click()
    window.at("#tokens button.token").first.focus()
    tabs = window.at("button[role=tab]")
    left: dict[str, set[str]] = {}
    for place in range(tabs.count()):
        tabs.nth(place).click()
        window.page.wait_for_timeout(300)  # Gradio builds a tab when it is first opened.
        if found := english(window, own):
            left[tabs.nth(place).inner_text()] = found
        assert window.overflow() == 0
        assert window.page.evaluate(NOTHING_CHOSEN) == []
    assert left == {}


def test_the_switch_works_at_once_and_is_remembered(visit: Open) -> None:
    window = visit()
    before = window.text("#report")
    list_ = window.at("#language")
    list_.select_option("ar")
    window.at("#generate", has_text="توليد").wait_for()
    assert window.page.evaluate("document.documentElement.dir") == "rtl"
    request, result = (window.at(f".area-{name}").bounding_box() for name in ("request", "result"))
    assert request is not None and result is not None
    assert request["x"] > result["x"], "read from the right, the request stands on the right"
    assert window.at("footer", has_text="API").inner_text() != "", "Gradio's own words"
    assert "Use via API" not in window.text("footer")

    window.generate()
    said = window.page.locator(
        "#prediction .prediction-what", has_text=re.compile(r"\d")
    ).inner_text()
    assert re.search(r"\d m?s\W*$", said) and not said.endswith("."), "no decimal point in front"
    label = (
        "getComputedStyle(document.querySelector('#num_beams [data-testid=block-info]')).direction"
    )
    assert window.page.evaluate(label) == "rtl"

    window.go()
    window.settle()
    window.at("#generate", has_text="توليد").wait_for()
    assert list_.input_value() == "ar"
    list_.select_option("en")
    window.at("#generate", has_text="Generate").wait_for()
    window.at("#report", has_text="Press Show what XLA does").wait_for()
    assert window.text("#report") == before
    assert window.page.evaluate("document.documentElement.dir") == "ltr"


def test_a_link_can_name_the_language_and_a_refusal_speaks_it(visit: Open) -> None:
    window = visit(390, 844, locale="en-GB")
    window.go(window.page.url.split("?")[0] + "?lang=ko")
    window.settle()
    window.at("#generate", has_text="생성").wait_for()
    window.write(" ")
    window.at("#generate").click()
    window.at("#notice", has_text="프롬프트가 비어 있습니다").wait_for()
    assert window.overflow() == 0
    window.at("#language").select_option("zh-CN")
    window.at("#notice", has_text="提示词为空").wait_for()
    assert "lang=" not in window.page.url
