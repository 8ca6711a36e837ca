"""Token view, history and statistics, used as a visitor uses them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.browser.visit import Visit
from tests.playground.served import Site, children, slowed

Open = Callable[..., Visit]
TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def has_runs(window: Visit, number: int) -> None:
    """Waits until the table has so many rows."""
    window.page.wait_for_function(
        "number => document.querySelectorAll('#history tbody tr').length === number", arg=number
    )


def download(window: Visit, button: str) -> str:
    """What a button saves."""
    with window.page.expect_download() as saved:
        window.at(button).click()
    return Path(saved.value.path()).read_text(encoding="utf-8-sig")


def upload(window: Visit, name: str, content: str) -> None:
    """Chooses a file to import."""
    window.at(
        "#import_json input, #import_json + input, input[accept='.json']"
    ).first.set_input_files(
        {"name": name, "mimeType": "application/json", "buffer": content.encode()}
    )


def test_tokens_are_shaded_and_read_with_the_keyboard(visit: Open, site: Site) -> None:
    window = visit(390, 844, color_scheme="dark")
    window.write("Tokens of a tale")
    window.set_number("max_new_tokens", 12)
    window.hold_seed()  # other tokens may take more lines, which is no jump
    window.generate()
    window.at("#result_view label", has_text="Tokens").click()
    tokens = window.at("#tokens button.token")
    tokens.first.wait_for()
    assert not window.at("#story").is_visible()
    new = re.search(r"(\d+)\s+new", window.text("#report .shape .legend"))
    padding = re.search(r"(\d+)\s+padding", window.text("#report .shape .legend"))
    assert new is not None and padding is not None
    assert tokens.count() == int(new[1])
    assert window.at("#tokens .slot-padding").count() == int(padding[1])

    tokens.first.focus()
    window.page.keyboard.press("ArrowRight")
    # The focus follows once the token has been scrolled into sight.
    window.at("#tokens .token-detail", has_text="Token 2 of").wait_for(state="attached")
    assert re.search(r"[\d.]+% likely", window.text("#tokens .token-detail"))
    # Scrolling hides what the click shows, and is told a frame later.
    tokens.nth(3).scroll_into_view_if_needed()
    window.page.evaluate(TWO_FRAMES)
    tokens.nth(3).click()
    assert "Token 4 of" in window.text("#tokens .token-detail")
    popover = window.at("#tokens .token-popover")
    assert popover.locator("li").count() in (5, 6)
    assert popover.locator("li.chosen").count() == 1
    assert re.search(r"\d%", popover.locator("li").first.inner_text())
    box = popover.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert popover.is_visible()
    window.page.keyboard.press("Escape")
    assert not popover.is_visible()
    tokens.nth(5).hover()
    assert popover.is_visible()
    assert window.at("#tokens .token.given").count() > 0
    assert window.page.evaluate("document.querySelectorAll('#tokens [tabindex=\"0\"]').length") == 1
    assert window.overflow() == 0

    place = "document.querySelector('#report').offsetTop"
    before = window.page.evaluate(place)
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        window.at("#generate").click()
        window.at("#report .busy").wait_for(state="attached")
        assert window.page.evaluate(place) == before, "the report jumps while text streams"
    window.wait_for_result()
    assert window.page.evaluate(place) == before

    window.at("#result_view label", has_text="Text").first.click()
    assert window.at("#story .story-new").is_visible()
    assert not tokens.first.is_visible()


def test_runs_are_rerun_pinned_deleted_exported_and_brought_back(visit: Open) -> None:
    window = visit()
    window.write("=A run with a seed")
    window.set_number("max_new_tokens", 10)
    window.generate()
    window.write("Another prompt")
    window.set_number("max_new_tokens", 9)
    window.generate()
    assert window.at("#timeline .marks .mark").count() == 2

    rows = window.at("#history tbody tr")
    rows.nth(1).get_by_role("button", name="Rerun").click()
    has_runs(window, 3)
    window.wait_for_result()
    window.has_value("#prompt textarea", "=A run with a seed")
    window.has_value('#max_new_tokens input[type="number"]', "10")
    same = [rows.nth(place).locator(".run-text").inner_text() for place in (0, 2)]
    assert same[0] == same[1], "the same seed gives the same text"

    for place in (0, 1):
        rows.nth(place).get_by_role("button", name="Pin").click()
        rows.nth(place).get_by_role("button", name="Unpin").wait_for()
    window.at("#pinned .faster").wait_for()
    assert "Another prompt" in window.text("#pinned")
    assert "Max new tokens" in window.text("#pinned table >> nth=0")

    table = list(csv.DictReader(io.StringIO(download(window, "#export_csv"))))
    assert [row["prompt"] for row in table] == [
        "'=A run with a seed",
        "Another prompt",
        "'=A run with a seed",
    ]
    saved = download(window, "#export_json")
    assert json.loads(saved)["machine"]["cores"] >= 1

    rows.first.get_by_role("button", name="Delete").click()
    has_runs(window, 2)
    upload(window, "broken.json", "{")
    window.at("#history_notice .problem", has_text="not JSON").wait_for()
    has_runs(window, 2)
    upload(window, "runs.json", saved)
    window.at("#history_notice", has_text="1 run imported").wait_for()
    has_runs(window, 3)
    window.go()
    window.settle()
    has_runs(window, 3)

    other = visit(390, 844)
    upload(other, "runs.json", saved)
    has_runs(other, 3)
    assert other.overflow() == 0


def test_statistics_come_from_the_visitor_and_from_the_engine(visit: Open) -> None:
    window = visit(390, 844)
    window.open_tab("Statistics")
    window.at("#statistics_runs", has_text="Nothing to count yet").wait_for()
    window.open_tab("Playground")
    window.set_number("max_new_tokens", 8)
    for _ in range(3):
        window.generate()
    window.open_tab("Statistics")
    window.at("#statistics_runs tbody tr").first.wait_for()
    assert window.at("#statistics_runs .marks .mark").count() == 3
    assert "p95" in window.text("#statistics_runs")
    window.at("#statistics_engine .versus-row", has_text="Cached").first.wait_for()
    assert window.overflow() == 0


def test_two_windows_of_a_browser_have_one_history(visit: Open) -> None:
    first = visit()
    second = first.beside()
    for number, (window, prompt) in enumerate(((first, "One"), (second, "Two"), (first, "Three"))):
        window.write(prompt)
        window.generate()
        for each in (first, second):
            has_runs(each, number + 1)
    for window in (first, second):
        prompts = [row["prompt"] for row in json.loads(download(window, "#export_json"))["runs"]]
        assert prompts == ["Three", "Two", "One"]
    second.at("#history tbody tr").nth(1).get_by_role("button", name="Delete").click()
    has_runs(first, 2)
    first.at("#clear").click()
    has_runs(second, 0)
    first.at("#undo_clear").click()
    has_runs(second, 2)
    second.go()
    second.settle()
    has_runs(second, 2)
