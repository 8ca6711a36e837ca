"""The Shapes tab, used as a presenter uses it. An app of its own: what is cleared, all lose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.visit import Visit
from tests.playground.served import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def url(small_gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app with a store of its own."""
    store = tmp_path_factory.mktemp("store")
    served = serve("--models", str(small_gpt2), "--store", str(store), "--admin")
    yield served.url
    served.end()


@pytest.fixture
def window(url: str, browser: Browser) -> Iterator[Visit]:
    """A visitor on a phone: what fits there fits everywhere."""
    visit = Visit(browser, url, 390, 844)
    yield visit
    visit.close()
    assert visit.complaints == []


def choose(window: Visit, **lists: set[int]) -> None:
    """Ticks these sizes and no others, with the keyboard."""
    window.open_tab("Shapes")
    for name, sizes in lists.items():
        for box in window.at(f"#{name} label").all():
            tick = box.locator("input")
            if tick.is_checked() != (int(box.inner_text()) in sizes):
                tick.focus()
                window.page.keyboard.press("Space")


def wait_for_text(window: Visit, selector: str, text: str) -> None:
    window.page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
        arg=[selector, text],
    )


def clear(window: Visit, what: str) -> None:
    window.open_tab("Shapes")
    window.at("#clear_what label", has_text=what).click()
    window.at("#clear_shapes").click()
    window.at("#clear_now").wait_for()
    assert "everybody who uses this page" in window.text("#clear_sentence")
    window.at("#clear_now").click()
    wait_for_text(window, "#clear_notice", "Cleared")
    window.open_tab("Playground")


def test_shapes_are_prefetched_cancelled_and_cleared(window: Visit) -> None:
    # Two shapes are made ready, and become HITs.
    choose(window, padded_lengths={16, 32}, beams={2}, new_slots={16})
    wait_for_text(window, "#shapes_summary", "2 shapes: 0 in memory, 0 on disk, 2 to be compiled")
    assert window.at("#shape_map .outcome-miss").count() == 2
    window.at("#make_ready").click()
    window.at("#making .busy").wait_for()
    wait_for_text(window, "#making", "2 shapes ready")
    window.page.wait_for_function(
        "document.querySelectorAll('#shape_map .outcome-hit').length === 2"
    )
    assert "2 in memory" in window.text("#shapes_summary")
    assert window.overflow() == 0
    window.open_tab("Playground")
    window.set_number("num_beams", 2)
    window.set_number("max_new_tokens", 16)
    window.at("#prediction .outcome-hit").wait_for()
    window.generate()
    assert window.text("#report .badge") == "HIT"

    # An order is cancelled: what had begun is kept, the rest is not made.
    choose(window, padded_lengths={64}, beams={1, 2, 3, 4, 5, 6}, new_slots={32, 64})
    wait_for_text(window, "#shapes_summary", "12 shapes")
    window.at("#make_ready").click()
    window.at("#making .busy").wait_for()
    window.at("#cancel_making").click()
    wait_for_text(window, "#making", "Cancelled")
    window.at("#shape_map .making, #shape_map .in-line").first.wait_for(state="detached")
    assert window.at("#shape_map .outcome-miss").count() > 0

    # From memory: the shape comes back from disk.
    clear(window, "From memory")
    window.at("#prediction .outcome-disk").wait_for()
    window.generate()
    assert window.text("#report .badge") == "DISK"

    # From disk too, also when nothing in memory changes by it.
    clear(window, "From memory")
    window.at("#prediction .outcome-disk").wait_for()
    clear(window, "Everything")
    window.at("#prediction .outcome-miss").wait_for()
    window.generate()
    assert window.text("#report .badge") == "MISS"
    assert window.at("#history tbody tr").count() == 3, "the list of runs stays"


def test_one_shape_is_cleared_and_another_stays_on_disk(window: Visit) -> None:
    choose(window, padded_lengths={16, 32}, beams={2}, new_slots={16})
    window.at("#make_ready").click()
    window.page.wait_for_function(
        "document.querySelectorAll('#shape_map .outcome-hit').length === 2"
    )
    window.at("#cancel_making:disabled").wait_for()  # else the next engine makes what is left
    window.at("#clear_what label", has_text="One shape").click()
    window.at("#clear_shape input").click()
    window.page.get_by_role("option", name="16 slots · 2 beams · 16 new").click()
    wait_for_text(window, "#shape_map", "HIT")
    clear(window, "One shape")
    window.open_tab("Shapes")
    window.at("#shape_map .outcome-disk").wait_for()
    assert window.text("#shape_map tbody").split() == "16 slots MISS 32 slots DISK".split()


def test_keep_forgets_nothing(window: Visit) -> None:
    window.open_tab("Shapes")
    window.at("#clear_shapes").click()
    window.at("#clear_not").click()
    window.at("#clear_now").wait_for(state="hidden")
    assert window.text("#clear_notice") == ""
