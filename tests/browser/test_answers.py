"""Answers of the Playground that are no plain text: JSON, a call, a choice, yes or no."""

import json
import re

from playwright.sync_api import expect

from tests.browser.visit import Visit
from tests.playground.fake_backend import FakeBackend
from xla_backend.answers.tool_format import GENERIC
from xla_backend.interface.prompt import ToolCall


def answer_as(window: Visit, kind: str) -> None:
    window.at("#answer_as label", has_text=kind).click()


def test_yes_or_no_is_told_by_bars_and_writes_nothing(window: Visit, engine: FakeBackend) -> None:
    window.write("A fox went by.")
    answer_as(window, "Yes or no")
    window.at("#answer_questions textarea").fill(
        "Is it a fox?\n\nIs it <b>a cat</b>?\nIs it a fox?"
    )
    window.says("#prediction", "60 tokens")  # with the words of the questions
    window.at("#generate").click()
    window.says("#story", "Is it a fox?", "Yes", "75%", "No", "25%", "Is it <b>a cat</b>?")
    window.wait_for_result()
    expect(window.at("#story .decisions li")).to_have_count(2)
    window.says("#story .caption", "The first of 2 answers was known after 250 ms")
    window.says("#report", "End to end")
    expect(window.at("#copy_text")).to_be_hidden()
    request = engine.streams[-1].request
    assert (request.prompt, len(request.questions)) == ("A fox went by.", 2)
    window.open_mode("Your runs")
    window.says("#history", "Your runs appear here")
    window.open_mode("Playground")

    answer_as(window, "Choice")
    window.at("#answer_choices textarea").fill("tame\nwild")
    window.at("#generate").click()
    window.says("#story .decision.chosen", "tame", "75%")
    window.wait_for_result()
    window.at("#answer_choices textarea").fill(" ")
    window.at("#generate").click()
    window.says("#notice", "write one per line")

    answer_as(window, "Text")
    window.generate()
    window.says("#story .story-new", "there was a")
    assert engine.streams[-1].request.questions == ()


def test_json_follows_a_schema_and_comes_as_a_form(window: Visit, engine: FakeBackend) -> None:
    answer_as(window, "JSON")
    schema = window.at("#grammar textarea")
    expect(schema).to_have_value(re.compile('"answer"'))
    window.at("#answer_schemas button", has_text="A review").click()
    expect(schema).to_have_value(re.compile("sentiment"))
    engine.words = ('{"sentiment": "neutral", ', '"stars": 3, "summary": "<i>ok</i>"}')
    window.generate()
    window.says("#story .json-form", "sentiment", "neutral", "stars", "3", "<i>ok</i>")
    grammar = engine.streams[-1].request.options.grammar
    assert {*json.loads(grammar.text)["properties"]} == {"sentiment", "stars", "summary"}
    schema.fill("{")
    window.at("#generate").click()
    window.says("#notice", "the JSON schema is not JSON")
    # An earlier run brings its form back; a text has none.
    answer_as(window, "Text")
    expect(schema).to_be_hidden()
    window.open_mode("Your runs")
    window.at("#history button", has_text="Rerun").first.click()
    window.has_value("#prompt textarea", re.compile("."))
    window.wait_for_result()
    expect(window.at("#answer_as input:checked")).to_have_value("JSON")
    expect(schema).to_have_value(re.compile("sentiment"))


def test_a_tool_is_called_and_its_result_is_sent(window: Visit, engine: FakeBackend) -> None:
    window.choose_model("talker")
    window.write("What is the weather in Oslo?")
    answer_as(window, "Tools")
    expect(window.at("#answer_tools textarea")).to_have_value(re.compile("get_weather"))
    window.show_code("openai")
    window.says("#request_code", "tools=[")
    engine.words = (GENERIC.write(ToolCall("", "get_weather", '{"city": "Oslo"}')),)
    window.generate()
    window.says("#story .json-form", "Calls get_weather", "city", "Oslo")
    request = engine.streams[-1].request
    assert [tool["function"]["name"] for tool in request.tools] == ["get_weather"]
    assert request.options.grammar.kind == "tool_calls"

    engine.words = ("It rains.",)
    window.at("#tool_result textarea, #tool_result input").fill("rain")
    window.at("#tool_result_send").click()
    window.says("#story .story-answer", "It rains.")
    window.wait_for_result()
    expect(window.at("#tool_result_send")).to_be_hidden()
    asked, call, told = engine.streams[-1].request.prompt
    assert asked.content == "What is the weather in Oslo?"
    assert (call.tool_calls[0].name, told.content) == ("get_weather", "rain")
    assert told.tool_call_id == call.tool_calls[0].id
    window.says("#messages code", 'get_weather({"city":"Oslo"})')
    window.at("#answer_tools textarea").fill("{")
    window.at("#generate").click()
    window.says("#notice", "tools must be a JSON list")
