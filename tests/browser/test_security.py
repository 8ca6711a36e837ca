"""What visitors send stays text, stays theirs, and needs the password where there is one."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import httpx
from gradio_client import Client

from playground.context.runs import Shown
from playground.history import records, records_file
from tests.browser.visit import PATIENCE_MS, Visit
from tests.playground.api_page import ApiPage, api_page
from tests.playground.fake_backend import FakeBackend
from tests.playground.samples import result
from xla_backend import ModelInfo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAYLOADS = (
    "<img src=x onerror=window.hit=1>",
    "<script>window.hit=2</script>",
    "</textarea><svg/onload=window.hit=3>",
    '" autofocus onfocus="window.hit=4',
    "${window.hit=5}",
    "{{window.hit=6}}",
    "[a](javascript:window.hit=7)",
    "![b](x' onerror='window.hit=8)",
    "<iframe srcdoc='<script>parent.hit=9</script>'></iframe>",
    "<a href=javascript:window.hit=10>c</a>",
    "<style>body{display:none}</style>",
    "&lt;b&gt; $\\\\html{d}$ </div></section>",
    "=HYPERLINK(1)",
)
ALL = " ".join(PAYLOADS)
# What a page that took text for markup would have: handlers, and elements that nobody built.
_STRANGE = """() => {
  const all = [...document.querySelectorAll("*")];
  const handlers = all.flatMap((e) => [...e.attributes])
    .filter((a) => /^on/i.test(a.name) || /^\\s*javascript:/i.test(a.value));
  return {
    hit: window.hit ?? null,
    handlers: handlers.map((a) => `${a.ownerElement.tagName} ${a.name}=${a.value}`),
    scripts: document.scripts.length - (window.scriptsAtFirst ??= document.scripts.length),
    frames: document.querySelectorAll("iframe, object, embed, [srcdoc]").length,
    images: [...document.images].filter((i) => i.getAttribute("src") === "x").length,
    links: all.filter((e) => e.textContent === "c" && e.tagName === "A").length,
  };
}"""
_INNOCENT = {"hit": None, "handlers": [], "scripts": 0, "frames": 0, "images": 0, "links": 0}


def is_innocent(page: Page) -> None:
    """Nothing of what was sent has become part of the page, which is still to be seen."""
    assert page.is_visible("body")
    assert page.evaluate(_STRANGE) == _INNOCENT


def test_prompts_and_answers_stay_text(window: Visit, site: ApiPage, engine: FakeBackend) -> None:
    window.page.evaluate(_STRANGE)
    engine.words = PAYLOADS
    window.write(ALL)
    window.at("#variables textarea").fill("{{window.hit=6}}")
    window.set_number("max_new_tokens", 4)
    window.generate()
    window.says("#story", ALL)
    window.at("#result_view label", has_text="Tokens").click()
    window.at("#tokens button.token").nth(2).click()
    window.says("#tokens .token-popover", PAYLOADS[2])
    window.show_code("This library")
    window.says("#request_code", PAYLOADS[1])
    is_innocent(window.page)

    window.open_mode("Your runs")
    window.says("#history", PAYLOADS[0])
    run = records.record(Shown(ALL, result(model=ALL, text=ALL), ended_s=1.8e9), 1)
    run["machine"] = ALL[:300]
    file = records_file.FILE.written({"runs": [run]})
    window.import_runs("<img src=x onerror=window.hit=11>.json", file)
    window.says("#history_notice", "1 run imported")
    is_innocent(window.page)
    rows = list(csv.reader(io.StringIO(window.saved("#export_csv"))))
    assert len(rows) == 3
    assert not [cell for row in rows for cell in row if cell[:1] in "=+@\t\r" and cell]
    told = [
        httpx.get(f"{site.url}/{path}").text for path in ("config", "gradio_api/info", "health")
    ]
    told.append(json.dumps(Client(site.url, verbose=False).predict(api_name="/models")))
    assert not [each for each in told if "window.hit" in each]


def test_links_batches_sets_stay_text(window: Visit, site: ApiPage, engine: FakeBackend) -> None:
    wrong = {"model": PAYLOADS[0], PAYLOADS[1]: "1", "seed": PAYLOADS[3]}
    # So few that the prompt fits: what is predicted for it stays.
    window.go(f"{site.url}?{urlencode({'prompt': ALL, 'max_new_tokens': 4, **wrong})}")
    window.settle()
    window.page.evaluate(_STRANGE)
    window.says("#link_notice", PAYLOADS[0])
    window.has_value("#prompt textarea", ALL)
    is_innocent(window.page)

    engine.words = PAYLOADS
    window.open_mode("Batch")
    window.at("#batch_prompts textarea").fill("\n".join(PAYLOADS))
    window.set_number("max_new_tokens", 2)
    window.at("#batch_run").click()
    window.at("#batch_files a", has_text="CSV").wait_for()
    window.says("#batch_report", *PAYLOADS)
    is_innocent(window.page)
    assert "'=HYPERLINK(1)" in window.saved("#batch_files a", "CSV")


def test_a_page_with_a_password_opens_to_who_knows_it(browser: Browser) -> None:
    evil = ModelInfo(f"{PAYLOADS[0]}{PAYLOADS[4]}", "decoder-only", "bundled", PAYLOADS[1])
    with api_page(FakeBackend(models=[evil]), password="sesame") as guarded:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(guarded.url)
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Open").click()
        page.get_by_role("alert").get_by_text("not the password").wait_for()
        page.get_by_label("Password").fill("sesame")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Try").click()
        page.locator("#prediction .prediction-key").wait_for()
        page.evaluate(_STRANGE)
        page.locator("#generate").click()
        page.locator("#report .figures").wait_for()
        is_innocent(page)
        assert "sesame" not in page.content()
        context.close()
