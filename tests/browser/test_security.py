"""What visitors send stays text, stays theirs, and needs the password where there is one."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import httpx
import pytest
from gradio_client import Client

from playground.context.runs import Shown
from playground.history import records, records_file
from tests.browser.visit import PATIENCE_MS, Visit
from tests.playground.samples import result
from tests.playground.served import Served, Site, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

Open = Callable[..., Visit]

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
SECRETS = {
    "HF_TOKEN": "hf_neverShownAnywhere1",
    "HUGGING_FACE_HUB_TOKEN": "hf_neverShownAnywhere2",
    "AWS_SECRET_ACCESS_KEY": "neverShownAnywhere3",
    "PLAYGROUND_PASSWORD": "neverShownAnywhere4",
}
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
    hidden: getComputedStyle(document.body).display === "none",
  };
}"""
_INNOCENT = {
    "hit": None,
    "handlers": [],
    "scripts": 0,
    "frames": 0,
    "images": 0,
    "links": 0,
    "hidden": False,
}


def is_innocent(page: Page) -> None:
    """Nothing of what was sent has become part of the page."""
    page.wait_for_timeout(100)  # An image that fails tells its handler so a moment later.
    assert page.evaluate(_STRANGE) == _INNOCENT


def shows(window: Visit, selector: str, text: str = ALL) -> None:
    """Waits until a part of the page says the text as it was sent."""
    window.page.wait_for_function(
        "([s, text]) => document.querySelector(s)?.textContent.includes(text)",
        arg=[selector, text],
    )


def watched(window: Visit) -> list[str]:
    """The dialogs that open from now on."""
    dialogs: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    window.page.on("dialog", note)
    window.page.evaluate(_STRANGE)
    return dialogs


def test_what_is_sent_stays_text_on_the_playground(visit: Open) -> None:
    window = visit()
    dialogs = watched(window)
    window.write(ALL)
    window.set_number("max_new_tokens", 4)
    window.generate()
    shows(window, "#story")
    shows(window, "#history")
    window.at("#result_view label", has_text="Tokens").click()
    window.at("#tokens button.token").first.click()
    window.at("details, .label-wrap", has_text="View code").first.click()
    is_innocent(window.page)

    run = records.record(Shown(ALL, result(model=ALL, text=ALL), ended_s=1.8e9), 1)
    run["machine"] = ALL[:300]
    file = records_file.FILE.written({"runs": [run]})
    window.at(
        "#import_json input, #import_json + input, input[accept='.json']"
    ).first.set_input_files(
        {
            "name": "<img src=x onerror=window.hit=11>.json",
            "mimeType": "application/json",
            "buffer": file.encode(),
        }
    )
    shows(window, "#history_notice", "1 run imported")
    is_innocent(window.page)
    with window.page.expect_download() as saved:
        window.at("#export_csv").click()
    rows = list(csv.reader(io.StringIO(Path(saved.value.path()).read_text("utf-8-sig"))))
    assert len(rows) == 3
    assert not [cell for row in rows for cell in row if cell[:1] in "=+@\t\r" and cell]
    assert dialogs == []


def test_a_link_and_a_batch_stay_text(visit: Open, site: Site, tmp_path: Path) -> None:
    window = visit()
    wrong = {"model": PAYLOADS[0], PAYLOADS[1]: "1", "seed": PAYLOADS[3]}
    query = urlencode({"prompt": ALL, **wrong})
    window.go(f"{window.page.url.partition('?')[0]}?{query}")
    window.settle()
    dialogs = watched(window)
    shows(window, "#link_notice", "<img src=x onerror=window.hit=1>")
    window.page.wait_for_function(
        "text => document.querySelector('#prompt textarea')?.value === text", arg=ALL
    )
    is_innocent(window.page)

    window.open_tab("Batch")
    window.at("#batch_prompts textarea").fill("\n".join(PAYLOADS))
    window.set_number("batch_max_new_tokens", 2)
    window.at("#batch_run").click()
    window.at("#batch_files a", has_text="CSV").wait_for()
    for payload in PAYLOADS:
        shows(window, "#batch_report", payload)
    is_innocent(window.page)
    with window.page.expect_download() as saved:
        window.at("#batch_files a", has_text="CSV").click()
    text = Path(saved.value.path()).read_text("utf-8-sig")
    assert "'=HYPERLINK(1)" in text

    window.open_tab("Compare")
    window.at("#compare_kind label", has_text="ption sets").click()
    window.at("#compare_options textarea").fill(f"{PAYLOADS[0]}\n{PAYLOADS[1]}")
    window.at("#compare").click()
    window.at("#compare_notice .problem").wait_for()
    is_innocent(window.page)
    assert dialogs == []


