"""What XLA does, in one click: the outcomes that a real engine reports, and nobody's functions."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.browser.visit import Visit
from tests.playground.served import Site, children
from tests.waiting import wait_until

FOLDERS = Path(tempfile.gettempdir())
OUTCOMES = {"first": "MISS", "again": "HIT", "smaller": "REUSED", "new_process": "DISK"}


def test_one_click_shows_all_four_outcomes_and_leaves_the_engine_as_it_is(
    visit: Callable[..., Visit], site: Site
) -> None:
    window = visit(1280, 800)
    window.write("Once upon a time")
    window.set_number("max_new_tokens", 24)
    # What the engine makes by itself at its start is made by then.
    window.at("#status .status-ready .status-detail:empty").wait_for(state="attached")
    window.at("#prediction").locator(".outcome-hit, .outcome-reused").wait_for()
    functions = window.text("#entries")
    before = set(FOLDERS.glob("xla-backend-walkthrough-*"))

    window.at("#walkthrough_show").click()
    window.at("#walkthrough .walkthrough.busy").wait_for()
    assert window.at("#generate").is_disabled()
    assert not window.at("#report").is_visible(), "it stands in place of the result"
    window.at("#walkthrough .walkthrough:not(.busy)").wait_for()

    calls = {name: window.at(f"#walkthrough .call-{name}") for name in OUTCOMES}
    assert {name: call.locator(".badge").inner_text() for name, call in calls.items()} == OUTCOMES
    times = {
        name: re.sub(r"\s*median of 3$", "", call.locator(".walkthrough-time").inner_text())
        for name, call in calls.items()
    }
    headline = re.fullmatch(
        r"([\d,.]+) times faster once it is compiled: (.+), then (.+)\.",
        window.text("#walkthrough .walkthrough-said"),
    )
    assert headline is not None
    assert headline.groups()[1:] == (times["first"], times["again"])
    compiled_s, cached_s = (
        float(number) * {"ms": 1e-3, "s": 1.0}[unit]
        for number, unit in (time.split()[-2:] for time in headline.groups()[1:])
    )
    ratio = float(headline[1].replace(",", ""))
    assert abs(ratio - compiled_s / cached_s) <= 0.51
    for call in calls.values():
        heard = call.locator("[role=img]").get_attribute("aria-label")
        drawn = call.locator(".legend li").all_inner_texts()
        assert drawn, "each bar has parts"
        assert all(" ".join(part.split()) in str(heard) for part in drawn)
    lowest = (
        "Math.max(...[...document.querySelectorAll('#walkthrough .walkthrough-call > p')]"
        ".map(sentence => sentence.getBoundingClientRect().bottom))"
    )
    assert window.page.evaluate(lowest) < 800, "above the fold"

    # Its processes and their store are gone; the engine has what it had.
    assert len(children(site.served.process.pid)) == 1
    assert set(FOLDERS.glob("xla-backend-walkthrough-*")) <= before
    window.at("#walkthrough_close").click()
    window.at("#report").wait_for()
    assert window.text("#entries") == functions
    assert window.at("#generate").is_enabled()


def test_a_stop_and_a_visitor_who_leaves_end_it(visit: Callable[..., Visit], site: Site) -> None:
    window = visit(390, 844)
    starting = window.at("#walkthrough", has_text="processes are starting")
    window.at("#walkthrough_show").click()
    starting.wait_for()
    assert window.overflow() == 0
    window.page.keyboard.press("Escape")
    window.at("#generate:enabled").wait_for()
    assert window.at("#report").is_visible(), "nothing was measured: the result is back"

    window.at("#walkthrough_show").click()
    starting.wait_for()
    assert len(children(site.served.process.pid)) == 3
    window.close()
    wait_until(lambda: len(children(site.served.process.pid)) == 1)
