"""Saved traces, as Perfetto's own page reads them: the sums are the results'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.perfetto import opened
from tests.browser.visit import Visit
from tests.playground.served import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Open = Callable[..., Visit]
_TOKENS = "select sum(extract_arg(arg_set_id, 'args.tokens')) from slice"


def phases(site: Site, count: int) -> dict[str, float]:
    """What the log says of the last requests, their phases added up; those that took time."""
    lines = site.log_lines()[-count:]
    names = [name for name in lines[0]["timing"] if name != "total_s"]
    sums = {name[:-2]: sum(line["timing"][name] for line in lines) for name in names}
    return {name: seconds for name, seconds in sums.items() if seconds}


def new_tokens(site: Site, count: int) -> int:
    """How many the last requests wrote: texts that are drawn may end by themselves."""
    return sum(line["new_tokens"] for line in site.log_lines()[-count:])


def test_a_run_is_saved_as_a_trace(visit: Open, site: Site, browser: Browser) -> None:
    window = visit()
    window.set_number("max_new_tokens", 24)
    window.generate()
    with window.page.expect_download() as download:
        window.at("#report a", has_text="Save as a trace").click()
    path = Path(download.value.path())
    with opened(browser, path) as perfetto:
        engine = perfetto.seconds("Engine")
        whole = engine.pop("request")
        assert engine.keys() - {"load"} == phases(site, 1).keys()
        for name, seconds in phases(site, 1).items():
            assert engine[name] == pytest.approx(seconds, abs=2e-6), name
        assert perfetto.rows(_TOKENS) == [[new_tokens(site, 1)]]
        page = perfetto.seconds("Page")
        assert page.keys() == {"request", "waiting line", "engine", "to the browser"}
        assert page["request"] > whole, "the same clock: the engine's time lies in the page's"
        began = "select min(ts), max(ts + dur) from slice join thread_track on track_id"
        began += " = thread_track.id join thread using (utid) join process using (upid)"
        (outer,) = perfetto.rows(f"{began} where process.name = 'Page'")
        (inner,) = perfetto.rows(f"{began} where process.name = 'Engine'")
        assert outer[0] <= inner[0] and inner[1] <= outer[1]


def test_a_batch_is_one_trace_of_all_its_requests(
    visit: Open, site: Site, browser: Browser
) -> None:
    window = visit()
    window.open_tab("Batch")
    window.at("#batch_prompts textarea").fill("The old owl\nA fox\nOne day")
    window.set_number("batch_max_new_tokens", 8)
    window.at("#batch_run").click()
    with window.page.expect_download() as download:
        window.at("#batch_files a", has_text="Save as a trace").click()
    with opened(browser, Path(download.value.path())) as perfetto:
        engine = perfetto.seconds("Engine")
        for name, seconds in phases(site, 3).items():
            assert engine[name] == pytest.approx(seconds, abs=6e-6), name
        assert perfetto.rows("select count(*) from slice where name = 'request'") == [[6]]
        assert perfetto.rows(_TOKENS) == [[new_tokens(site, 3)]]


def test_what_a_server_wrote_is_a_trace_while_it_runs(
    visit: Open, site: Site, browser: Browser
) -> None:
    window = visit()
    window.set_number("max_new_tokens", 8)
    window.generate()
    with opened(browser, site.trace) as perfetto:
        engine = perfetto.seconds("Engine")
        lines = [line for line in site.log_lines() if "timing" in line]
        for phase in ("prefill", "decode", "detokenize"):
            reported = sum(line["timing"][f"{phase}_s"] for line in lines)
            assert engine[phase] == pytest.approx(reported, abs=1e-6 * len(lines)), phase
        count = "select count(*) from thread join process using (upid) where process.name"
        assert perfetto.rows(f"{count} = 'Engine' and thread.name like '%: %'") == [[len(lines)]]