def test_one_visitor_s_runs_are_not_another_s(visit: Open, site: Site) -> None:
    mine, another = visit(), visit()
    mine.write("A secret of mine")
    mine.set_number("max_new_tokens", 3)
    mine.generate()
    shows(mine, "#history", "A secret of mine")
    another.go()
    another.settle()
    assert "A secret of mine" not in another.page.content()
    assert another.at("#history tbody tr").count() == 0
    # Nothing that a program can ask tells of it either.
    for path in ("config", "gradio_api/info", "health"):
        assert "A secret of mine" not in httpx.get(f"{site.url}/{path}").text
    entries = Client(site.url, verbose=False).predict(api_name="/entries")
    assert "A secret of mine" not in json.dumps(entries)


@pytest.fixture(scope="module")
def guarded(small_gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page with a password, secrets in its environment, and a model of an evil name."""
    folder = tmp_path_factory.mktemp("models") / "<img src=x onerror=window.hit=1>${window.hit=2}"
    shutil.copytree(small_gpt2, folder)
    served = serve("--models", str(folder), "--no-store", "--max-new-tokens", "100", **SECRETS)
    yield served
    if served.process.poll() is None:
        served.end()


def test_a_page_with_a_password_opens_to_who_knows_it(guarded: Served, browser: Browser) -> None:
    password = SECRETS["PLAYGROUND_PASSWORD"]
    assert 'type="password"' in httpx.get(guarded.url).text
    assert httpx.get(f"{guarded.url}/config").status_code == 401
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(guarded.url)
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Open").click()
    page.get_by_role("alert").get_by_text("not the password").wait_for()
    page.get_by_label("Password").fill(password)
    page.keyboard.press("Enter")
    page.locator("#prediction .prediction-key").wait_for()
    page.evaluate(_STRANGE)
    page.locator("#prompt textarea").fill("Once")
    page.locator('#max_new_tokens input[type="number"]').fill("5")
    page.locator("#generate").click()
    page.locator("#report .busy").wait_for()
    page.locator("#history tbody tr").wait_for()
    is_innocent(page)
    seen = page.content()
    assert not [secret for secret in SECRETS.values() if secret in seen]
    context.close()


@pytest.mark.parametrize("how", ["header", "login"])
def test_a_program_with_the_password_is_served(guarded: Served, how: str) -> None:
    password = SECRETS["PLAYGROUND_PASSWORD"]
    if how == "header":
        client = Client(guarded.url, headers={"Authorization": f"Bearer {password}"}, verbose=False)
    else:
        client = Client(guarded.url, auth=("anybody", password), verbose=False)
    answer = client.predict(prompt="Once", max_new_tokens=3, api_name="/generate")
    assert answer["new_tokens"] >= 1
    with pytest.raises(Exception, match="at most 100 are written for one request here"):
        client.predict(prompt="Once", max_new_tokens=101, api_name="/generate")


def test_no_secret_is_told_or_logged(guarded: Served) -> None:
    bearer = {"Authorization": f"Bearer {SECRETS['PLAYGROUND_PASSWORD']}"}
    reported = "".join(
        httpx.get(f"{guarded.url}/{path}", headers=bearer).text
        for path in ("", "config", "gradio_api/info", "gradio_api/openapi.json", "health", "none")
    )
    assert guarded.end() == 0
    reported += "\n".join(guarded.output)
    assert not [name for name, secret in SECRETS.items() if secret in reported]
