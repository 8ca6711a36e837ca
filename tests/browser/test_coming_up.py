"""A page whose scripts do not all arrive, or stumble: it is loaded anew, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gradio
import pytest
from playwright.sync_api import Browser, Page, Route

from tests.browser.visit import PATIENCE_MS
from tests.playground.served import Site

_SCRIPTS = Path(gradio.__file__).parent / "templates" / "frontend" / "assets"
[_TABS] = [path for path in _SCRIPTS.glob("*.js") if "overflow-menu" in path.read_text("utf-8")]
TABS, HTML = f"**/{_TABS.name}", "**/HTML-*.js"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield page
    context.close()


def keep_back(page: Page, scripts: str, how: str, loads: int) -> list[str]:
    """Has scripts not arrive, or be broken when they do, the first times that the page is loaded.

    Returns:
        the addresses that were loaded, so far.
    """
    loaded: list[str] = []
    page.on("framenavigated", lambda frame: loaded.append(frame.url))

    def answer(route: Route) -> None:
        if len(loaded) > loads:
            route.continue_()
        elif how == "lost":
            route.abort()
        else:
            route.fulfill(body="throw new Error('broken')", content_type="text/javascript")

    page.route(scripts, answer)
    return loaded


@pytest.mark.parametrize(("scripts", "how"), [(TABS, "broken"), (HTML, "lost")])
def test_scripts_that_fail_once_cost_a_moment(
    page: Page, site: Site, scripts: str, how: str
) -> None:
    loaded = keep_back(page, scripts, how, loads=1)
    page.goto(site.url)
    page.wait_for_function("performance.getEntriesByType('navigation')[0].type === 'reload'")
    page.locator("#prediction .prediction-key").wait_for()
    page.locator("#prompt textarea").fill("Once upon a time")
    assert len(loaded) == 2


def test_a_page_that_stumbles_and_hears_no_answer_is_loaded_anew(page: Page, site: Site) -> None:
    loaded: list[str] = []
    page.on("framenavigated", lambda frame: loaded.append(frame.url))
    # What the first page asks is never answered.
    page.route("**/run/predict*", lambda route: route.continue_() if len(loaded) > 1 else None)
    page.goto(site.url)
    page.locator("#prediction").wait_for(state="attached")
    page.wait_for_timeout(2000)  # so that it knows itself built
    page.evaluate("setTimeout(() => { throw new Error('stumbled'); })")
    page.wait_for_function("performance.getEntriesByType('navigation')[0].type === 'reload'")
    page.locator("#prediction .prediction-key").wait_for()
    assert len(loaded) == 2


def test_scripts_that_always_fail_do_not_turn_in_circles(page: Page, site: Site) -> None:
    loaded = keep_back(page, TABS, "lost", loads=1000)
    page.goto(site.url)
    page.wait_for_function("performance.getEntriesByType('navigation')[0].type === 'reload'")
    page.wait_for_timeout(6000)  # twice as long as it waits before it loads anew
    assert len(loaded) == 2


def test_an_error_on_a_page_that_stands_leaves_it_alone(page: Page, site: Site) -> None:
    page.goto(site.url)
    page.locator("#prediction .prediction-key").wait_for()
    page.evaluate("window.isTheSame = true; setTimeout(() => { throw new Error('later'); })")
    page.wait_for_timeout(4000)
    assert page.evaluate("window.isTheSame")
