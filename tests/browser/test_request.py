"""The request of the Playground tab: its model, and the request as a link, as code, as a preset."""

import ast
import json
import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.sync_api import Request, Route, expect

from tests.browser.visit import Visit
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import FakeBackend
from xla_backend import Message

PROMPT = 'It\'s "here" & there: 100% + $x\nnaïve 🦊 <b onclick=1>'


def has_number(window: Visit, option: str, value: float) -> None:
    """Waits until an option has a value."""
    window.has_value(f'#{option} input[type="number"]', str(value))


def test_a_copied_link_brings_everything_back(window: Visit, engine: FakeBackend) -> None:
    clipboard = "navigator.clipboard.readText()"
    window.choose_model("openai-community/gpt2")
    window.write(PROMPT)
    window.set_number("num_beams", 2)
    window.open_more()
    window.at("#early_stopping label", has_text="impossible").click()
    window.set_number("repetition_penalty", 1.35)
    window.set_number("presence_penalty", -1.2)
    window.at("#stop_strings textarea").fill("no such\n\\n\\n")
    window.at("#exact_key input").check()
    window.set_number("max_new_tokens", 5)
    window.says("#prediction", "2 beams · 16 new")
    window.at("#copy_link").click()
    window.says("#copy_notice", "Link copied")
    link = window.page.evaluate(clipboard)
    query = parse_qs(urlsplit(link).query, keep_blank_values=True)
    assert query["prompt"] == [PROMPT]
    assert query["early_stopping"] == ["impossible"]
    assert query["stop"] == ["no such\n\\n\\n"]
    assert len(query) == 18, "every setting, and the mode"
    window.at("#link_runs input").check()
    window.at("#copy_link").click()
    window.says("#copy_notice", "and runs them")
    running = window.page.evaluate(clipboard)
    assert running == f"{link}&run=true"

    for address in (link, running):
        window.go(address)
        window.says("#prediction", "2 beams")
        window.has_value("#prompt textarea", PROMPT)
        window.has_value("#model input", re.compile("openai-community/gpt2"))
        has_number(window, "max_new_tokens", 5)
        window.open_more()
        has_number(window, "repetition_penalty", 1.35)
        has_number(window, "presence_penalty", -1.2)
        window.has_value("#stop_strings textarea", "no such\n\\n\\n")
        window.has_value("#early_stopping input:checked", "impossible")
        expect(window.at("#exact_key input")).to_be_checked()
    window.says("#report", "End to end")
    window.says("#story .story-prompt", "naïve 🦊 <b onclick=1>")
    assert len(engine.asked) == 1, "the first link ran nothing"
    assert window.text("#link_notice").strip() == ""


def test_the_rest_of_a_bad_link_is_used(window: Visit, site: ApiPage, engine: FakeBackend) -> None:
    query = {"prompt": "The fox", "num_beams": "99", "<img src=x onerror=alert(1)>": "1"}
    window.go(f"{site.url}/?{urlencode({**query, 'run': '1'})}")
    window.says("#link_notice", "num_beams must be from 1 to 8", "<img src=x onerror=alert(1)>")
    window.says("#link_notice", "Nothing was run")
    assert window.at("#link_notice img").count() == 0
    window.has_value("#prompt textarea", "The fox")
    window.settle()
    window.generate()
    assert window.text("#link_notice").strip() == ""
    assert len(engine.asked) == 1


def test_code_follows_the_request_and_presets_set_options(window: Visit, site: ApiPage) -> None:
    window.write(PROMPT)
    window.at("#presets button", has_text="4 beams").click()
    has_number(window, "num_beams", 4)
    has_number(window, "temperature", 0)
    window.has_value("#prompt textarea", PROMPT)
    window.show_code("Transformers")
    window.says("#request_code", "TFAutoModelForCausalLM")  # the editor draws what is in sight
    for form, sign in (
        ("This library", "backend.generate("),
        ("openai", "client.completions.create("),
    ):
        window.show_code(form)
        window.says("#request_code", sign)
        code = window.text("#request_code pre")
        texts = [n.value for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Constant)]
        assert {PROMPT, 4} <= set(texts)
    window.show_code("curl")
    window.says("#request_code", f"{site.url}/v1/completions")

    exact_key = window.at("#exact_key input")
    window.at("#presets button", has_text="Show a first call").click()
    expect(exact_key).to_be_checked()
    window.at("#prediction .outcome-miss").wait_for()
    has_number(window, "num_beams", 4)
    window.at("#presets button", has_text="Greedy").click()
    expect(exact_key).not_to_be_checked()
    has_number(window, "num_beams", 1)
    window.at("#examples button", has_text="Four beams").click()
    window.says("#prediction .prediction-key", "4 beams")
    window.open_more()
    expect(window.at('#length_penalty input[type="range"]')).to_be_enabled()
    expect(window.at('#top_k input[type="range"]')).to_be_disabled()


