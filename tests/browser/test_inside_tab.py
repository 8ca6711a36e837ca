"""The Inside tab: a function that was just compiled, looked into, measured and taken home.

An app of its own, with a store: the other one keeps none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.browser.visit import Visit
from tests.playground.served import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Open = Callable[..., Visit]


@pytest.fixture(scope="module")
def url(small_gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app with a small model, one of whose functions is in the store."""
    served = serve("--models", str(small_gpt2), "--store", str(tmp_path_factory.mktemp("store")))
    asks = Client(served.url, verbose=False)
    asks.predict(prompt="Once upon a time", max_new_tokens=8, api_name="/generate")
    yield served.url
    served.end()


@pytest.fixture
def looked(url: str, browser: Browser) -> Iterator[Open]:
    """Opens the tab as a new visitor, who looks into the function."""
    visits: list[Visit] = []

    def open_page(width: int = 1280) -> Visit:
        window = Visit(browser, url, width, 900)
        visits.append(window)
        window.open_tab("Inside")
        window.page.wait_for_function(
            "() => document.querySelector('#inside_function input')?.value.includes('padded')"
        )
        window.at("#inside_look").click()
        window.at("#inside_decode").wait_for()
        return window

    yield open_page
    complaints = [complaint for each in visits for complaint in each.complaints]
    for each in visits:
        each.close()
    assert complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_boxes_open_to_kernels_and_their_lines(looked: Open, width: int) -> None:
    window = looked(width=width)
    assert window.overflow() == 0
    layer = window.at("#inside_graph .inside-box").nth(1)
    assert layer.locator("summary").first.inner_text().startswith("Layer 0")
    layer.locator("summary").first.click()
    part = layer.locator("details").nth(1)
    part.locator("summary").click()
    line = part.locator("small").filter(has_text=re.compile(r"model/\S+\.py:\d+ \w+")).first
    assert line.is_visible()
    assert window.overflow() == 0


def test_a_token_is_measured_and_the_files_come(looked: Open, url: str) -> None:
    window = looked()
    window.at("#inside_measure").click()
    window.at("#inside_measured").wait_for()
    chart = window.at("#inside_roofline .plot")
    assert re.search(r"[\d.]+ FLOPs a byte", chart.get_attribute("aria-label") or "")
    assert window.at("#inside_roofline .inside-dot.whole").count() == 1
    assert window.at("#inside_ways tbody tr").count() == 3
    window.at("#inside_texts").click()
    link = window.at("#inside_files a").filter(has_text="decode.hlo.txt")
    link.wait_for()
    address = f"{url.rstrip('/')}/{link.get_attribute('href')}"
    assert httpx.get(address).text.startswith("HloModule")
    other = httpx.get(address.replace("file=decode.hlo.txt", "file=../machine.json"))
    assert other.status_code == 404


def test_the_endpoint_says_the_same(url: str, small_gpt2: Path) -> None:
    asks = Client(url, verbose=False)
    entry, *_ = [one for one in asks.predict(api_name="/entries") if one["key"]["num_beams"] == 1]
    seen = asks.predict(**entry["key"], api_name="/inspect")
    assert set(seen) == {"prefill", "decode"}
    for function in seen.values():
        assert function["kernels"] == len(function["kernel_list"])
        assert 0 < function["weight_bytes"] < function["bytes"]
    with pytest.raises(AppError, match="generate a text with it first"):
        asks.predict(model=str(small_gpt2), num_beams=7, api_name="/inspect")
