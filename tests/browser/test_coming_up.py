"""A page whose scripts do not all arrive, or stumble: it is loaded anew, once."""

from collections.abc import Iterator
from pathlib import Path

import gradio
import pytest
from playwright.sync_api import Browser, Page, Route

from tests.browser.visit import PATIENCE_MS
from tests.playground.api_page import ApiPage

_SCRIPTS = Path(gradio.__file__).parent / "templates" / "frontend" / "assets"
[_TABS] = [path for path in _SCRIPTS.glob("*.js") if "overflow-menu" in path.read_text("utf-8")]
STUMBLES = "setTimeout(() => { throw new Error('stumbled'); })"
# A page waits some seconds before it is loaded anew: here until a test says that they are over.
_HOLD_TIMERS = """(() => {
  const set = window.setTimeout;
  window.later = [];
  window.setTimeout = (run, ...more) =>
    String(run).includes("location.reload") ? window.later.push(run) : set(run, ...more);
})()"""
PASS = "later.forEach((run) => run())"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.add_init_script(_HOLD_TIMERS)
    yield page
    context.close()


@pytest.fixture
def loaded(page: Page) -> list[str]:
    """The addresses that were loaded, so far."""
    addresses: list[str] = []
    page.on("framenavigated", lambda frame: addresses.append(frame.url))
    return addresses


def keep_back(page: Page, how: str, loaded: list[str], loads: int) -> None:
    """Has a script not arrive, or be broken, the first times that the page is loaded."""

    def answer(route: Route) -> None:
        if len(loaded) > loads:
            route.continue_()
        elif how == "lost":
            route.abort()
        else:
            route.fulfill(body="throw new Error('broken')", content_type="text/javascript")

    page.route(f"**/{_TABS.name}", answer)


def is_loaded_anew(page: Page) -> None:
    page.wait_for_function("later.length")
    page.evaluate(PASS)
    page.wait_for_function("performance.getEntriesByType('navigation')[0].type === 'reload'")


def test_scripts_that_fail_once_cost_a_moment(page: Page, loaded: list[str], site: ApiPage) -> None:
    keep_back(page, "broken", loaded, loads=1)
    page.goto(f"{site.url}/?tab=playground")
    is_loaded_anew(page)
    page.locator("#prediction .prediction-key").wait_for()
    page.locator("#prompt textarea").fill("Once upon a time")
    page.wait_for_function("stands")
    page.evaluate(f"window.isTheSame = true; {STUMBLES}")
    with page.expect_request("**/changes"):
        pass
    assert page.evaluate("later.length") == 0
    assert page.evaluate("window.isTheSame")
    assert len(loaded) == 2


def test_a_page_without_answers_is_reloaded(page: Page, loaded: list[str], site: ApiPage) -> None:
    # What the first page asks is never answered.
    page.route("**/run/predict*", lambda route: route.continue_() if len(loaded) > 1 else None)
    page.goto(f"{site.url}/?tab=playground")
    page.wait_for_function("typeof isBuilt === 'function' && isBuilt()")
    page.evaluate(STUMBLES)
    is_loaded_anew(page)
    page.locator("#prediction .prediction-key").wait_for()
    assert len(loaded) == 2


def test_scripts_that_always_fail_reload_once(page: Page, loaded: list[str], site: ApiPage) -> None:
    keep_back(page, "lost", loaded, loads=1000)
    page.goto(f"{site.url}/?tab=playground")
    is_loaded_anew(page)
    page.evaluate(f"window.isTheSame = true; {PASS}")
    with page.expect_request("**/changes"):
        pass  # it is there, and looks for news
    assert page.evaluate("window.isTheSame")
    assert len(loaded) == 2