def test_a_preset_that_another_option_forbids_resets_nothing(window: Visit) -> None:
    window.set_number("max_new_tokens", 24)
    window.at("#answer_as label", has_text="JSON").click()
    window.has_value("#grammar textarea", re.compile('"answer"'))
    window.at("#presets button", has_text="4 beams").click()
    has_number(window, "num_beams", 4)
    window.at("#generate").click()
    window.says("#notice .problem", "Form of the text works with one beam, not with 4")
    window.at("#presets button", has_text="Greedy").click()
    has_number(window, "num_beams", 1)
    has_number(window, "max_new_tokens", 24)
    window.has_value("#grammar textarea", re.compile('"answer"'))


def test_what_was_written_survives_a_reload(window: Visit, site: ApiPage) -> None:
    window.write("Half a thought")
    window.choose_model("openai-community/gpt2")
    window.open_more()
    window.set_number("temperature", 0.6)
    window.at("#hold input:enabled").check()
    window.set_number("seed", 77)
    kept = "sessionStorage.getItem('xla-playground-request') ?? '{}'"
    window.page.wait_for_function(f"JSON.parse({kept}).seed === 77")
    window.go(f"{site.url}/?tab=playground")  # typed anew
    window.settle()
    window.has_value("#prompt textarea", "Half a thought")
    window.has_value("#model input", re.compile("openai-community/gpt2"))
    has_number(window, "temperature", 0.6)
    window.open_more()
    window.has_value("#seed input", "77")
    expect(window.at("#hold input")).to_be_checked()
    window.go(f"{site.url}?prompt=Of+a+link")
    window.settle()
    window.has_value("#prompt textarea", "Of a link")
    window.write("Of a link, changed")
    window.page.wait_for_function(f"({kept}).includes('changed')")
    window.go()
    window.has_value("#prompt textarea", "Of a link, changed")


def test_words_and_examples_follow_the_model(window: Visit) -> None:
    window.choose_model("gpt2-stories")
    window.at("#examples button", has_text="A short opening").click()
    window.has_value("#prompt textarea", "Once upon a time")
    prompt = window.at("#prompt textarea")
    window.at("#settings_close").focus()
    window.page.keyboard.press("Tab")
    window.at("#model li").first.wait_for()
    window.page.keyboard.type("t5")
    window.page.keyboard.press("Enter")
    window.says("#prompt label", "Input text")
    expect(prompt).to_have_value(re.compile("^summarize: One day, a merry dog"))
    has_number(window, "max_new_tokens", 40)
    window.at("#examples button", has_text="Ask about it").click()
    expect(prompt).to_have_value(re.compile("^question: Where was the balloon"))

    window.write("My own words")
    window.says("#prediction .prediction-key", re.compile(r"\d+ input \+"))
    window.generate()
    assert window.text("#story .story-prompt") == "My own words"
    assert window.text("#story .story-answer .story-new").strip() == "there was a"
    drawn = window.at("#report .shape .slots").get_attribute("aria-label")
    assert drawn is not None
    assert re.match(r"\d+ input, \d+ padding, \d+ new", drawn)

    window.set_number("max_new_tokens", 33)
    window.choose_model("gpt2-stories")
    window.says("#prompt label", "Prompt")
    window.says("#prediction .prediction-key", re.compile(r"\d+ prompt \+"))
    expect(prompt).to_have_value("My own words")
    has_number(window, "max_new_tokens", 33)


def test_what_is_written_and_run_before_a_model_s_words_come_stays(
    visit: Callable[..., Visit],
) -> None:
    window = visit()
    window.at("#examples button", has_text="A short opening").click()
    window.has_value("#prompt textarea", "Once upon a time")
    has_number(window, "max_new_tokens", 96)
    held: list[Route] = []

    def follows_model(request: Request) -> bool:
        body = json.loads(request.post_data or "{}")
        return {"t5-stories", "Once upon a time"} <= {
            value for value in body.get("data", ()) if isinstance(value, str)
        }

    def hold(route: Route) -> None:
        if follows_model(route.request) and not held:
            held.append(route)
        else:
            route.continue_()

    window.page.route("**/run/**", hold)
    window.at("#model input").click()
    with window.page.expect_request(follows_model):
        window.page.get_by_role("option", name="t5-stories").click()
    window.write("My own words")
    window.at("#generate").click()
    window.says("#report", "End to end")
    window.says("#origin", "t5-stories")
    held[0].continue_()
    has_number(window, "max_new_tokens", 40)
    window.has_value("#prompt textarea", "My own words")
    window.says("#report", "End to end")


