"""The Speech tab, used as a visitor uses it, with an engine that a test leads."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from playground.tabs.speech.examples import FOLDER, speech_examples
from tests.browser.visit import Visit
from tests.playground.fake_backend import FakeBackend
from xla_backend import InvalidRequest


@pytest.fixture
def window(window: Visit) -> Visit:
    """A visitor of the tab."""
    window.open_mode("Speech")
    window.at("#speech_prediction .prediction-key").wait_for()
    return window


def upload(window: Visit, path: Path) -> None:
    """Puts a file into the recorder, in place of what is there."""
    clear = window.at("#recording [aria-label='Clear']")
    if clear.count():
        clear.click()
    window.at('#recording input[type="file"]').set_input_files(path)
    clear.wait_for()


def test_an_example_is_compared_with_the_truth_and_a_mistake_keeps_the_last_transcript(
    window: Visit, engine: FakeBackend, tmp_path: Path
) -> None:
    expect(window.at("#speech_caution")).to_have_count(0)  # no word about a model not chosen
    window.at("#transcribe").click()
    window.says("#speech_notice .problem", "There is no recording yet")
    window.at("#speech_examples button", has_text="Command 1").click()
    expect(window.at("#speech_notice .problem")).to_have_count(0)
    window.at("#recording [aria-label='Clear']").wait_for()
    engine.hold("text")
    window.at("#transcribe").click()
    engine.write(speech_examples()[1].words)
    window.says("#heard .story", speech_examples()[1].words)
    window.at("#speech_report .busy").wait_for()
    engine.end()
    window.says("#speech_report", "MISS", re.compile("faster than real time|slower than"))
    window.says("#heard .truth", "words right", speech_examples()[1].words)

    window.at("#transcribe:enabled").wait_for()
    window.at("#speech_prediction .outcome-hit").wait_for()
    before = window.text("#heard"), window.text("#speech_report")
    broken = tmp_path / "broken.wav"
    broken.write_bytes((FOLDER / "command-1.flac").read_bytes())
    engine.errors[broken.name] = InvalidRequest("'broken.wav' cannot be read as audio.")
    upload(window, broken)
    window.at("#transcribe").click()
    window.says("#speech_notice .problem", "'broken.wav' cannot be read as audio")
    window.at("#transcribe:enabled").wait_for()
    assert (window.text("#heard"), window.text("#speech_report")) == before


def test_windows_come_one_by_one_until_a_stop(window: Visit, engine: FakeBackend) -> None:
    window.at("#speech_model input").click()
    window.page.get_by_role("option", name="multilingual").click()
    spoken = window.at("#speech_language input")
    spoken.fill("Klingon")  # the engine says what it knows
    window.page.keyboard.press("Tab")
    expect(spoken).to_have_value("Klingon")
    window.resize(390, 844)
    upload(window, FOLDER / "command-2.flac")
    engine.hold("text")
    window.at("#transcribe").click()
    window.at("#stop_speech:enabled").wait_for()
    engine.write("how warm is it")
    window.says("#heard .story", "how warm is it")
    engine.write("turn it off")
    rows = window.at("#windows tbody tr")
    expect(rows).to_have_count(2)
    window.page.keyboard.press("Escape")
    window.says("#speech_report", "You stopped it", "Language: Klingon")
    assert engine.asked[-1][3] == "Klingon"
    cells = [" ".join(row.split()) for row in rows.all_inner_texts()]
    assert cells == [
        "1 0:00.0 – 0:04.0 how warm is it MISS 200 ms",
        "2 0:04.0 – 0:08.0 turn it off HIT 200 ms",
    ]
    window.says("#heard .story", "how warm is it turn it off")
    expect(window.at("#heard .truth")).to_have_count(0)
    expect(window.at("#stop_speech")).to_be_disabled()
    assert window.overflow() == 0
