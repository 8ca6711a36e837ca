"""The running app and the browser that visits it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.visit import CHROMIUM_ARGUMENTS, Visit
from tests.playground.served import Site, the_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def site(
    request: pytest.FixtureRequest, small_gpt2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Site:
    """The app with two random models, one fast and one slow; started once per session."""
    return the_site(request.config, small_gpt2, tmp_path_factory)


@pytest.fixture(scope="module")
def browser(browser_executable: str) -> Iterator[Browser]:
    """One Chromium for a module's tests; every visit has a profile of its own.

    Not for the session: while Playwright is open an event loop counts as running in this thread,
    and the tests after these must be able to start their own.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_executable, args=CHROMIUM_ARGUMENTS
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(site: Site, browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens the page as a new visitor; afterwards the console must be without errors."""
    visits: list[Visit] = []

    def open_page(width: int = 1280, height: int = 900, **options: object) -> Visit:
        visits.append(Visit(browser, site.url, width, height, **options))
        return visits[-1]

    yield open_page
    complaints = [complaint for each in visits for complaint in each.complaints]
    for each in visits:
        each.close()
    assert complaints == []
