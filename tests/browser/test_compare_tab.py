"""The Compare tab, used as a presenter uses it; one real comparison with Transformers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.visit import Visit
from tests.playground.served import serve
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def window(visit: Callable[..., Visit]) -> Visit:
    """A visitor of the tab."""
    window = visit()
    window.open_tab("Compare")
    return window


def choose(window: Visit, kind: str) -> None:
    window.at("#compare_kind label", has_text=kind).click()


def wait_for_text(window: Visit, selector: str, text: str) -> None:
    window.page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
        arg=[selector, text],
    )


def compare(window: Visit) -> None:
    window.at("#compare").click()
    window.at("#compare:disabled").wait_for()


def charts_place(window: Visit) -> list[int]:
    """Where the charts stand on the page, and how high they are together."""
    return window.page.evaluate(
        "[...document.querySelectorAll('#ways figure')].flatMap(figure => {"
        " const box = figure.getBoundingClientRect();"
        " return [Math.round(box.top + scrollY), Math.round(box.height)]; })"
    )


def test_the_guide_s_claim_is_measured_live(window: Visit, visit: Callable[..., Visit]) -> None:
    window.at("#compare_estimate", has_text="Takes about").wait_for()
    estimate = window.text("#compare_estimate")
    assert re.search(r"Takes about [\d.]+ (min|s)", estimate)
    assert "judging by the size of the model" in estimate
    window.set_number("compare_new_tokens", 4)
    other = visit()
    before = charts_place(window)
    compare(window)
    window.at("#ways .baseline.now").first.wait_for()
    assert charts_place(window) == before

    # Other visitors' requests wait, and what is wrong with a request is said at once.
    window.open_tab("Playground")
    window.at("#generate").click()
    wait_for_text(window, "#notice", "Your last run has not ended yet")
    window.open_tab("Compare")

    # Another visitor reads what runs and for how long; the engine is not called ready.
    wait_for_text(window, "#ways .claim", "left.")
    other.at("#generate").click()
    other.at("#report .badge", has_text="WAITS").wait_for()
    other.at("#download", has_text="Runs now: Comparing · about").wait_for()
    other.at("#status .status-left").wait_for()
    assert "Comparing" in other.text("#status")
    assert "Engine ready" not in other.text("#status")
    clock = other.at("#report [data-spent]")
    before_s = int(clock.inner_text().split()[0])
    other.page.wait_for_timeout(2500)
    assert int(clock.inner_text().split()[0]) >= before_s + 2

    window.at("#compare:enabled").wait_for(timeout=300_000)
    other.wait_for_result()
    headline = other.text("#report")
    assert re.search(r"Work\s+[\d.]+ m?s\s+Waited\s+[\d.]+ s", headline)
    # In one sentence where both waited as long; between two chunks it may have waited once more.
    both = r"End to end .* (and TTFT .* include|includes .* TTFT .* includes) .* of waiting for"
    assert re.search(both, headline)
    said = window.text("#ways .claim")
    assert re.search(r"First call [\d.]+\sm?s → [\d.]+\sm?s, from disk [\d.]+\sm?s\. Later", said)
    assert re.search(r"times faster than eager|no difference within noise from eager", said)
    assert window.text("#ways").count("9 calls, half within") == 3
    assert "Identical output: 4 ways, the same 4 tokens." in window.text("#ways .agreement")
    assert window.at("#ways .baseline-track i").count() >= 7
    assert charts_place(window) == before
    assert window.at("#compare_notice").inner_text() == ""
    assert "judging by the last comparison" in window.text("#compare_estimate")
    window.at("#values summary").press("Enter")
    assert window.at("#values tbody tr").count() == 4

    # A new comparison that is cancelled ends at once, and says so.
    compare(window)
    wait_for_text(window, "#ways", "importing TensorFlow")
    window.at("#compare_cancel").click()
    wait_for_text(window, "#ways .claim", "Cancelled")
    window.at("#compare:enabled").wait_for(timeout=300_000)


def test_the_engine_beside_itself_on_a_phone(visit: Callable[..., Visit]) -> None:
    window = visit(390, 844)
    window.open_tab("Compare")
    choose(window, "Numbers of beams")
    window.set_number("compare_new_tokens", 4)
    for number in ("4", "8"):
        window.at("#compare_beams label", has_text=number).click()
    compare(window)
    window.at("#compare:enabled").wait_for(timeout=300_000)
    assert re.search(r"fastest|as long as|No difference within noise", window.text("#variants"))
    assert window.text("#variants").count("9 calls, half within") == 2
    assert window.at("#variants .variant").count() == 2
    assert "–" not in window.text("#variants")
    assert window.overflow() == 0

    # A mistake is said, and what was measured stays.
    choose(window, "Option sets")
    window.at("#compare_options textarea").fill("temperature=0\nheat=1")
    window.at("#compare").click()
    wait_for_text(window, "#compare_notice", "Option set 2: unknown option heat")
    assert window.at("#variants .badge").count() == 2
    window.at("#compare_options textarea").fill("temperature=0.5, seed=1\ntemperature=0.5, seed=2")
    compare(window)
    window.at("#compare:enabled").wait_for(timeout=300_000)
    assert "seed=2" in window.text("#variants")
    assert window.at("#compare_notice").inner_text() == ""


def test_headline_and_first_way_are_in_sight_at_150_per_cent(visit: Callable[..., Visit]) -> None:
    """1280x800 at 150 %: the button lies far below what it brings."""
    window = visit(853, 533)
    window.open_tab("Compare")
    compare(window)

    def is_in_sight() -> bool:
        return window.page.evaluate(
            "(() => { const [header, claim, way] = ['#top', '#ways .claim', '#ways .baseline']"
            ".map((each) => document.querySelector(each)?.getBoundingClientRect() ?? {});"
            " return claim.top >= header.bottom - 1 && way.bottom <= innerHeight; })()"
        )

    wait_until(is_in_sight)
    wait_for_text(window, "#ways", "importing TensorFlow")
    assert is_in_sight()
    window.at("#compare_cancel").dispatch_event("click")
    window.at("#compare:enabled").wait_for(timeout=300_000)
    assert is_in_sight()
    assert window.overflow() == 0


def test_where_transformers_lanes_miss_their_models_the_page_offers_them(
    browser: Browser, tmp_path: Path
) -> None:
    """Here without a network: what pip says is told, and this engine's ways are measured."""
    served = serve("--models", "gpt2-stories", XLA_BACKEND_BASELINE=str(tmp_path), PIP_NO_INDEX="1")
    window = Visit(browser, served.url, 1280, 900)
    try:
        window.open_tab("Compare")
        offer = window.at("#compare_install")
        assert "18 MB to download" in offer.inner_text()
        assert offer.locator("input").is_checked()
        window.set_number("compare_new_tokens", 4)
        compare(window)
        window.at("#compare:enabled").wait_for(timeout=300_000)
        wait_for_text(window, "#compare_notice", "could not be installed (ERROR: No matching")
        wait_for_text(window, "#compare_notice", "run: python -m xla_backend baseline")
        assert window.at("#ways .baseline.failed").count() == 2
        assert window.at("#ways .baseline-engine_from_disk").count() == 1
        assert offer.is_visible()

        choose(window, "Beams")
        offer.wait_for(state="hidden")
        assert window.complaints == []
    finally:
        window.close()
        served.end()
