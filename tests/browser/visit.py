"""One visitor's browser window, and what a visitor does in it.

Knows the page's element ids. Must not know what any test expects.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from playwright.sync_api import expect

from playground.places import PLACES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

CHROMIUM_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The popup of the address bar, a page of Chromium's own that each window loads unseen, took a
    # fifth of a visit's processor time. The others are Playwright's own: this takes their place.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,"
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "LensOverlay,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,PaintHolding,"
    "PreconnectToSearch",
]
# For a compile on a busy machine with two cores; only what hangs takes so long.
PATIENCE_MS = 240_000
expect.set_options(timeout=PATIENCE_MS)


class Visit:
    """A page that was opened; `complaints` are the errors that its console showed."""

    def __init__(self, browser: Browser, url: str, width: int, height: int, **options: Any) -> None:
        self._browser, self._size = browser, (width, height)
        beside: Visit | None = options.pop("beside", None)
        # To draw what moves takes a third of a run's processor time; `test_looks` has it move.
        options.setdefault("reduced_motion", "reduce")
        size = {"viewport": {"width": width, "height": height}}
        context = beside.page.context if beside else None
        self._context = context or browser.new_context(**size, **options)
        self.complaints: list[str] = beside.complaints if beside else []
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("pageerror", lambda error: self._complain(error.stack or str(error)))
        self.page.on(
            "console",
            lambda message: self._complain(message.text) if message.type == "error" else None,
        )
        # How many errors there were when each page was asked for: the page may load itself anew.
        begun: list[int] = []
        self.page.on(
            "request",
            lambda request: (
                begun.append(len(self.complaints)) if request.is_navigation_request() else None
            ),
        )
        self.page.goto(url)
        self.settle()
        self._forgive_what_was_before(begun[-1])

    def _complain(self, text: str) -> None:
        # A page that is left while its stream is open closes it, and Gradio logs that as an error.
        if not (text.startswith("AbortError: signal is aborted") and ".close (" in text):
            self.complaints.append(text)

    def _forgive_what_was_before(self, complaints: int) -> None:
        """A page over whose scripts Gradio stumbled has loaded itself anew, and only came later.

        It happens to one load of thousands, why is not known. It is told in pytest's summary; what
        the page says after that counts as ever.
        """
        if complaints:
            forgiven = self.complaints[:complaints]
            warnings.warn(f"the page has loaded itself anew: {forgiven}", stacklevel=3)
            del self.complaints[:complaints]

    def beside(self) -> Self:
        """Another window of the same browser, at the same address; its complaints are added."""
        return type(self)(self._browser, self.page.url, *self._size, beside=self)

    def settle(self) -> None:
        """Waits until the page is built and has its first answers."""
        self.at("#status .status").wait_for(state="attached")
        mode = self.page.evaluate("modeOfAddress()")
        self.at(f"#{mode}_mode .card").first.wait_for()
        if mode == "playground":
            expect(self.at("#prediction .prediction-key")).to_be_visible()
        self.let_be_filled_in()

    def go(self, url: str = "") -> None:
        """Opens an address in the same window, or the same page anew."""
        before = len(self.complaints)
        self.page.goto(url) if url else self.page.reload()
        # What the page that is left was still waiting for is an error to Gradio.
        self.complaints[before:] = [
            text for text in self.complaints[before:] if "Connection errored out" not in text
        ]

    def close(self) -> None:
        """Leaves."""
        self._context.close()

    def at(self, selector: str, has_text: str | None = None) -> Locator:
        """An element, where wanted one with a text in it."""
        return self.page.locator(selector, has_text=has_text)

    def text(self, selector: str) -> str:
        """What an element says."""
        return self.at(selector).inner_text()

    def says(self, selector: str, *texts: str | re.Pattern[str]) -> None:
        """Waits until an element says all of these."""
        for text in texts:
            expect(self.at(selector).first).to_contain_text(text)

    def has_value(self, selector: str, value: str | re.Pattern[str]) -> None:
        """Waits until this stands in a field."""
        expect(self.at(selector)).to_have_value(value)

    def let_be_filled_in(self) -> None:
        """Waits until what is shown for the first time can be typed into.

        A frame after it has shown a tab or what was folded up, Gradio fills its fields in, over
        what a test has typed meanwhile; on a busy machine a frame is long.
        """
        self.page.evaluate(
            "() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))"
        )

    def open_settings(self) -> None:
        """Opens the settings, which are a sheet on a phone."""
        if not self.at("#settings").is_visible():
            self.at("#settings_switch").click()
            self.at("#settings").wait_for()
            self.let_be_filled_in()

    def open_more(self) -> None:
        """Opens the options that are folded up."""
        self._unfold("#settings .more-options", "input")

    def show_code(self, form: str) -> None:
        self._unfold("#view_code", "pre")
        self.at("#code_form label", form).click()

    def _unfold(self, folded: str, part: str) -> None:
        # What is in it says nothing yet: it is drawn some frames after the fold was opened.
        button = self.at(f"{folded} button.label-wrap").first
        if "open" not in (button.get_attribute("class") or "").split():
            button.click()
        self.at(f"{folded} {part}").first.wait_for()
        self.let_be_filled_in()

    def open_mode(self, name: str) -> None:
        """Opens a mode by its name, and waits until its parts are there."""
        place, [address] = next(
            (place, found)
            for place in PLACES.values()
            if (found := [each for each, mode in place.modes.items() if mode.name == name])
        )
        self.at("#place_links").get_by_role("link", name=place.name, exact=True).click()
        if len(place.modes) > 1:
            self.at("#places").get_by_role("link", name=name, exact=True).click()
        self.at(f"#{address}_mode .card").first.wait_for()
        self.let_be_filled_in()

    def write(self, prompt: str) -> None:
        """Replaces the prompt."""
        self.at("#prompt textarea").fill(prompt)

    def choose_model(self, label: str) -> None:
        """Picks a model from the list; its words and examples have come then."""
        about = self.at("#model")
        field, before = self.at("#model input"), about.inner_text()
        was = field.input_value()
        field.click()
        self.page.get_by_role("option", name=label).click()
        if field.input_value() != was:
            expect(about).not_to_have_text(before)
            self.let_be_filled_in()

    def set_number(self, option: str, value: float) -> None:
        """Types a value into an option's number field."""
        field = self.at(f'#{option} input[type="number"]')
        field.fill(str(value))
        field.press("Tab")

    def generate(self) -> None:
        """Presses the button and waits until the run has joined the history."""
        before = self.page.evaluate("JSON.stringify(ownRuns)")
        self.at("#generate").click()
        self.page.wait_for_function("(before) => JSON.stringify(ownRuns) !== before", arg=before)
        self.wait_for_result()

    def wait_for_result(self) -> None:
        """Waits until a run that has begun is over."""
        self.page.locator("#report .busy").wait_for(state="detached")
        self.page.locator("#generate:enabled").wait_for()

    def resize(self, width: int, height: int) -> None:
        """Makes the window another size."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.let_be_filled_in()

    def saved(self, selector: str, has_text: str | None = None) -> str:
        """The file that a button or a link saves."""
        with self.page.expect_download() as download:
            self.at(selector, has_text).click()
        return Path(download.value.path()).read_text(encoding="utf-8-sig")

    def import_runs(self, name: str, content: str) -> None:
        """Chooses a file of runs for the history."""
        file = {"name": name, "mimeType": "application/json", "buffer": content.encode()}
        with self.page.expect_file_chooser() as chooser:
            self.at("#import_json").click()
        chooser.value.set_files(file)

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