def test_an_instruct_model_is_asked_messages_or_text(window: Visit, engine: FakeBackend) -> None:
    system = window.at("#system textarea")
    expect(system).to_be_hidden()
    window.set_number("max_new_tokens", 12)
    window.choose_model("talker")
    system.fill("Answer like a fox.")
    window.write("Where is the kite?")
    window.generate()
    asked = (Message("system", "Answer like a fox."), Message("user", "Where is the kite?"))
    assert engine.asked[-1][1] == asked
    assert window.text("#story .story-prompt") == "Where is the kite?"
    window.show_code("This library")
    window.says("#request_code", 'question("Where is the kite?", "Answer like a fox.")')

    system.fill("")
    window.at("#raw_prompt input").check()
    window.generate()
    assert engine.asked[-1][1] == "Where is the kite?"
    window.open_mode("Your runs")
    window.at("#history tbody tr >> nth=1").get_by_role("button", name="Rerun").click()
    window.says("#story .story-prompt", "Where is the kite?")
    expect(system).to_have_value("Answer like a fox.")
    window.says("#origin", "Answer like a fox.")
    assert engine.asked[-1][1] == asked
    window.choose_model("gpt2-stories")
    expect(system).to_be_hidden()
    expect(window.at("#raw_prompt")).to_be_hidden()


def test_messages_and_variables_are_filled_in_and_kept_as_a_preset(
    window: Visit, engine: FakeBackend
) -> None:
    window.choose_model("talker")
    window.set_number("max_new_tokens", 12)
    window.at("#raw_prompt input").uncheck()
    window.at("#system textarea").fill("")
    window.at("#messages button", "Add an earlier message").click()
    window.at("#messages textarea").fill('My name is {{name}}. "Hi" <b>')
    window.at("#messages button", "Add an earlier message").click()
    window.at("#messages textarea").last.fill("Hello!")
    window.at("#messages").get_by_role("button", name="Move up").last.click()
    window.at("#messages").get_by_role("button", name="Move down").first.click()
    window.at("#messages button", "Begin the answer").click()
    window.at("#begins_with textarea").fill("The {{colour}}")
    window.write("What has {{ Name }}?")
    expect(window.at("#variables label")).to_have_text(["name", "colour"])
    window.at("#variables textarea").first.fill('Ada "\\" {{x}}')
    asked = (
        Message("user", 'My name is Ada "\\" {{x}}. "Hi" <b>'),
        Message("assistant", "Hello!"),
        Message("user", 'What has Ada "\\" {{x}}?'),
        Message("assistant", "The {{colour}}"),
    )
    window.at("#generate").click()
    window.says("#notice", "{{colour}} has no value yet")
    expect(window.at("#notice")).not_to_contain_text("{{x}}")  # a value, in which nothing is filled
    window.at("#variables textarea").last.fill("{{colour}}")
    window.generate()
    assert engine.asked[-1][1] == asked
    window.says("#story .story-answer", "The {{colour}} there was a")
    window.show_code("openai")
    window.says("#request_code", "Hello!")

    window.at("#answer_as label", has_text="Choice").click()
    window.at("#answer_choices textarea").fill("yes\nno")
    window.at("#preset_saving button").first.click()
    window.at("#preset_name input, #preset_name textarea").fill("About Ada")
    window.at("#preset_save").click()
    window.says("#preset_notice .calm", "“About Ada” is saved")
    window.at("#copy_link").click()
    window.says("#copy_notice", "Link copied")
    link = window.page.evaluate("navigator.clipboard.readText()")

    def is_there() -> None:
        window.has_value("#prompt textarea", "What has {{ Name }}?")
        window.has_value("#begins_with textarea", "The {{colour}}")
        window.has_value("#answer_choices textarea", "yes\nno")
        expect(window.at("#messages textarea")).to_have_count(2)
        window.has_value("#variables textarea >> nth=0", 'Ada "\\" {{x}}')
        window.at("#answer_as label", has_text="Text").click()
        window.generate()
        assert engine.asked[-1][1] == asked

    window.go(link)
    window.settle()
    is_there()
    window.choose_model("gpt2-stories")
    window.at("#examples button").first.click()
    window.at("#presets button", has_text="About Ada").click()
    is_there()

    window.at("#preset_saving button").first.click()
    window.at("#preset_delete").click()
    expect(window.at("#presets button", has_text="About Ada")).to_have_count(0)
    window.page.evaluate("() => { Storage.prototype.setItem = () => { throw Error('full') } }")
    window.at("#preset_save").click()
    window.says("#preset_notice .problem", "no room for more presets")
    window.go()


def test_an_option_without_effect_is_switched_off_without_asking_the_server(window: Visit) -> None:
    window.open_more()
    top_p, penalty = (
        window.at(f'#{name} input[type="number"]') for name in ("top_p", "length_penalty")
    )
    window.page.route("**/run/**", lambda route: None)  # the server does not answer
    for temperature, beams in ((0, 1), (0.7, 4), (0, 1), (0.7, 1)):
        window.set_number("temperature", temperature)
        window.set_number("num_beams", beams)
        expect(top_p).to_be_enabled(enabled=temperature > 0)
        expect(penalty).to_be_enabled(enabled=beams > 1)
    window.page.unroute("**/run/**")
