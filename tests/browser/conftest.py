"""The browser, and the page that it visits: with the fake engine, served in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from playground.context import runs
from playground.tabs.speech import runs as speech_runs
from tests.browser.visit import CHROMIUM_ARGUMENTS, Visit
from tests.playground.api_page import ApiPage, api_page
from tests.playground.fake_backend import MODELS, TALKER, FakeBackend
from xla_backend import ModelInfo
from xla_backend.checkpoints.added_models import AddedModels

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CLIPBOARD = ["clipboard-read", "clipboard-write"]
MULTILINGUAL = ModelInfo("multilingual", "speech", "folder", "", is_multilingual=True)


@pytest.fixture(scope="session")
def chromium(browser_executable: str) -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """One Chromium for the session, and Playwright's event loop."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_executable, args=CHROMIUM_ARGUMENTS
        )
        yield browser, asyncio.get_running_loop()
        browser.close()


@pytest.fixture(scope="module")
def browser(chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The browser; every visit has a profile of its own.

    While Playwright is open its event loop counts as running in this thread, and the tests of
    other modules must be able to start their own. Meanwhile each piece of a text is shown, however
    fast they come.
    """
    browser, loop = chromium
    with pytest.MonkeyPatch.context() as patch:
        for module in (runs, speech_runs):
            patch.setattr(module, "BETWEEN_UPDATES_S", 0.0)
        asyncio._set_running_loop(loop)  # noqa: SLF001 (in its `__all__`, for those who run one)
        yield browser
        asyncio._set_running_loop(None)  # noqa: SLF001


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiPage]:
    """One page for the session."""
    engine = FakeBackend(models=(*MODELS, TALKER, MULTILINGUAL))
    added = AddedModels(tmp_path_factory.mktemp("added") / "added_models.json")
    with api_page(engine, admin=True, added=added) as page:
        yield page


@pytest.fixture
def engine(site: ApiPage) -> Iterator[FakeBackend]:
    """The page's engine, as at its start."""
    yield site.backend
    site.settle()


@pytest.fixture
def visit(site: ApiPage, engine: FakeBackend, browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens the page as a new visitor; afterwards the console must be without errors."""
    visits: list[Visit] = []

    def open_page(
        width: int = 1280,
        height: int = 900,
        kind: type[Visit] = Visit,
        address: str = f"{site.url}/?tab=playground",
        **options: object,
    ) -> Visit:
        visits.append(kind(browser, address, width, height, **options))
        return visits[-1]

    yield open_page
    complaints = [complaint for each in visits for complaint in each.complaints]
    for each in visits:
        each.close()
    assert complaints == []


@pytest.fixture(scope="module")
def staying(site: ApiPage, browser: Browser) -> Iterator[Visit]:
    """A visitor who stays for all tests of a module: to come costs as much as a dozen clicks."""
    visitor = Visit(browser, f"{site.url}/?tab=playground", 1280, 900, permissions=CLIPBOARD)
    yield visitor
    visitor.close()


@pytest.fixture
def window(staying: Visit, engine: FakeBackend) -> Iterator[Visit]:
    """The same, with nothing under way; what an earlier test has written may still stand there."""
    staying.resize(1280, 900)
    staying.open_mode("Playground")
    staying.at("#generate:enabled").wait_for()
    yield staying
    complaints, staying.complaints[:] = [*staying.complaints], []
    assert complaints == []
