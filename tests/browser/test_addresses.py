"""Each tab has an address: it changes with the tab, and the tab with it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.visit import Visit
from tests.playground.served import Site, children, slowed, was_cut_short

Open = Callable[..., Visit]


def wait_for_tab(window: Visit, name: str) -> None:
    """Waits until a tab, by its name in an address, is the one that is shown."""
    window.page.locator(f'#tabs [role=tab][data-tab-id="{name}"][aria-selected=true]').wait_for()


def named(window: Visit) -> list[str]:
    """The tab that the address names, if it does."""
    return parse_qs(urlsplit(window.page.url).query).get("tab", [])


@pytest.mark.parametrize("width", [1280, 390])
def test_back_and_forward_go_through_the_tabs_without_loading_the_page(
    visit: Open, width: int
) -> None:
    window = visit(width)
    window.write("What I wrote stays.")
    window.page.evaluate("window.isTheSame = true")
    assert named(window) == []
    for name, address in (("Compare", "compare"), ("Statistics", "statistics")):
        window.open_tab(name)
        wait_for_tab(window, address)
        window.page.wait_for_url(f"**tab={address}")
    for turn, address in (
        (window.page.go_back, "compare"),
        (window.page.go_back, "playground"),
        (window.page.go_forward, "compare"),
        (window.page.go_forward, "statistics"),
    ):
        turn()
        wait_for_tab(window, address)
    assert named(window) == ["statistics"]
    # Two at once, as a finger on the key makes them: none of the tabs between is added anew.
    window.page.evaluate("history.back(); setTimeout(() => history.back(), 20)")
    wait_for_tab(window, "playground")
    window.page.wait_for_timeout(500)
    window.page.go_forward()
    wait_for_tab(window, "compare")
    window.page.go_forward()
    wait_for_tab(window, "statistics")
    window.open_tab("Playground")
    wait_for_tab(window, "playground")
    window.has_value("#prompt textarea", "What I wrote stays.")
    assert window.page.evaluate("window.isTheSame")


def test_an_address_opens_its_tab_and_a_request_in_it_is_kept(visit: Open, site: Site) -> None:
    window = visit()
    window.go(f"{site.url}/?tab=compare&prompt=The+fox")
    wait_for_tab(window, "compare")
    window.at("#compare").wait_for()
    window.open_tab("Playground")
    window.settle()
    window.has_value("#prompt textarea", "The fox")
    assert window.text("#link_notice").strip() == ""
    expected = {"tab": ["playground"], "prompt": ["The fox"]}
    window.page.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == expected)


def test_an_address_of_no_tab_opens_the_first(visit: Open, site: Site) -> None:
    window = visit()
    window.go(f"{site.url}/?tab=%22%3Cb%3E")
    window.settle()
    wait_for_tab(window, "playground")
    window.open_tab("About these numbers")
    wait_for_tab(window, "about")
    window.page.go_back()
    window.page.wait_for_url("**tab=%22%3Cb%3E")


def test_a_run_goes_on_while_another_tab_is_open(visit: Open, site: Site) -> None:
    window = visit()
    window.choose_model("slow-gpt2")
    window.set_number("max_new_tokens", 40)
    ended = len(site.log_lines())
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        window.at("#generate").click()
        window.at("#stop:enabled").wait_for()
        window.open_tab("Compare")
        wait_for_tab(window, "compare")
    line = site.line_after(ended, within_s=300.0)
    assert line["end"] == "result"
    assert not was_cut_short(line)
    window.page.go_back()
    window.at("#report .figures").wait_for()
    assert window.text("#story .story-new").strip()


# How often the page has asked for what a tab shows, by the tab's name in addresses.
_COUNT_LOOKS = """() => {
  window.looks = {};
  const {components, dependencies} = window.gradio_config;
  const named = Object.fromEntries(components.map((each) => [each.id, each.props.elem_id]));
  const news = (targets) =>
    targets.map(([target]) => named[target]).find((name) => name?.endsWith("_is_new"));
  const tabs = Object.fromEntries(
    dependencies.map(({id, targets}) => [id, news(targets)?.replace("_is_new", "")])
  );
  const send = window.fetch;
  window.fetch = (address, options) => {
    const tab = String(address).includes("/run/") && tabs[JSON.parse(options.body).fn_index];
    if (tab) window.looks[tab] = (window.looks[tab] ?? 0) + 1;
    return send(address, options);
  };
}"""


def test_what_is_new_is_fetched_for_the_tab_in_sight_alone(visit: Open) -> None:
    window = visit()
    window.page.evaluate(_COUNT_LOOKS)
    looks = "window.looks.shapes ?? 0"
    window.generate()
    window.page.wait_for_timeout(2500)  # the page looks for what is new once a second
    assert window.page.evaluate(looks) == 0
    window.open_tab("Shapes")
    window.page.wait_for_function(f"({looks}) === 1")
    window.open_tab("Playground")
    window.page.evaluate("window.looks = {}")
    window.generate()
    window.page.wait_for_function("window.looks.playground >= 1")
    assert window.page.evaluate(looks) == 0
    window.open_tab("Shapes")
    window.page.wait_for_function(f"({looks}) === 1")


def test_a_tab_is_filled_where_a_proxy_keeps_the_news(visit: Open) -> None:
    window = visit()
    window.page.route("**/changes", lambda route: route.fulfill(body="<p>This is no JSON.</p>"))
    window.go()
    window.settle()
    window.open_tab("Shapes")
    window.at("#shapes_summary", has_text="to be compiled").wait_for()
