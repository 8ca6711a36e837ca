"""The Speech tab, used as a visitor uses it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import TimeoutError as NotInTime

from playground.speech.examples import FOLDER, speech_examples
from tests.browser.visit import Visit
from tests.playground.served import Site, children, slowed, was_cut_short
from xla_backend import Backend

Open = Callable[..., Visit]


@pytest.fixture(scope="module")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All examples again and again, seven minutes of them."""
    sounds = [soundfile.read(path)[0] for path in sorted(FOLDER.glob("*.flac"))]
    path = tmp_path_factory.mktemp("recordings") / "long.wav"
    soundfile.write(path, np.concatenate(sounds * 26), 16_000)
    return path


@pytest.fixture
def speech(visit: Open) -> Callable[..., Visit]:
    """Opens the Speech tab as a new visitor."""

    def open_tab(width: int = 1280) -> Visit:
        window = visit(width, 1000)
        window.open_tab("Speech")
        window.at("#speech_prediction .prediction-key").wait_for()
        return window

    return open_tab


def choose_example(window: Visit, name: str) -> None:
    """Presses an example and waits until its sound is there to be played."""
    window.at("#speech_examples button", has_text=name).click()
    window.page.wait_for_function(
        "/0:0[1-9]|0:[1-5]\\d/.test(document.querySelector('#duration')?.textContent)"
    )


def upload(window: Visit, path: Path) -> None:
    """Puts a file into the recorder."""
    window.at('#recording input[type="file"]').set_input_files(path)
    window.at("#recording [aria-label='Clear']").wait_for()


# Notes that a run has begun: a short one may be over between two looks of a test.
WATCH_REPORT = """() => {
  window.hasBegun = false;
  new MutationObserver(() => {
    if (document.querySelector("#speech_report .busy")) window.hasBegun = true;
  }).observe(document.body, {subtree: true, childList: true, attributes: true});
}"""
BEGINS_WITHIN_MS = 30_000


def transcribe(window: Visit) -> None:
    """Presses the button and waits until the run is over."""
    window.page.evaluate(WATCH_REPORT)
    window.at("#transcribe").click()
    # A page that is late shows nothing but the end: then it is there by now.
    with contextlib.suppress(NotInTime):
        window.page.wait_for_function("window.hasBegun", timeout=BEGINS_WITHIN_MS)
    wait_for_transcript(window)


def wait_for_transcript(window: Visit) -> None:
    """Waits until a run that has begun is over."""
    window.at("#speech_report .busy").wait_for(state="detached")
    window.at("#transcribe:enabled").wait_for()


