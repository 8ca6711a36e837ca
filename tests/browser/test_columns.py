"""Columns beside each other in the Playground, with an engine that a test leads."""

import re
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
COLUMN = ".compared-column >> nth={}"


@pytest.fixture
def window(window: Visit, site: ApiPage) -> Visit:
    """A visitor who has followed a link to two columns, from an earlier version."""
    window.go(f"{site.url}/?{urlencode({'tab': 'side_by_side', **LINK})}")
    window.settle()
    window.says("#columns_bar", "gpt2-stories", "talker", "Be brief", "MISS")
    return window


def test_both_come_by_link_run_and_stop_together(window: Visit, engine: FakeBackend) -> None:
    expect(window.at("#answer_as input:checked")).to_have_value("Text")
    window.at("#columns_bar [data-act=open][data-at='1']").click()
    window.has_value("#system textarea", "Be brief")
    expect(window.at("#answer_as input:checked")).to_have_value("JSON")
    window.at("#copy_link").click()
    window.says("#copy_notice", "Link copied")
    link = dict(parse_qsl(urlsplit(window.page.evaluate("navigator.clipboard.readText()")).query))
    assert {name: link[name] for name in LINK if name != "right.grammar"} == {
        name: said for name, said in LINK.items() if name != "right.grammar"
    }
    assert engine.asked == []

    engine.hold("end")
    window.at("#generate").click()
    for place in (0, 1):  # neither has ended
        window.says(COLUMN.format(place), "RUNNING", "there was a")
    asked = {prompt: (model, options) for model, prompt, options in engine.asked}
    told = (Message("system", "Be brief"), Message("user", LINK["prompt"]))
    assert {prompt: model for prompt, (model, _) in asked.items()} == {
        LINK["prompt"]: "gpt2-stories",
        told: "talker",
    }
    left, right = asked[LINK["prompt"]][1], asked[told][1]
    assert (left.temperature, left.seed, left.grammar) == (0.5, 7, None)
    assert right.grammar is not None
    window.page.keyboard.press("Escape")
    for place in (0, 1):
        window.says(COLUMN.format(place), "there was a", "Decode tokens/s")
    window.says("#compared", "Stopped: the times are those until then.")

    window.resize(390, 844)
    window.page.wait_for_function(
        """() => {
          const [left, right] = [...document.querySelectorAll(".compared-column")].map(
            (column) => column.getBoundingClientRect());
          return right.top >= left.bottom;
        }"""
    )
    assert window.overflow() == 0


def test_differences_are_marked_and_errors_keep_texts(window: Visit, engine: FakeBackend) -> None:
    window.at(".column-order").click()
    expect(window.at(".column-order")).to_have_attribute("aria-pressed", "true")
    engine.hold("text")
    window.at("#generate").click()
    engine.write(" A red")
    window.says(f"{COLUMN.format(0)} >> .story", "A red")
    window.says(COLUMN.format(1), "QUEUED", "Waiting for another column to end")
    engine.write(" fox")
    engine.end()
    engine.write(" A blue fox")
    engine.end()
    window.at("#generate:enabled").wait_for()
    assert window.at(f"{COLUMN.format(0)} >> mark").all_inner_texts() == ["red"]
    assert window.at(f"{COLUMN.format(1)} >> mark").all_inner_texts() == ["blue"]
    window.says("#compared", "Equally fast", "Words that differ are marked", "Be brief")

    window.at("#generate").click()
    engine.write(" A grey fox")
    engine.end()
    engine.write(" A green")
    window.says(f"{COLUMN.format(1)} >> .story", "A green")
    window.says(COLUMN.format(0), "Decode tokens/s")
    engine.crash()
    window.says(COLUMN.format(1), "FAILED", "The engine stopped.", "A green")
    window.says(f"{COLUMN.format(0)} >> .story", "A grey fox")
    expect(window.at("#generate")).to_be_enabled()


def test_a_column_is_added_survives_a_reload_and_goes(window: Visit, engine: FakeBackend) -> None:
    window.at(".column-add").click()
    expect(window.at(".column-choice")).to_have_count(3)
    expect(window.at(".column-add")).to_have_count(0)
    window.set_number("num_beams", 4)
    window.says(".column-choice >> nth=2", "C", "Beams 4")
    window.at("#columns_bar [data-act=open][data-at='0']").click()
    window.has_value("#num_beams input[type=number]", "1")
    window.says(".column-choice >> nth=2", "Beams 4")
    window.go()
    window.settle()
    window.says(".column-choice >> nth=2", "C", "Beams 4")
    window.at(".column-remove").nth(1).click()
    expect(window.at(".column-choice")).to_have_count(2)
    window.at("#columns_bar [data-act=open][data-at='1']").click()
    window.has_value("#num_beams input[type=number]", "4")
    window.at(".column-remove").first.click()
    expect(window.at(".column-choice")).to_have_count(0)
    window.has_value("#num_beams input[type=number]", "4")
    window.at("#generate").click()
    window.says("#report", re.compile("MISS|HIT"))
    expect(window.at("#compared")).to_be_hidden()
    assert [options.num_beams for _, _, options in engine.asked] == [4]
