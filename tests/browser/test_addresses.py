"""Each tab has an address: it changes with the tab, and the tab with it."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Request, expect

from tests.browser.visit import Visit
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import FakeBackend


def wait_for_tab(window: Visit, name: str) -> None:
    """Waits until a tab, by its name in an address, is the one that is shown."""
    window.page.locator(f'#tabs [role=tab][data-tab-id="{name}"][aria-selected=true]').wait_for()


def test_back_and_forward_go_through_the_tabs_without_loading_the_page(window: Visit) -> None:
    window.write("What I wrote stays.")
    window.page.evaluate("window.isTheSame = true")
    assert "tab=" not in window.page.url
    for width in (1280, 390):  # in the bar, and in the menu of those that have no room there
        window.resize(width, 844)
        for name, address in (("Compare", "compare"), ("Statistics", "statistics")):
            window.open_tab(name)
            wait_for_tab(window, address)
            window.page.wait_for_url(f"**tab={address}")
            shown = window.at("#tabs [role=tab][aria-selected=true]")
            expect(shown).to_have_text(name)
            expect(shown).to_be_visible()
            assert window.overflow() == 0
        for turn, address in (
            (window.page.go_back, "compare"),
            (window.page.go_back, "playground"),
            (window.page.go_forward, "compare"),
            (window.page.go_forward, "statistics"),
        ):
            turn()
            wait_for_tab(window, address)
        window.page.wait_for_url("**tab=statistics")
        # Two at once, as a finger on the key makes them: none of the tabs between is added anew.
        window.page.evaluate("history.back(); setTimeout(() => history.back(), 20)")
        wait_for_tab(window, "playground")
        window.page.go_forward()
        wait_for_tab(window, "compare")
        window.page.go_forward()
        wait_for_tab(window, "statistics")
        window.open_tab("Playground")
        wait_for_tab(window, "playground")
    window.has_value("#prompt textarea", "What I wrote stays.")
    assert window.page.evaluate("window.isTheSame")


def test_an_address_opens_its_tab_and_keeps_what_else_it_says(window: Visit, site: ApiPage) -> None:
    window.go(f"{site.url}/?tab=compare&prompt=The+fox")
    wait_for_tab(window, "compare")
    window.at("#compare").wait_for()
    window.open_tab("Playground")
    window.settle()
    window.has_value("#prompt textarea", "The fox")
    assert window.text("#link_notice").strip() == ""
    expected = {"tab": ["playground"], "prompt": ["The fox"]}
    window.page.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == expected)

    window.go(f"{site.url}/?tab=%22%3Cb%3E")  # of no tab: the first one is shown
    window.settle()
    wait_for_tab(window, "playground")
    window.open_tab("About these numbers")
    wait_for_tab(window, "about")
    window.page.go_back()
    window.page.wait_for_url("**tab=%22%3Cb%3E")


def test_a_run_goes_on_while_another_tab_is_open(window: Visit, engine: FakeBackend) -> None:
    engine.hold("text")
    window.at("#generate").click()
    engine.write(" there")
    window.says("#story .story-new", "there")
    window.open_tab("Compare")
    wait_for_tab(window, "compare")
    engine.write(" was")
    engine.end()
    window.page.go_back()
    window.says("#story .story-new", "there was")
    window.says("#report", "Decode tokens/s")
    assert engine.streams[-1].result.finish == "length"


def looked(window: Visit, times: int) -> None:
    """Waits until the page has looked so often whether there is news."""
    for _ in range(times):
        with window.page.expect_request_finished(lambda asked: asked.url.endswith("/changes")):
            pass
    window.let_be_filled_in()


def test_what_is_new_is_fetched_for_the_tab_in_sight_alone(window: Visit, site: ApiPage) -> None:
    [shapes] = [
        place
        for place, fn in site.page.fns.items()
        if getattr(fn.fn, "__qualname__", "") == "ShapesTab._look"
    ]
    asked: list[int] = []

    def note(request: Request) -> None:
        if "/run/" in request.url:
            asked.append(json.loads(request.post_data or "{}")["fn_index"])

    window.settle()
    window.page.on("request", note)
    for _ in range(2):
        window.generate()
        looked(window, 2)
        assert shapes not in asked
        window.open_tab("Shapes")
        window.says("#shapes_summary", "to be compiled")
        looked(window, 1)
        assert asked.count(shapes) == 1
        window.open_tab("Playground")
        asked.clear()
    window.page.route("**/changes", lambda route: route.fulfill(body="<p>This is no JSON.</p>"))
    window.go()  # where a proxy keeps the news, a tab is filled all the same
    window.settle()
    window.open_tab("Shapes")
    window.says("#shapes_summary", "to be compiled")


# Counts what wakes the page up: Gradio's `tick` sets a timer without a delay.
_COUNT_TIMERS = """() => {
  window.timers = 0;
  const set = window.setTimeout;
  window.setTimeout = (run, delay) => {
    if (!delay) window.timers += 1;
    return set(run, delay);
  };
}"""


def test_a_page_at_rest_is_at_rest(window: Visit) -> None:
    window.generate()
    for name in ("Functions", "Playground"):
        window.open_tab(name)
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    window.page.evaluate(_COUNT_TIMERS)
    for _ in range(10):  # until what these clicks have set off is over
        asked.clear()
        window.page.evaluate("window.timers = 0")
        looked(window, 3)
        if set(asked) == {"changes"}:
            break
    assert set(asked) == {"changes"}, "nothing is new"
    assert window.page.evaluate("window.timers") <= len(asked), "Gradio's tabs go round and round"
