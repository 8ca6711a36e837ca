"""A recorded page from disk: it replays, and fits phones, light and dark, without an error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from playground.context.runs import Shown
from playground.record.document import RecordedRun, document
from tests.browser.conftest import CLIPBOARD
from tests.playground.samples import miss, result
from xla_backend import Token, TopLogprob
from xla_backend.interface.timing import Span

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TOP = (TopLogprob(0, " there", -0.5), TopLogprob(7, " once", -2.0))
TOKENS = tuple(Token(i, text, -0.5, TOP) for i, text in enumerate((" there", " was", " a fox")))
# The last phase takes an hour: a test looks at what stands there before it ends.
SPANS = (Span("prefill", 0.0, 0.001, 2), Span("decode", 0.001, 3600.0, 1))
QUICK = (Span("prefill", 0.0, 0.001, 2), Span("decode", 0.001, 0.001, 1))


@pytest.fixture
def file(tmp_path: Path) -> str:
    runs = [
        miss(tokens=TOKENS, text=" there was a fox", spans=SPANS),
        result(tokens=TOKENS, text=" there was a fox", spans=QUICK),
    ]
    path = tmp_path / "recorded.html"
    shown = [RecordedRun(Shown("Once upon a time", run)) for run in runs]
    path.write_text(document(shown), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_replays_and_ends_as_it_began(
    browser: Browser, file: str, width: int, scheme: str
) -> None:
    page = browser.new_page(
        viewport={"width": width, "height": 800}, color_scheme=scheme, permissions=CLIPBOARD
    )
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    page.on(
        "request", lambda sent: sent.url.startswith(("file:", "data:")) or complaints.append("")
    )
    page.goto(file)
    first, second = page.locator(".recorded-run").all()
    finished, replayed = first.locator(".finished"), first.locator(".replayed")
    expect(finished).to_be_visible()
    expect(replayed).to_be_hidden()

    first.get_by_role("button", name="Replay").click()
    expect(replayed.locator(".story-new")).to_have_text(" there was")
    expect(replayed.locator(".replay-phase")).to_have_text("Decode")
    expect(finished).to_be_hidden()
    first.get_by_role("button", name="Skip to the end").click()
    expect(finished).to_be_visible()

    second.get_by_role("button", name="Replay").click()  # ends by itself
    expect(second.get_by_role("button", name="Replay")).to_be_visible()
    expect(second.locator(".finished .story")).to_contain_text("there was a fox")

    first.locator("summary", has_text="Tokens").click()
    first.locator("button.token").first.click()
    expect(first.locator(".token-popover li").first).to_contain_text("there")
    first.get_by_role("button", name="Copy in words").click()
    expect(first.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("First token after 3.10 s, then 20 tokens/s; 3.00 s of this was")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert not complaints
    page.close()
