"""Each place and each mode has an address: it changes with the mode, and the mode with it."""

import json
import re
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Request, expect

from playground.places import modes
from tests.browser.visit import Visit
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import FakeBackend


def wait_for_mode(window: Visit, name: str) -> None:
    """Waits until a mode, by its name in an address, is the one that is shown and marked."""
    expect(window.at(f"#{name}_mode")).to_be_visible()
    expect(window.at("#modes > [role=tabpanel]:visible")).to_have_count(1)
    current = window.at('#places a[aria-current="page"]:visible, #places a[aria-current]:visible')
    expect(current.last).to_have_attribute("href", f"?tab={name}")


def test_back_and_forward_go_through_the_modes_without_loading_the_page(window: Visit) -> None:
    window.write("What I wrote stays.")
    window.page.evaluate("window.isTheSame = true")
    for width in (1280, 390):
        window.resize(width, 844)
        for name, address in (("Batch", "batch"), ("Models", "models")):
            window.open_mode(name)
            wait_for_mode(window, address)
            window.page.wait_for_url(f"**tab={address}")
            assert window.overflow() == 0
        for turn, address in (
            (window.page.go_back, "batch"),
            (window.page.go_back, "playground"),
            (window.page.go_forward, "batch"),
            (window.page.go_forward, "models"),
        ):
            turn()
            wait_for_mode(window, address)
        window.page.wait_for_url("**tab=models")
        # Two at once, as a finger on the key makes them: none of the modes between is added anew.
        window.page.evaluate("history.back(); setTimeout(() => history.back(), 20)")
        wait_for_mode(window, "playground")
        window.page.go_forward()
        wait_for_mode(window, "batch")
        window.page.go_forward()
        wait_for_mode(window, "models")
        window.open_mode("Playground")
        wait_for_mode(window, "playground")
    window.has_value("#prompt textarea", "What I wrote stays.")
    assert window.page.evaluate("window.isTheSame")


def test_every_mode_is_a_click_away_and_a_place_leads_back_to_where_one_was(window: Visit) -> None:
    for address, mode in modes(admin=True).items():
        window.open_mode(mode.name)
        wait_for_mode(window, address)
    window.open_mode("Chat")
    window.open_mode("Batch")
    latest = {"Compiler": "functions", "Batch & compare": "batch", "Try": "chat"}
    for place, address in latest.items():
        window.at("#place_links").get_by_role("link", name=place).click()
        wait_for_mode(window, address)


def test_an_address_opens_its_mode_and_keeps_the_rest(window: Visit, site: ApiPage) -> None:
    window.go(f"{site.url}/?tab=compare&prompt=The+fox")
    wait_for_mode(window, "compare")
    window.at("#compare").wait_for()
    window.open_mode("Playground")
    window.settle()
    window.has_value("#prompt textarea", "The fox")
    assert window.text("#link_notice").strip() == ""
    expected = {"tab": ["playground"], "prompt": ["The fox"]}
    window.page.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == expected)
    for query, address in (
        ("", "playground"),
        ("?tab=%22%3Cb%3E", "playground"),
        ("?tab=about", "playground"),  # of earlier versions
        ("?tab=start", "playground"),
        ("?tab=try", "playground"),
        ("?tab=compiler", "shapes"),
        ("?prompt=The+fox", "playground"),
    ):
        window.go(f"{site.url}/{query}")
        wait_for_mode(window, address)
    window.open_mode("Models")
    window.page.go_back()
    window.page.wait_for_url("**/?prompt=The+fox")


def test_a_recorded_run_stands_where_the_first_result_comes(
    window: Visit, site: ApiPage, engine: FakeBackend
) -> None:
    window.says("#walkthrough", "MISS", "HIT", "REUSED", "DISK", "Measured on")
    expect(window.at("#story")).to_be_hidden()
    window.generate()
    expect(window.at("#walkthrough")).to_be_hidden()
    assert len(engine.asked) == 1
    window.at("#introduction a", has_text="numbers").click()
    expect(window.at("#meanings h2").first).to_be_in_viewport()


def test_a_model_that_is_chosen_is_that_of_the_modes_that_offer_it(window: Visit) -> None:
    window.choose_model("talker")
    for name in ("Batch", "Chat", "Compare"):
        window.open_mode(name)
        window.has_value(f"#{name.lower()}_model input", re.compile("talker"))
    window.open_mode("Playground")
    window.choose_model("gpt2-stories")
    window.says("#prediction", "MISS")
    window.has_value("#batch_model input", re.compile("talker"))  # events of unseen modes are dear
    window.open_mode("Batch")
    window.has_value("#batch_model input", re.compile("gpt2-stories"))
    window.open_mode("Chat")
    window.has_value("#chat_model input", re.compile("talker"))


def test_a_run_goes_on_while_another_mode_is_open(window: Visit, engine: FakeBackend) -> None:
    engine.hold("text")
    window.at("#generate").click()
    engine.write(" there")
    window.says("#story .story-new", "there")
    window.open_mode("Models")
    wait_for_mode(window, "models")
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


def test_a_proxy_that_hides_the_port_does_not_stop_the_page(window: Visit) -> None:
    window.page.evaluate("window.gradio_config.root = 'http://127.0.0.1:9'")
    looked(window, 2)


def test_what_is_new_is_fetched_for_the_mode_in_sight_alone(window: Visit, site: ApiPage) -> None:
    [shapes] = [
        place
        for place, fn in site.page.fns.items()
        if getattr(fn.fn, "__qualname__", "") == "ShapesTab._refresh"
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
        window.open_mode("Shapes")
        window.at("#entries :is(.sheet, .nothing)").wait_for()
        looked(window, 1)
        assert asked.count(shapes) == 1
        window.open_mode("Playground")
        asked.clear()
    window.page.route("**/changes", lambda route: route.fulfill(body="<p>This is no JSON.</p>"))
    window.go()  # where a proxy keeps the news, a mode is filled all the same
    window.settle()
    window.open_mode("Shapes")
    window.at("#entries :is(.sheet, .nothing)").wait_for()


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
        window.open_mode(name)
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
