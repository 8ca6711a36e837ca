"""The weight of the page: bytes, requests, seconds until it is usable, and the time that a click
takes while something compiles.

Knows the page as a visitor's browser does. Must not import it. Chromium runs on the same machine
as the server and the engine, and caches nothing between visits. Run as

    python -m benchmarks.page_weight [--rounds 5]

The page is usable when Generate is enabled and shows a prediction. A click ends when the server's
response is visible: here, an example's text in the prompt.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks import terminal
from benchmarks.contenders import ContenderFailed
from benchmarks.page import PATIENCE_MS, started
from benchmarks.served import served

CLICKS = 20

# Timed in the browser, so the driver's time is not included. Seconds since the visit began.
_USABLE = """() => new Promise((resolve) => {
  const look = () => {
    const button = document.getElementById("generate");
    const isThere = document.querySelector("#prediction .prediction-key");
    if (button && !button.disabled && isThere) resolve(performance.now() / 1000);
    else requestAnimationFrame(look);
  };
  look();
})"""
# Seconds until the example's text is in the prompt; null unless something compiles from the click
# to the answer.
_CLICK = """() => new Promise((resolve) => {
  const compiles = () => !!document.querySelector(".status-tracing, .status-compiling");
  const prompt = document.querySelector("#prompt textarea");
  const [before, start, began] = [prompt.value, performance.now(), compiles()];
  const others = [...document.querySelectorAll("#examples button")].slice(0, 2);
  window.turn = 1 - (window.turn ?? 0);
  others[window.turn].click();
  const look = () => {
    if (prompt.value !== before) {
      resolve(began && compiles() ? (performance.now() - start) / 1000 : null);
    } else if (performance.now() - start > 5000) resolve(null);
    else requestAnimationFrame(look);
  };
  look();
})"""


@dataclass(frozen=True)
class Visit:
    """Measurements of one visit.

    Attributes:
        requests: number of HTTP requests.
        transferred: received bytes, headers included.
        usable_s: seconds from the start of the visit until the page is usable.
    """

    requests: int
    transferred: int
    usable_s: float


def main() -> None:
    """Measures and prints."""
    rounds = terminal.options(__doc__.partition(":")[0], rounds=5).rounds
    with served("--models", "gpt2-stories") as url, sync_playwright() as playwright:
        try:
            browser = started(playwright)
        except ContenderFailed as error:
            sys.exit(str(error))
        visit(browser, url)  # the engine is still starting
        visits = [visit(browser, url) for _ in range(rounds)]
        answers = clicks_while_compiling(browser, url)
        browser.close()
    usable = [each.usable_s for each in visits]
    terminal.print_command("page_weight")
    print(f"{visits[-1].transferred / 1e6:.2f} MB in {visits[-1].requests} requests")
    print(f"usable after {statistics.median(usable):.2f} s (worst {max(usable):.2f} s)")
    print(
        f"{len(answers)} clicks while something compiled: answered after "
        f"{1000 * statistics.median(answers):.0f} ms (worst {1000 * max(answers):.0f} ms)"
    )


def visit(browser: Browser, url: str) -> Visit:
    """Opens the page as a new visitor."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    counted = context.new_cdp_session(page)
    counted.send("Network.enable")
    sizes: list[float] = []
    counted.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(url)
    usable_s = page.evaluate(_USABLE)
    page.wait_for_timeout(1000)  # includes what loads later
    context.close()
    return Visit(len(sizes), round(sum(sizes)), usable_s)


def clicks_while_compiling(browser: Browser, url: str) -> list[float]:
    """Seconds that each click takes; compiles new cache keys until there are enough clicks."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    page.evaluate(_USABLE)
    answers: list[float] = []
    for beams in range(2, 9):
        field = page.locator('#num_beams input[type="number"]')
        field.fill(str(beams))
        field.press("Tab")
        page.locator("#prediction .outcome-miss").wait_for()
        page.locator("#generate").click()
        page.locator(".status-tracing, .status-compiling").wait_for()
        answers += _clicks(page, CLICKS - len(answers))
        page.locator("#report .busy").wait_for(state="detached")
        page.locator("#generate:enabled").wait_for()
        if len(answers) == CLICKS:
            break
    page.close()
    return answers


def _clicks(page: Page, most: int) -> list[float]:
    answers: list[float] = []
    while len(answers) < most and page.locator(".status-tracing, .status-compiling").count():
        answer = page.evaluate(_CLICK)
        if answer is not None:
            answers.append(answer)
    return answers


if __name__ == "__main__":
    main()
