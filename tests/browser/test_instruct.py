"""An instruct model on the page: it answers messages, as its chat template writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from playground.ui.markup import clean
from tests import checkpoints
from tests.browser.visit import Visit
from tests.playground.served import serve
from xla_backend import Backend, GenerationOptions, question

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUESTION, SYSTEM = "Where is the kite?", "Answer like a fox."
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.instruct(tmp_path_factory.mktemp("models") / "talker")


@pytest.fixture(scope="module")
def url(folder: Path, small_gpt2: Path) -> Iterator[str]:
    served = serve("--models", f"{folder},{small_gpt2}", "--no-store")
    yield served.url
    served.end()


@pytest.fixture
def window(url: str, browser: Browser) -> Iterator[Visit]:
    visit = Visit(browser, url, 1280, 900)
    visit.set_number("max_new_tokens", NEW_TOKENS)
    yield visit
    visit.close()
    assert visit.complaints == []


def ask(window: Visit, system: str = "") -> str:
    """Writes the question, presses the button and returns the answer."""
    window.write(QUESTION)
    window.at("#system textarea").fill(system)
    window.generate()
    return str(window.at("#story .story-new").get_attribute("data-text"))


def tokens_of_prompt(window: Visit, expected: int) -> None:
    """Waits until the prediction counts so many."""
    window.at("#prediction", has_text=f"{expected} prompt +").wait_for()


def test_it_answers_what_the_library_answers_and_all_can_be_asked_again(
    window: Visit, folder: Path
) -> None:
    backend = Backend(store="off")
    options = GenerationOptions(max_new_tokens=NEW_TOKENS)
    expected = backend.generate(str(folder), question(QUESTION, SYSTEM), options)
    answer = ask(window, SYSTEM)
    assert answer == clean(expected.text)
    tokens_of_prompt(window, expected.prompt_tokens)
    window.at("#copy_link").click()
    window.at("#copy_notice .calm").wait_for()
    window.at("#view_code button").first.click()
    window.at("#code_form label", has_text="This library").click()
    window.at("#request_code", has_text=f'question("{QUESTION}", "{SYSTEM}")').wait_for()
    # What the run was asked comes back with it.
    window.at("#system textarea").fill("")
    window.write("Something else")
    window.at("#history tbody button", has_text="Rerun").first.click()
    window.at("#history tbody tr >> nth=1").wait_for()
    window.wait_for_result()
    window.has_value("#system textarea", SYSTEM)
    assert window.at("#story .story-new").get_attribute("data-text") == answer


def test_a_raw_prompt_is_continued_as_it_stands(window: Visit, folder: Path) -> None:
    backend = Backend(store="off")
    window.write(QUESTION)
    window.at("#raw_prompt input").check()
    predicted = backend.predict(str(folder), QUESTION, GenerationOptions())
    tokens_of_prompt(window, predicted.prompt_tokens)
    window.generate()
    options = GenerationOptions(max_new_tokens=NEW_TOKENS)
    text = clean(backend.generate(str(folder), QUESTION, options).text)
    assert "".join(window.text("#story .story-new").split()) == "".join(text.split())


def test_a_model_without_a_template_has_neither_field(window: Visit, small_gpt2: Path) -> None:
    assert window.at("#system").is_visible()
    window.choose_model(small_gpt2.name)
    window.at("#system").wait_for(state="hidden")
    assert not window.at("#raw_prompt").is_visible()
