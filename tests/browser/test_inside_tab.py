"""The Inside tab: a function that was just compiled, looked into, measured and taken home."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest

from tests.browser.visit import Visit
from tests.playground.served import Site

Open = Callable[..., Visit]


def looked(visit: Open, site: Site, **options: object) -> Visit:
    """The tab with a function of the fast model looked into."""
    window = visit(**options)
    window.choose_model(site.fast)
    window.write("Once upon a time")
    window.generate()
    window.open_tab("Inside")
    window.page.wait_for_function(
        "() => document.querySelector('#inside_function input')?.value.includes('padded')"
    )
    window.at("#inside_look").click()
    window.at("#inside_decode").wait_for()
    return window


@pytest.mark.parametrize("width", [1280, 390])
def test_boxes_open_to_kernels_and_their_lines(visit: Open, site: Site, width: int) -> None:
    window = looked(visit, site, width=width)
    assert window.overflow() == 0
    layer = window.at("#inside_graph .inside-box").nth(1)
    assert layer.locator("summary").first.inner_text().startswith("Layer 0")
    layer.locator("summary").first.click()
    part = layer.locator("details").nth(1)
    part.locator("summary").click()
    line = part.locator("small").filter(has_text=re.compile(r"model/\S+\.py:\d+ \w+")).first
    assert line.is_visible()
    assert window.overflow() == 0


def test_a_token_is_measured_and_the_files_come(visit: Open, site: Site) -> None:
    window = looked(visit, site)
    window.at("#inside_measure").click()
    window.at("#inside_measured").wait_for()
    chart = window.at("#inside_roofline .plot")
    assert re.search(r"[\d.]+ FLOPs a byte", chart.get_attribute("aria-label") or "")
    assert window.at("#inside_roofline .inside-dot.whole").count() == 1
    assert window.at("#inside_ways tbody tr").count() == 3
    window.at("#inside_texts").click()
    link = window.at("#inside_files a").filter(has_text="decode.hlo.txt")
    link.wait_for()
    address = f"{site.url.rstrip('/')}/{link.get_attribute('href')}"
    assert httpx.get(address).text.startswith("HloModule")
    other = httpx.get(address.replace("file=decode.hlo.txt", "file=../machine.json"))
    assert other.status_code == 404
