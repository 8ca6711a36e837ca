"""The Side by side tab, used as a visitor uses it, with an engine that a test leads."""

from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.visit import Visit
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import FakeBackend
from xla_backend import Message

LINK = {
    "prompt": "Say <b>it</b>",
    "left.temperature": "0.5",
    "left.seed": "7",
    "right.model": "talker",
    "right.system": "Be brief",
    "right.grammar": '{"type": "integer"}',
}


@pytest.fixture
def window(window: Visit, site: ApiPage) -> Visit:
    """A visitor who has followed a link to the tab."""
    window.go(f"{site.url}/?{urlencode({'tab': 'side_by_side', **LINK})}")
    window.at("#side_by_side_mode .card").first.wait_for()
    window.says("#right_prediction", "MISS")
    return window


def test_both_sides_come_by_link_run_and_stop_together(window: Visit, engine: FakeBackend) -> None:
    window.has_value("#right_system textarea", "Be brief")
    expect(window.at("#right_answer_as input:checked")).to_have_value("JSON")
    expect(window.at("#left_answer_as input:checked")).to_have_value("Text")
    window.at("#sides_copy_link").click()
    window.says("#sides_notice", "Link copied")
    link = dict(parse_qsl(urlsplit(window.page.evaluate("navigator.clipboard.readText()")).query))
    assert {name: link[name] for name in LINK if name != "right.grammar"} == {
        name: said for name, said in LINK.items() if name != "right.grammar"
    }
    assert engine.asked == []

    engine.hold("end")
    window.at("#sides_run").click()
    for side in ("left", "right"):  # neither has ended
        window.says(f"#{side}_result", "RUNNING", "there was a")
    asked = {prompt: (model, options) for model, prompt, options, _ in engine.asked}
    told = (Message("system", "Be brief"), Message("user", LINK["prompt"]))
    assert {prompt: model for prompt, (model, _) in asked.items()} == {
        LINK["prompt"]: "gpt2-stories",
        told: "talker",
    }
    left, right = asked[LINK["prompt"]][1], asked[told][1]
    assert (left.temperature, left.seed, left.grammar) == (0.5, 7, None)
    assert right.grammar is not None
    window.page.keyboard.press("Escape")
    for side in ("left", "right"):
        window.says(f"#{side}_result", "You stopped it.", "there was a")
    window.says("#sides_compared", "Stopped: the times are those until then.")

    window.resize(390, 844)
    window.page.wait_for_function(
        """() => {
          const [left, right] = ["left", "right"].map(
            (side) => document.getElementById(`${side}_result`).getBoundingClientRect());
          return right.top >= left.bottom;
        }"""
    )
    assert window.overflow() == 0


def test_differences_are_marked_and_errors_keep_texts(window: Visit, engine: FakeBackend) -> None:
    engine.hold("text")
    window.at("#sides_in_turn").click()
    engine.write(" A red")
    window.says("#left_result .story", "A red")
    window.says("#right_result", "QUEUED", "Waiting for the other side to end")
    engine.write(" fox")
    engine.end()
    engine.write(" A blue fox")
    engine.end()
    window.at("#sides_run:enabled").wait_for()
    assert window.at("#left_result mark").all_inner_texts() == ["red"]
    assert window.at("#right_result mark").all_inner_texts() == ["blue"]
    window.says("#sides_compared", "Equally fast", "Words that differ are marked", "Be brief")

    window.at("#sides_in_turn").click()
    engine.write(" A grey fox")
    engine.end()
    engine.write(" A green")
    window.says("#right_result .story", "A green")
    window.says("#left_result", "Stopped at")
    engine.crash()
    window.says("#right_result", "FAILED", "The engine stopped.", "A green")
    window.says("#left_result .story", "A grey fox")
    window.says("#sides_compared", "appears here")
    expect(window.at("#sides_in_turn")).to_be_enabled()
