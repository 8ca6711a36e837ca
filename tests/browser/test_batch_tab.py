"""The Batch tab, used as a visitor uses it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.visit import Visit
from tests.playground.served import Site

Open = Callable[..., Visit]


def open_tab(window: Visit) -> None:
    window.open_tab("Batch")
    window.at("#batch_run").wait_for()


def wait_for_text(window: Visit, selector: str, text: str) -> None:
    window.page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
        arg=[selector, text],
    )


def column(window: Visit, label: str) -> list[str]:
    return window.at(f'#batch_report td[data-label="{label}"] > div').all_inner_texts()


def saved(window: Visit, label: str) -> str:
    with window.page.expect_download() as download:
        window.at("#batch_files a", has_text=label).click()
    return Path(download.value.path()).read_text(encoding="utf-8-sig")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_file_of_prompts_is_run_and_its_results_are_saved(
    visit: Open, tmp_path: Path, width: int
) -> None:
    window = visit(width, 844)
    open_tab(window)
    file = tmp_path / "prompts.csv"
    # The second shares the first one's shape, the third is longer.
    beams = {1280: 7, 390: 8}[width]
    file.write_text(f'note,prompt\na,=1+1\nb,"<b>The</b> owl, ""he"""\nc,{"the " * 40}\n')
    with window.page.expect_file_chooser() as chooser:
        window.at("#batch_upload").click()
    chooser.value.set_files(file)
    window.page.wait_for_function(
        "document.querySelector('#batch_prompts textarea')?.value.startsWith('note,prompt')"
    )
    window.set_number("batch_max_new_tokens", 16)
    window.set_number("batch_num_beams", beams)
    window.at("#batch_exact_key input").check()
    window.at("#batch_run").click()
    window.at("#batch_report td .badge", has_text="MISS").first.wait_for()
    wait_for_text(window, "#batch_report", "All 3 prompts done")
    window.at("#batch_run:enabled").wait_for()
    assert column(window, "Line") == ["2", "3", "4"]
    assert column(window, "Outcome") == ["MISS", "HIT", "MISS"]
    assert column(window, "Shape") == [f"{n} · {beams} · 16" for n in (16, 16, 64)]
    assert "<b>The</b> owl" in window.text("#batch_report")
    assert window.overflow() == 0

    rows = list(csv.DictReader(io.StringIO(saved(window, "CSV"), newline="")))
    assert [row["cache"] for row in rows] == ["miss", "hit", "miss"]
    assert rows[0]["prompt"] == "'=1+1"
    results = json.loads(saved(window, "JSON"))["results"]
    assert [result["prompt"] for result in results] == [
        "=1+1", '<b>The</b> owl, "he"', ("the " * 40).strip()
    ]  # fmt: skip
    assert [result["text"] for result in results] == [
        row["text"].removeprefix("'") if row["text"] != result["text"] else row["text"]
        for row, result in zip(rows, results, strict=True)
    ]


def test_stop_keeps_what_is_done_and_others_come_in_between(visit: Open, site: Site) -> None:
    window, other = visit(), visit()
    open_tab(window)
    window.at("#batch_model input").click()
    window.page.get_by_role("option", name="slow-gpt2").click()
    window.at("#batch_prompts textarea").fill("\n".join(["The old owl sat there"] * 40))
    window.set_number("batch_max_new_tokens", 128)
    window.at("#batch_run").click()
    window.at("#batch_report tr:nth-child(2) .badge:not(.outcome-none)").wait_for()

    other.set_number("max_new_tokens", 5)
    other.generate()
    assert window.at("#batch_run").is_disabled(), "the batch has still prompts to run"
    window.page.keyboard.press("Escape")
    wait_for_text(window, "#batch_report", "Stopped after")
    window.at("#batch_run:enabled").wait_for()
    done = len(json.loads(saved(window, "JSON"))["results"])
    assert 2 <= done < 40
    assert sum(text != "–" for text in column(window, "Outcome")) == done


def test_a_mistake_names_its_line_and_keeps_what_is_shown(visit: Open) -> None:
    window = visit()
    open_tab(window)
    window.at("#batch_prompts textarea").fill("The owl")
    window.set_number("batch_max_new_tokens", 5)
    window.page.keyboard.press("Control+Enter")
    wait_for_text(window, "#batch_report", "1 prompt done")
    shown = window.text("#batch_report")
    for text, sentence in (
        (" \n", "There are no prompts yet"),
        ("fine\n\n" + "the " * 3000, "Line 3: The prompt is"),
        ("prompt,note\n,x", "There are no prompts yet"),
    ):
        window.at("#batch_prompts textarea").fill(text)
        window.at("#batch_run").click()
        wait_for_text(window, "#batch_notice", sentence)
        assert window.text("#batch_report") == shown
        window.at("#batch_run:enabled").wait_for()


def test_a_row_without_a_prompt_is_skipped_and_named(visit: Open) -> None:
    window = visit()
    open_tab(window)
    window.at("#batch_prompts textarea").fill("prompt,note\nThe owl,a\n\nThe fox,b")
    window.set_number("batch_max_new_tokens", 5)
    window.at("#batch_run").click()
    wait_for_text(window, "#batch_report", "All 2 prompts done")
    assert "Line 3 has no prompt and was skipped." in window.text("#batch_report")
