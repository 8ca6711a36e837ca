"""The page's overhead: time from the click to the first visible text.

Knows the page as a visitor's browser does, and the first-token time in the page's report. Must not
import page or engine. Chromium runs on the same machine as the engine.
"""

from __future__ import annotations

import re
import shutil
from typing import Any

from playwright.sync_api import Browser, Page, Playwright, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from benchmarks.contenders import ContenderFailed
from benchmarks.measures import FAR_S
from benchmarks.served import served

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
CHROMIUM_ARGUMENTS += ["--disable-background-networking", "--disable-component-update"]
PATIENCE_MS = 90_000
PROMPT = "Once upon a time there was a little fox"

# Takes both times in the browser, so the driver's time is not included. The previous text may stay
# until the new one begins: the first text of a run is one that differs from it.
_TAKE_TIMES = """() => {
  const read = () => document.querySelector("#story .story-new")?.textContent.trim() ?? "";
  document.getElementById("generate").addEventListener("click", () => {
    window.clicked = performance.now();
    window.firstText = undefined;
    window.textBefore = read();
  }, true);
  new MutationObserver(() => {
    const text = read();
    if (window.clicked && window.firstText === undefined && text && text !== window.textBefore)
      window.firstText = performance.now();
  }).observe(document.getElementById("story"),
    {childList: true, subtree: true, characterData: true});
}"""


def measure(model: str, rounds: int) -> dict[str, Any]:
    """Clicks Generate repeatedly, for a compiled cache key.

    Args:
        model: a bundled model.
        rounds: of five clicks each; two earlier clicks compile and warm up.

    Returns:
        "clicks", each with "first_text_s" and the engine's "first_token_s"; "far_clicks", the same
        with a round trip of `FAR_S` between browser and server.

    Raises:
        ContenderFailed: no browser can be started.
    """
    clicks, far_clicks = [], []
    with served() as url, sync_playwright() as playwright:
        browser = started(playwright)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url)
        page.locator("#prediction .prediction-key").wait_for()
        page.locator("#model input").click()
        page.get_by_role("option", name=model).click()
        page.locator("#prompt textarea").fill(PROMPT)
        page.evaluate(_TAKE_TIMES)
        for number in range(2 + 5 * rounds):
            click = _click(page)
            if number >= 2:
                clicks.append(click)
        _move_away(page)
        for number in range(1 + 5 * rounds):
            click = _click(page)
            if number >= 1:
                far_clicks.append(click)
        browser.close()
    return {"clicks": clicks, "far_clicks": far_clicks}


def _move_away(page: Page) -> None:
    """From here on, every request takes `FAR_S` longer."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("Network.enable")
    network = {"latency": 1000 * FAR_S, "downloadThroughput": -1, "uploadThroughput": -1}
    devtools.send("Network.emulateNetworkConditions", {"offline": False, **network})


def started(playwright: Playwright) -> Browser:
    """A browser of this machine.

    Raises:
        ContenderFailed: none can be started.
    """
    try:
        return playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, BROWSERS)), None),
            args=CHROMIUM_ARGUMENTS,
        )
    except PlaywrightError as error:
        raise ContenderFailed(
            "no browser can be started; install Chromium (on Debian: apt-get install chromium)"
        ) from error


def _click(page: Page) -> dict[str, float]:
    page.locator("#generate").click()
    page.wait_for_function("window.firstText !== undefined")
    page.locator("#report .busy").wait_for(state="detached")
    page.locator("#generate:enabled").wait_for()
    page.wait_for_timeout(300)  # the visitor looks; the tables below are drawn
    report = page.locator("#report").inner_text()
    found = re.search(r"Prefill\s*([\d.,]+)\s*(ms|s|µs)\b", report)
    if found is None:
        raise RuntimeError(f"the page's report has no prefill: {report!r}")
    unit = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[found[2]]
    return {
        "first_text_s": page.evaluate("window.firstText - window.clicked") / 1000,
        "first_token_s": float(found[1].replace(",", "")) * unit,
    }
