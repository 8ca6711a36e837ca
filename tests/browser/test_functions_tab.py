"""The Functions tab, used as a presenter uses it. An app of its own: visitors share its shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.visit import Visit
from tests.playground.served import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser


TWO_CALLS = Path(__file__).with_name("two_calls.py")


@pytest.fixture(scope="module")
def url(small_gpt2: Path) -> Iterator[str]:
    """The app with a small model, and with what changes the engine."""
    served = serve("--models", str(small_gpt2), "--no-store", "--admin")
    yield served.url
    served.end()


@pytest.fixture
def window(url: str, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A visitor on the tab, with a window of the wanted width."""
    visit = Visit(browser, url, request.param, 844)
    open_tab(visit)
    yield visit
    visit.close()
    assert visit.complaints == []


def open_tab(visit: Visit) -> None:
    visit.open_tab("Functions")
    visit.at("#functions_run").wait_for()


def wait_for_text(visit: Visit, selector: str, text: str) -> None:
    visit.page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
        arg=[selector, text],
    )


def choose(visit: Visit, batch_size: int, expected: str) -> None:
    """Types a batch size; the line beside the button must say what it will meet."""
    visit.set_number("functions_batch_size", batch_size)
    wait_for_text(visit, "#functions_prediction", f"batch of {batch_size}")
    visit.at(f"#functions_prediction .outcome-{expected}").wait_for()


# Notes whether the button was switched off while the report said that it is busy: a comparison may
# be over between two looks of a test.
WATCH_BUTTON = """() => {
  window.wasOff = false;
  new MutationObserver(() => {
    const isBusy = document.querySelector("#functions_report .busy");
    if (isBusy && document.getElementById("functions_run").disabled) window.wasOff = true;
  }).observe(document.body, {subtree: true, childList: true, attributes: true});
}"""


def compare(visit: Visit) -> str:
    """Presses the button; returns what the report says in the end."""
    visit.page.evaluate(WATCH_BUTTON)
    visit.at("#functions_run").click()
    visit.page.wait_for_function("window.wasOff")
    visit.at("#functions_report .ways .way-call").first.wait_for()
    visit.page.locator("#functions_run:enabled").wait_for()
    return visit.text("#functions_report")


def badges(visit: Visit) -> list[str]:
    return [visit.text(f"#way_{way} .way-cache") for way in ("eager", "graph", "xla")]


@pytest.mark.parametrize("window", [390], indirect=True)
def test_a_new_shape_is_compiled_and_padding_avoids_it(window: Visit) -> None:
    choose(window, 5, "miss")
    report = compare(window)
    assert badges(window) == ["nothing is made", "MISS", "MISS"]
    assert re.search(r"(faster|slower|No faster) than eager with jit_compile=True", report)
    assert "Same output in all three ways" in report
    assert re.search(r"trace [\d.]+ m?s · compile [\d.]+ m?s · run", report)
    assert re.search(r"median of \d+ calls", report)
    assert window.overflow() == 0

    choose(window, 5, "hit")
    assert compare(window).count("First call, earlier") == 2
    assert badges(window) == ["nothing is made", "HIT", "HIT"]

    # Another size is another shape; padded, it shares the shape of the next power of two.
    choose(window, 7, "miss")
    window.at("#functions_pad input").check()
    wait_for_text(window, "#functions_prediction", "padded to 8")
    assert "float32[8, 10]" in compare(window)
    assert badges(window)[1:] == ["MISS", "MISS"]
    choose(window, 6, "hit")
    compare(window)
    assert badges(window)[1:] == ["HIT", "HIT"]
    wait_for_text(window, "#functions_kept", "6, 7")
    assert window.at("#functions_kept tbody tr").count() == 2
    assert "tf.pad(x, [[0, 2], [0, 0]])" in window.text("#functions_code")

    # The presenter shows the first call again.
    window.at("#functions_afresh").click()
    wait_for_text(window, "#functions_kept", "Nothing is compiled yet")
    window.at("#functions_prediction .outcome-miss").wait_for()
    compare(window)
    assert badges(window)[1:] == ["MISS", "MISS"]
    # Before the list has the shape it still says that there is none, and the window would be closed
    # before the press has gone out.
    window.at("#functions_kept tbody tr").first.wait_for()
    window.at("#functions_afresh").click()
    wait_for_text(window, "#functions_kept", "Nothing is compiled yet")


@pytest.mark.parametrize("window", [1280], indirect=True)
def test_the_convolution_with_the_keyboard(window: Visit) -> None:
    window.at("#functions_function label", has_text="convolution").click()
    wait_for_text(window, "#functions_prediction", "float32[5, 64, 64, 3]")
    wait_for_text(window, "#functions_code", "Conv2D(16, 3")
    window.page.keyboard.press("Control+Enter")
    window.at("#functions_report .ways .way-call").first.wait_for()
    report = window.text("#functions_report")
    assert "Small convolution network: batch of 5" in report
    assert "Same output in all three ways" in report
    wait_for_text(window, "#functions_kept", "float32[5, 64, 64, 3]")


@pytest.mark.parametrize("window", [1280], indirect=True)
def test_the_retrace_doctor_says_which_difference_traced(window: Visit, tmp_path: Path) -> None:
    window.at("#doctor_weighted_2_2 label", has_text="3.0").click()
    window.at("#doctor_code", has_text="factor=3.0").wait_for()
    window.at("#doctor_run").click()
    window.at(".doctor-verdict", has_text="traced and compiled again").wait_for()
    row = window.at("#doctor_report tbody tr")
    assert row.count() == 1
    for said in ("factor", "2.0", "3.0", "Traced and compiled again", "constant of the graph"):
        assert said in row.inner_text()
    window.at("#doctor_any_rows input").check()
    window.at("#doctor_run:enabled").click()
    window.at("#doctor_notice .problem", has_text="pass it as a tensor").wait_for()
    window.at("#doctor_function label", has_text="generate").click()
    window.at("#doctor_code", has_text="tf.function(model.generate").wait_for()
    window.at("#doctor_notice .problem").wait_for(state="detached")
    window.at("#doctor_function label", has_text="A file of yours").click()
    # Such as one that was uploaded: the page runs what lies in its own folder.
    elsewhere = tmp_path / "two_calls.py"
    elsewhere.write_text(TWO_CALLS.read_text())
    for path in (elsewhere, TWO_CALLS.with_name("none.py")):
        window.at("#doctor_file textarea, #doctor_file input").fill(str(path))
        window.at("#doctor_run:enabled").click()
        window.at("#doctor_notice .problem", has_text="in the folder in which").wait_for()
    window.at("#doctor_file textarea, #doctor_file input").fill(str(TWO_CALLS))
    window.at("#doctor_run:enabled").click()
    window.at("#doctor_report tbody tr", has_text="how").wait_for()
