"""Choosing a model: its words, its examples, its answers; and one that must be fetched first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from gradio_client import Client
from playwright.sync_api import expect

from tests import checkpoints
from tests.browser.visit import Visit
from tests.hub import HUB_MODEL, Hub, hub_with
from tests.playground.served import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@dataclass
class Choice:
    """The app with models of three architectures, one of them on a Hub; `t5` is one's name."""

    url: str
    t5: str
    hub: type[Hub]


@pytest.fixture(scope="module")
def choice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Choice]:
    root = tmp_path_factory.mktemp("choice")
    # So large that several of the pieces arrive in which the Hub's client writes.
    on_hub = checkpoints.gpt2(root / "hub", n_embd=512, n_layer=5, n_head=4)
    opt = checkpoints.opt(root / "small-opt")
    t5 = checkpoints.t5(root / "small-t5")
    with hub_with(on_hub) as hub:
        models = f"{opt},{t5},{HUB_MODEL}"
        served = serve("--models", models, HF_ENDPOINT=hub.url, HF_HOME=str(root / "hf"))
        try:
            yield Choice(served.url, str(t5), hub)
        finally:
            served.end()


@pytest.fixture
def visit(choice: Choice, browser: Browser) -> Iterator[Callable[..., Visit]]:
    visits: list[Visit] = []

    def open_page(width: int = 1280, height: int = 900) -> Visit:
        visits.append(Visit(browser, choice.url, width, height))
        return visits[-1]

    yield open_page
    complaints = [complaint for each in visits for complaint in each.complaints]
    for each in visits:
        each.close()
    assert complaints == []


def input_is_called(window: Visit, label: str) -> None:
    window.at("#prompt label", has_text=re.compile(f"^\\s*{label}")).wait_for()


def test_the_list_is_in_groups_and_a_key_press_away(visit: Callable[..., Visit]) -> None:
    window = visit()
    window.has_value("#model input", "OPT · small-opt (folder)")
    window.at("#prompt textarea").focus()
    window.page.keyboard.press("Shift+Tab")
    window.at("[role='option']").first.wait_for()
    assert [text.strip("✓ \n") for text in window.at("#model li").all_inner_texts()] == [
        "OPT · small-opt (folder)",
        "T5 · small-t5 (folder)",
        f"GPT-2 · {HUB_MODEL} (Hub)",
    ]
    lines = [
        item.evaluate("item => getComputedStyle(item).boxShadow")
        for item in window.at("#model li").all()
    ]
    assert [line != "none" for line in lines] == [False, True, True]
    window.page.keyboard.type("t5")
    window.page.keyboard.press("Enter")
    input_is_called(window, "Input text")
    window.has_value("#model input", "T5 · small-t5 (folder)")
    assert "small-t5" in window.text("#model")


def test_words_and_examples_follow_the_model(visit: Callable[..., Visit]) -> None:
    window = visit()
    prompt, new_tokens = window.at("#prompt textarea"), window.at('#max_new_tokens [type="number"]')
    expect(prompt).to_have_value(re.compile("^The best thing"))
    window.choose_model("small-t5")
    input_is_called(window, "Input text")
    expect(prompt).to_have_value(re.compile("^translate English to German: "))
    expect(new_tokens).to_have_value("40")
    expect(window.at("#story")).to_contain_text("answer appears here")
    window.at("#examples button", has_text="Sum up").click()
    window.page.wait_for_function(
        "document.querySelector('#prompt textarea')?.value.startsWith('summarize: ')"
    )
    window.at(".prediction-key", has_text=re.compile(r"\d+ input \+")).wait_for()

    window.write("My own words")
    window.set_number("max_new_tokens", 33)
    window.choose_model("small-opt")
    input_is_called(window, "Prompt")
    window.at(".prediction-key", has_text=re.compile(r"\d+ prompt \+")).wait_for()
    expect(prompt).to_have_value("My own words")
    expect(new_tokens).to_have_value("33")


def test_an_answer_stands_apart_from_its_input(visit: Callable[..., Visit], choice: Choice) -> None:
    window = visit(390, 844)
    window.choose_model("small-t5")
    input_is_called(window, "Input text")
    window.write("question: Who? context: The fox ran.")
    window.at(".prediction-key", has_text="input").wait_for()
    window.generate()
    assert window.text("#story .story-prompt") == "question: Who? context: The fox ran."
    answer = window.text("#story .story-answer .story-new")
    assert answer.strip()
    drawn = window.at("#report .shape .slots").get_attribute("aria-label")
    assert drawn is not None
    assert re.match(r"\d+ input, \d+ padding, \d+ new", drawn)
    assert window.overflow() == 0

    called = Client(choice.url, verbose=False).predict(
        prompt="question: Who? context: The fox ran.",
        model=choice.t5,
        max_new_tokens=40,
        api_name="/generate",
    )
    assert called["text"].strip() == answer.strip()
    assert called["cache"] == "hit"


def test_a_download_shows_how_far_it_is_and_is_tried_again_after_a_break(
    visit: Callable[..., Visit], choice: Choice
) -> None:
    window = visit()
    window.write("Once")
    window.generate()
    story = window.text("#story .story-text")

    choice.hub.bytes_per_s = 16_000_000
    choice.hub.breaks_at = 35_000_000
    window.choose_model(HUB_MODEL)
    window.at("#model", has_text="Downloaded when first used").wait_for()
    window.at("#generate").click()
    assert len(shares_until(window, "#notice .problem")) >= 2
    assert "broke off. Try again: files that are whole are not fetched anew" in window.text(
        "#notice"
    )
    assert window.text("#story .story-text") == story, "an error keeps the last result"
    assert window.at("#download .download").count() == 0

    choice.hub.breaks_at = 0
    window.at("#generate").click()
    shares = shares_until(window, "#story .story-new:not(:empty)")
    assert shares == sorted(shares)
    window.wait_for_result()
    assert window.text("#report .badge") == "MISS"
    assert window.at("#download .download").count() == 0


def shares_until(window: Visit, selector: str) -> list[int]:
    """The percentages that the download's bar shows before something else is there."""
    window.at("#download .progress").wait_for()
    return window.page.evaluate(
        """selector => new Promise((resolve) => {
            const seen = [];
            const look = setInterval(() => {
                const bar = document.querySelector("#download .progress");
                const share = bar && Number(bar.getAttribute("aria-valuenow"));
                if (bar && share !== seen.at(-1)) seen.push(share);
                if (document.querySelector(selector)) { clearInterval(look); resolve(seen); }
            }, 50);
        })""",
        selector,
    )
