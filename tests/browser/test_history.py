"""Token view and history, used as a visitor uses them."""

import csv
import io
import json
import re
from collections.abc import Callable

from playwright.sync_api import Locator, expect

from tests.browser.visit import Visit
from tests.playground.fake_backend import FakeBackend
from tests.waiting import wait_until

Open = Callable[..., Visit]


def rows(window: Visit, number: int) -> Locator:
    """The table's rows, once there are so many."""
    found = window.at("#history tbody tr")
    expect(found).to_have_count(number)
    return found


def clear(window: Visit) -> None:
    """Opens the runs and clears them."""
    window.open_mode("Your runs")
    window.at("#clear").click()
    rows(window, 0)


def test_tokens_are_shaded_and_read_with_the_keyboard(window: Visit, engine: FakeBackend) -> None:
    window.resize(390, 844)
    engine.words = (" there", " was", " a", " fox", " who", " ran")
    window.generate()
    window.at("#result_view label", has_text="Tokens").click()
    tokens, detail = window.at("#tokens button.token"), "#tokens .token-detail"
    expect(tokens).to_have_count(6)
    expect(window.at("#story")).not_to_be_visible()
    padding = re.search(r"(\d+)\s+padding", window.text("#report .shape .legend"))
    expect(window.at("#tokens .slot-padding")).to_have_count(int(padding[1]))
    expect(window.at("#tokens .token.given")).to_have_count(12)

    tokens.first.focus()
    window.page.keyboard.press("ArrowRight")
    window.says(detail, "Token 2 of 6", "61% likely")
    tokens.nth(3).click()
    window.says(detail, "Token 4 of 6")
    popover = window.at("#tokens .token-popover")
    expect(popover.locator("li")).to_have_count(5)
    expect(popover.locator("li.chosen")).to_contain_text("61%")
    box = popover.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    window.page.keyboard.press("Escape")
    expect(popover).to_be_hidden()
    tokens.nth(5).hover()
    expect(popover).to_be_visible()
    assert window.page.evaluate("document.querySelectorAll('#tokens [tabindex=\"0\"]').length") == 1
    assert window.overflow() == 0
    window.at("#result_view label", has_text="Text").first.click()
    expect(window.at("#story .story-new")).to_be_visible()
    expect(tokens.first).to_be_hidden()


def test_runs_are_rerun_deleted_and_exported(window: Visit, engine: FakeBackend) -> None:
    clear(window)
    window.open_mode("Playground")
    window.write("=A run with a seed")
    window.generate()
    window.write("Another prompt")
    window.set_number("max_new_tokens", 9)
    window.generate()
    window.open_mode("Your runs")
    rows(window, 2).nth(1).get_by_role("button", name="Rerun").click()
    window.has_value("#prompt textarea", "=A run with a seed")
    wait_until(lambda: len(engine.asked) == 3)
    window.wait_for_result()
    assert engine.asked[2] == engine.asked[0]
    window.open_mode("Your runs")
    found = rows(window, 3)

    table = list(csv.DictReader(io.StringIO(window.saved("#export_csv"))))
    assert [row["prompt"] for row in table] == [
        "'=A run with a seed",
        "Another prompt",
        "'=A run with a seed",
    ]
    saved = window.saved("#export_json")
    assert json.loads(saved)["machine"]["cores"] >= 1

    found.first.get_by_role("button", name="Delete").click()
    rows(window, 2)
    window.import_runs("broken.json", "{")
    window.says("#history_notice .problem", "not JSON")
    rows(window, 2)
    window.import_runs("runs.json", saved)
    window.says("#history_notice", "1 run imported")
    rows(window, 3)
    window.go()
    window.settle()
    rows(window, 3)
    window.resize(390, 844)
    assert window.overflow() == 0


def test_the_windows_of_a_browser_have_one_history(visit: Open, window: Visit) -> None:
    first = window
    clear(first)
    second = first.beside()
    for number, (each, prompt) in enumerate(((first, "One"), (second, "Two"), (first, "Three"))):
        each.page.bring_to_front()
        each.open_mode("Playground")
        each.write(prompt)
        each.generate()
        for either in (first, second):
            either.open_mode("Your runs")
            rows(either, number + 1)
    for each in (first, second):
        each.page.bring_to_front()
        prompts = [row["prompt"] for row in json.loads(each.saved("#export_json"))["runs"]]
        assert prompts == ["Three", "Two", "One"]
    rows(second, 3).nth(1).get_by_role("button", name="Delete").click()
    rows(first, 2)
    first.page.bring_to_front()
    first.at("#clear").click()
    first.says("#history .nothing", "Your runs appear here")
    rows(second, 0)
    first.open_mode("Playground")
    first.generate()
    first.open_mode("Your runs")
    first.at("#undo_clear").click()
    rows(second, 3)
    expect(first.at("#undo_clear")).to_be_hidden()
    second.page.close()
    stranger = visit()
    stranger.generate()
    stranger.open_mode("Your runs")
    rows(stranger, 1)
    assert "Three" not in stranger.text("#history")


def test_a_browser_without_room_says_so(window: Visit, engine: FakeBackend) -> None:
    window.page.evaluate(
        """() => {
          let text = "";
          for (let size = 2 ** 22; size >= 1; size /= 2)
            try {
              localStorage.setItem("other", text + "x".repeat(size));
              text += "x".repeat(size);
            } catch { }
        }"""
    )
    window.generate()
    window.open_mode("Your runs")
    window.says("#history_notice", "no room for more runs")
    window.page.evaluate("localStorage.removeItem('other')")
    assert all("QuotaExceededError" in each for each in window.complaints)
    window.complaints.clear()  # Gradio's own, for developers


def test_the_latest_runs_are_saved_as_a_page_that_needs_no_server(window: Visit) -> None:
    for number in range(5):
        window.write(f"Story {number}")
        window.generate()
    page = window.saved("#save_page")
    assert [f". Story {number}" in page for number in range(5)] == [False, *[True] * 4]
    assert "4 runs, recorded on" in page and 'src="http' not in page
