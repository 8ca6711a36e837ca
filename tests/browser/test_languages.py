"""The page in each language, as a visitor with that language finds it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from playground.compare.baselines_report import all_values, baselines_report
from playground.compare.runs import Variant, VariantRow
from playground.compare.variants_report import variants_report
from playground.context.runs import Occupation, Shown
from playground.context.status_line import runs_now, status_line
from playground.generate.result_panel import report, waiting_report
from playground.ui.languages import LANGUAGES, Language
from playground.ui.prediction_line import prediction_line
from tests.browser.visit import Visit
from tests.playground.samples import KEY, result
from tests.playground.served import Site
from xla_backend import CacheOutcome, EngineStatus, GenerationOptions, Prediction, Timing
from xla_backend.baselines.comparison import (
    CACHED_CALLS,
    Baseline,
    BaselineComparison,
    BaselineProgress,
    BaselineResult,
)

Open = Callable[..., Visit]
OTHERS = [language for language in LANGUAGES if language.code != "en"]

NAMES = set(
    """XLA Playground TensorFlow Transformers Python Gradio Hugging Face Hub GenerationConfig
    GPT OPT Whisper Perfetto Chrome None CSV JSON API UTC WAV FLAC OGG MP3 Enter Ctrl Cmd Esc Mac
    Shift TTFT TPOT token Token eager Eager temperature Top Min jit compile True function float
    prompt run
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


def names_of_models(window: Visit, site: Site) -> set[str]:
    """Names that stay as they are; on this site folders. Any model may have functions, or run."""
    own = set(window.at("#model input").input_value().split(" · ")) | {"whisper", "gpt2", "t5-"}
    for model in (site.fast, site.slow, site.multilingual):
        own |= {model, Path(model).name}
    return own


@pytest.mark.parametrize("language", OTHERS, ids=lambda language: language.code)
def test_every_tab_speaks_the_language_of_the_browser(
    visit: Open, site: Site, language: Language
) -> None:
    window = visit(locale=language.code)
    root = "[document.documentElement.lang, document.documentElement.dir]"
    assert window.page.evaluate(root) == [language.code, language.direction]
    own = names_of_models(window, site)
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


def compared() -> BaselineComparison:
    """A comparison that is over: eager is slower, the guide's function as fast."""
    comparison = BaselineComparison("gpt2-stories", "Once")
    for way in Baseline:
        cached_s = (2.7,) * 5 if way is Baseline.EAGER else (0.017,) * CACHED_CALLS
        comparison.results[way] = BaselineResult(
            way, 4.0, 0.6, 3.1, 1.0, 2.0, 12.0, 4, 16, (5, 6), " 1 2", None, cached_s
        )
    comparison.is_over = True
    return comparison


def variants() -> list[VariantRow]:
    rows = [VariantRow(Variant(label, "gpt2-stories", GenerationOptions())) for label in "123"]
    for row, decode_s in zip(rows, (0.1, 0.1, 0.3), strict=True):
        timing = Timing(decode_s=decode_s, total_s=decode_s)
        row.first, row.later = result(text="1"), [result(timing=timing)] * CACHED_CALLS
    return rows


def measured() -> list[str]:
    """What stands there only while something is measured, or afterwards."""
    held = Occupation("Comparing", time.perf_counter(), left_s=65.0)
    late = Occupation("Showing what XLA does", time.perf_counter(), left_s=-1.0)
    missing = Prediction(CacheOutcome.MISS, KEY, KEY, 5, 6.0, 4.0, 130.0)
    timing = Timing(queue_s=3.5, decode_s=0.1, total_s=3.6)
    comparison = compared()
    later = BaselineProgress(Baseline.EAGER, "cached", 0.0, 1.0, 3)
    return [
        baselines_report(comparison, None, "Measured just now on this machine."),
        baselines_report(comparison, later, "Later calls, in turn. About 2 min 40 s left."),
        all_values(comparison.results),
        variants_report(variants(), None, is_over=True),
        variants_report(variants(), None, "Later calls, round 3 of 9."),
        status_line(EngineStatus("ready"), before=2, occupation=held),
        runs_now(EngineStatus("ready"), held),
        runs_now(EngineStatus("ready"), late),
        waiting_report(missing, ahead=0),
        waiting_report(missing, ahead=1),
        prediction_line(replace(missing, high_s=7.0)),
        report(Shown("1", result(timing=timing, text="2"))),
    ]


@pytest.mark.parametrize("language", OTHERS, ids=lambda language: language.code)
def test_what_was_measured_is_told_in_the_language_too(
    visit: Open, site: Site, language: Language
) -> None:
    window = visit(locale=language.code)
    own = names_of_models(window, site)
    parts = "".join(measured())
    window.page.evaluate("html => document.querySelector('#report').innerHTML = html", parts)
    window.page.evaluate("document.querySelectorAll('#report details').forEach(e => e.open = 1)")
    window.page.wait_for_timeout(300)
    assert english(window, own) == set(), window.text("#report")


def test_the_switch_works_at_once_and_is_remembered(visit: Open) -> None:
    window = visit()
    before = window.text("#report")
    list_ = window.at("#language")
    with window.page.expect_request("**/translations/ar.json") as table:
        list_.select_option("ar")
    assert table.value.all_headers()["cache-control"] == "max-age=0", "no older page's texts"
    window.at("#generate", has_text="توليد").wait_for()
    assert window.page.evaluate("document.documentElement.dir") == "rtl"
    request, result = (window.at(f".area-{name}").bounding_box() for name in ("request", "result"))
    assert request is not None and result is not None
    assert request["x"] > result["x"], "read from the right, the request stands on the right"
    assert window.at("footer", has_text="API").inner_text() != "", "Gradio's own words"
    assert "Use via API" not in window.text("footer")

    window.generate()
    # Of the next run: the line before this one ends with what it is judged by.
    said = window.page.locator(
        "#prediction .prediction:not(:has(.outcome-miss)) .prediction-what",
        has_text=re.compile(r"\d"),
    ).inner_text()
    # One time or a range, each in marks of its direction.
    assert re.search(r"\d\W* m?s\W*$", said) and not said.endswith("."), "no decimal point in front"
    label = (
        "getComputedStyle(document.querySelector('#num_beams [data-testid=block-info]')).direction"
    )
    assert window.page.evaluate(label) == "rtl"

    window.go()
    window.settle()
    window.at("#generate", has_text="توليد").wait_for()
    expect(list_).to_have_value("ar")
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
