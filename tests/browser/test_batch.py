"""The Batch tab, used as a visitor uses it, with an engine that a test leads."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.visit import Visit
from tests.playground.fake_backend import FakeBackend

Open = Callable[..., Visit]
PROMPTS = "#batch_prompts textarea"


@pytest.fixture
def window(window: Visit) -> Visit:
    """A visitor of the tab, with a phone: what fits there fits everywhere."""
    window.resize(390, 844)
    window.open_mode("Batch")
    window.at("#batch_run").wait_for()
    return window


def column(window: Visit, label: str) -> list[str]:
    return window.at(f'#batch_report td[data-label="{label}"] > div').all_inner_texts()


def test_a_file_of_prompts_is_run_and_its_results_are_saved(window: Visit, tmp_path: Path) -> None:
    file = tmp_path / "prompts.csv"
    # The second shares the first one's shape, the third is longer; one has no prompt.
    file.write_text(f'note,prompt\na,=1+1\nb,"<b>The</b> owl, ""he"""\nc,\nd,{"the " * 20}\n')
    with window.page.expect_file_chooser() as chooser:
        window.at("#batch_upload").click()
    chooser.value.set_files(file)
    expect(window.at(PROMPTS)).to_have_value(file.read_text())
    window.open_settings()
    window.set_number("max_new_tokens", 16)
    window.set_number("num_beams", 7)
    window.at("#exact_key input").check()
    window.at("#settings_close").click()
    window.at("#batch_run").click()
    window.says("#batch_report", "All 3 prompts done", "Line 4 has no prompt and was skipped.")
    window.says("#batch_report", "<b>The</b> owl")
    assert column(window, "Line") == ["2", "3", "5"]
    assert column(window, "Outcome") == ["MISS", "HIT", "MISS"]
    assert column(window, "Shape") == [f"{n} · 7 · 16" for n in (16, 16, 64)]
    assert window.overflow() == 0

    rows = list(csv.DictReader(io.StringIO(window.saved("#batch_files a", "CSV"), newline="")))
    assert [row["cache"] for row in rows] == ["miss", "hit", "miss"]
    assert rows[0]["prompt"] == "'=1+1"
    results = json.loads(window.saved("#batch_files a", "JSON"))["results"]
    prompts = ["=1+1", '<b>The</b> owl, "he"', ("the " * 20).strip()]
    assert [result["prompt"] for result in results] == prompts
    assert [result["text"] for result in results] == [row["text"] for row in rows]


def test_others_stops_and_mistakes(window: Visit, visit: Open, engine: FakeBackend) -> None:
    other = visit()
    window.at(PROMPTS).fill("\n".join(["The old owl sat there"] * 40))
    window.open_settings()
    window.at("#exact_key input").uncheck()
    window.set_number("num_beams", 1)
    window.at("#settings_close").click()
    engine.hold("text")
    window.at("#batch_run").click()
    engine.write(" one")
    window.says("#batch_report", "one")
    engine.end()
    window.says("#batch_report tbody tr:nth-child(1)", "MISS")
    engine.write(" two")
    window.says("#batch_report tbody tr:nth-child(2)", "two")
    engine.hold("turn")
    other.write("Another's prompt")
    other.at("#generate").click()
    engine.reached("turn")
    window.page.keyboard.press("Escape")
    window.says("#batch_report", "Stopped after 2 of 40")
    engine.release()
    other.says("#story .story-prompt", "Another's prompt")
    window.at("#batch_run:enabled").wait_for()
    assert len(json.loads(window.saved("#batch_files a", "JSON"))["results"]) == 2
    assert column(window, "Outcome") == ["MISS", "HIT", *["–"] * 38]

    shown = window.text("#batch_report")
    for text, sentence in (
        (" \n", "There are no prompts yet"),
        ("fine\n\n" + "the " * 300, "Line 3: The model has room for 150 tokens."),
    ):
        window.at(PROMPTS).fill(text)
        window.page.keyboard.press("Control+Enter")
        window.says("#batch_notice", sentence)
        assert window.text("#batch_report") == shown
        window.at("#batch_run:enabled").wait_for()


def test_visitors_arrive_together(window: Visit, engine: FakeBackend) -> None:
    window.at(PROMPTS).fill("One day\nA fox")
    window.at("#batch_way label", has_text="Many visitors at once").click()
    window.set_number("batch_visitors", 3)
    window.at("#batch_run").click()
    window.says("#batch_report", "All 3 prompts done")
    assert window.overflow() == 0
    salts = [stream.request.cache_salt for stream in engine.streams]
    assert len(set(salts)) == 3 and all(salts)