def rows(window: Visit) -> list[list[str]]:
    """The cells of the table of windows."""
    return window.page.evaluate(
        "[...document.querySelectorAll('#windows tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )


def problem(window: Visit) -> str:
    """What is said to be wrong with the request, once it is said."""
    window.at("#speech_notice .problem").wait_for()
    return window.text("#speech_notice")


# Beams that no other test asks for: the first call must be a first call.
@pytest.mark.parametrize(("width", "num_beams"), [(1280, 3), (390, 4)])
def test_an_example_is_written_down_and_compared_with_the_truth(
    speech: Callable[..., Visit], width: int, num_beams: int
) -> None:
    window = speech(width)
    window.set_number("speech_num_beams", num_beams)
    window.at("#speech_prediction .outcome-miss").wait_for()
    choose_example(window, "Command 2")
    transcribe(window)
    heard = window.text("#heard .story")
    assert heard
    assert window.text("#speech_report .badge") == "MISS"
    assert window.text("#heard .truth-text") == speech_examples()[1].said
    assert "real time" in window.text("#speech_report")

    window.at("#speech_prediction .outcome-hit").wait_for()
    transcribe(window)
    assert window.text("#speech_report .badge") == "HIT"
    assert window.text("#heard .story") == heard
    assert re.search(r"[\d,.]+× faster than real time", window.text("#speech_report"))
    assert re.search(r"[\d,.]+× faster than the first window", window.text("#speech_report"))
    assert rows(window) == []
    assert window.overflow() == 0


def test_the_transcript_is_what_the_engine_hears(
    speech: Callable[..., Visit], backend: Backend
) -> None:
    window = speech()
    choose_example(window, "Command 6")
    transcribe(window)
    expected = backend.transcribe("whisper-commands", FOLDER / "command-6.flac")
    assert window.text("#heard .story") == expected.text


def test_a_long_recording_is_cut_into_windows_that_share_one_function(
    speech: Callable[..., Visit], tmp_path: Path
) -> None:
    window = speech()
    window.set_number("speech_num_beams", 5)
    # As an upload, of another rate and in stereo.
    sound = speech_examples()[-1].sound
    (tmp_path / "all.wav").write_bytes(sound)
    samples, rate = soundfile.read(tmp_path / "all.wav")
    soundfile.write(tmp_path / "all.flac", np.repeat(samples, 2), 2 * rate)
    upload(window, tmp_path / "all.flac")
    transcribe(window)
    cells = rows(window)
    assert len(cells) >= 5
    assert [row[3] for row in cells] == ["MISS"] + ["HIT"] * (len(cells) - 1)
    assert cells[0][1].startswith("0:00.0 – ")
    starts = [row[1].split(" – ")[0] for row in cells]
    ends = [row[1].split(" – ")[1] for row in cells]
    assert starts[1:] == ends[:-1]
    assert all(re.fullmatch(r"[\d.]+ m?s", row[4]) for row in cells)
    assert " ".join(row[2] for row in cells) == window.text("#heard .story")
    # Nobody knows what a visitor's own file says.
    assert window.at("#heard .truth").count() == 0


def test_a_bad_recording_is_told_beside_the_button_and_keeps_the_last_transcript(
    speech: Callable[..., Visit], tmp_path: Path
) -> None:
    window = speech()
    window.at("#transcribe").click()
    assert "There is no recording yet" in problem(window)
    choose_example(window, "Command 1")
    window.page.wait_for_function("document.querySelector('#speech_notice')?.innerText === ''")
    transcribe(window)
    before = window.text("#heard"), window.text("#speech_report")

    (tmp_path / "text.wav").write_text("This is no sound.\n" * 20)
    soundfile.write(tmp_path / "silent.wav", np.zeros(16_000), 16_000)
    soundfile.write(tmp_path / "short.wav", np.full(400, 0.1), 16_000)
    soundfile.write(tmp_path / "long.flac", np.tile([0.1, -0.1], 1_000 * 601 // 2), 1_000)
    for name, sentence in {
        "text.wav": "'text.wav' cannot be read as audio",
        "silent.wav": "The recording is silent",
        "short.wav": "only 0.03 s long",
        "long.flac": "at most 600 s are taken at once",
    }.items():
        window.at("#recording [aria-label='Clear']").click()
        upload(window, tmp_path / name)
        window.at("#transcribe").click()
        assert sentence in problem(window)
        window.at("#transcribe:enabled").wait_for()
        assert (window.text("#heard"), window.text("#speech_report")) == before
    # Gradio's player tells the console, too, what it cannot play.
    assert [said for said in window.complaints if "MediaError" not in said] == []
    window.complaints.clear()


def test_stop_keeps_what_was_heard(
    speech: Callable[..., Visit], site: Site, long_recording: Path
) -> None:
    window = speech()
    window.set_number("speech_num_beams", 8)
    upload(window, long_recording)
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        window.at("#transcribe").click()
        window.at("#windows tbody tr").first.wait_for()
        assert window.at("#speech_report .busy").count() == 1, "the windows came all at once"
        window.page.keyboard.press("Escape")
        wait_for_transcript(window)
    assert "You stopped it" in window.text("#speech_report")
    seconds = re.search(r"Sound\s+([\d.]+) s", window.text("#speech_report"))
    assert seconds is not None
    assert 3 < float(seconds[1]) < 400
    assert window.text("#heard .story").startswith("how warm is")
    assert window.at("#stop_speech").is_disabled()


def test_a_visitor_who_leaves_stops_the_transcription(
    speech: Callable[..., Visit], site: Site, long_recording: Path
) -> None:
    window = speech()
    upload(window, long_recording)
    before = len(site.log_lines())
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        window.at("#transcribe").click()
        window.page.wait_for_function("document.querySelectorAll('#windows tbody tr').length >= 2")
        window.close()
        assert was_cut_short(site.line_after(before))
    other = speech()
    choose_example(other, "Command 3")
    transcribe(other)
    waited = re.search(r"Queue\s+([\d.]+) (m?s)", other.text("#speech_report"))
    assert waited is None or waited[2] == "ms" or float(waited[1]) < 5


def test_a_multilingual_model_is_told_the_language(
    speech: Callable[..., Visit],
) -> None:
    window = speech()
    assert window.at("#speech_language input").count() == 0
    window.at("#speech_model input").click()
    window.page.get_by_role("option", name="multilingual").click()
    window.at("#speech_language input").fill("Klingon")
    window.page.keyboard.press("Tab")
    choose_example(window, "Command 1")
    window.at("#transcribe").click()
    assert "does not know the language 'Klingon'" in problem(window)
    assert "It knows: de, en" in window.text("#speech_notice")


def test_the_page_says_what_the_small_model_cannot_do(speech: Callable[..., Visit]) -> None:
    caution = speech().text("#speech_caution")
    assert "trained on synthetic voices only" in caution
    assert "For real speech choose openai/whisper-tiny" in caution
