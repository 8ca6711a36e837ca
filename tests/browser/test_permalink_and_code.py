"""A request as a link, as code and as a preset, used as a visitor uses them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.visit import Visit
from tests.playground.served import Site

Open = Callable[..., Visit]
PROMPT = 'It\'s "here" & there: 100% + $x\nnaïve 🦊 <b onclick=1>'


def has_number(window: Visit, option: str, value: float) -> None:
    """Waits until an option has a value."""
    window.has_value(f'#{option} input[type="number"]', str(value))


def wait_for_text(window: Visit, selector: str, text: str) -> None:
    window.page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
        arg=[selector, text],
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_a_copied_link_brings_everything_back_and_runs_only_when_told(
    visit: Open, site: Site, width: int
) -> None:
    window = visit(width, 844, permissions=["clipboard-read", "clipboard-write"])
    window.choose_model("slow-gpt2")
    window.write(PROMPT)
    window.set_number("num_beams", 2)
    window.open_more()
    window.at("#early_stopping label", has_text="impossible").click()
    window.set_number("repetition_penalty", 1.35)
    window.set_number("presence_penalty", -1.2)
    window.at("#stop_strings textarea").fill("no such\n\\n\\n")
    window.at("#exact_key input").check()
    window.set_number("max_new_tokens", 5)
    wait_for_text(window, "#prediction", "2 beams · 16 new")
    window.at("#copy_link").click()
    wait_for_text(window, "#copy_notice", "Link copied")
    link = window.page.evaluate("navigator.clipboard.readText()")
    query = parse_qs(urlsplit(link).query, keep_blank_values=True)
    assert query["prompt"] == [PROMPT]
    assert query["early_stopping"] == ["never"]
    assert query["stop"] == ["no such\n\\n\\n"]
    assert len(query) == 17, "every setting"
    window.at("#link_runs input").check()
    window.at("#copy_link").click()
    wait_for_text(window, "#copy_notice", "and runs them")
    running = window.page.evaluate("navigator.clipboard.readText()")
    assert running == f"{link}&run=true"

    for run in (False, True):
        window.go(running if run else link)
        wait_for_text(window, "#prediction", "2 beams")
        window.has_value("#prompt textarea", PROMPT)
        window.has_value("#model input", re.compile("slow-gpt2"))
        has_number(window, "max_new_tokens", 5)
        has_number(window, "num_beams", 2)
        window.open_more()
        has_number(window, "repetition_penalty", 1.35)
        has_number(window, "presence_penalty", -1.2)
        window.has_value("#stop_strings textarea", "no such\n\\n\\n")
        window.has_value("#early_stopping input:checked", "impossible")
        expect(window.at("#exact_key input")).to_be_checked()
        if not run:
            window.page.wait_for_timeout(500)
            assert window.at("#generate").is_enabled()
            assert window.at("#report .badge").count() == 0
    window.page.locator("#report .figures").wait_for()
    assert window.text("#story .story-prompt") == PROMPT
    assert window.text("#link_notice").strip() == ""
    assert window.overflow() == 0


def test_a_bad_link_is_told_and_the_rest_is_used(visit: Open, site: Site) -> None:
    window = visit()
    query = {"prompt": "The fox", "num_beams": "99", "<img src=x onerror=alert(1)>": "1"}
    window.go(f"{site.url}/?{urlencode({**query, 'run': '1'})}")
    wait_for_text(window, "#link_notice", "num_beams must be from 1 to 8")
    reported = window.text("#link_notice")
    assert "<img src=x onerror=alert(1)>" in reported
    assert "Nothing was run" in reported
    assert window.at("#link_notice img").count() == 0
    window.has_value("#prompt textarea", "The fox")
    assert window.at("#report .figures").count() == 0
    window.generate()
    assert window.text("#link_notice").strip() == ""


def test_the_code_follows_the_request_and_presets_set_options_only(visit: Open) -> None:
    window = visit()
    window.write(PROMPT)
    window.at("#presets button", has_text="4 beams").click()
    window.page.wait_for_function(
        """document.querySelector('#num_beams input[type="number"]')?.value === '4'"""
    )
    has_number(window, "temperature", 0)
    window.has_value("#prompt textarea", PROMPT)
    window.at("#view_code button").first.click()
    wait_for_text(window, "#request_code", "num_beams=4")
    assert "tf.function(model.generate, jit_compile=True)" in window.text("#request_code")
    for form, sign in (
        ("This library", "backend.generate("),
        ("openai", "client.completions.create("),
        ("gradio_client", 'api_name="/generate"'),
    ):
        window.at("#code_form label", has_text=form).click()
        wait_for_text(window, "#request_code", sign)
        code = "\n".join(window.at("#request_code .cm-line").all_inner_texts())
        texts = [n.value for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Constant)]
        assert PROMPT in texts
        assert 4 in texts
    window.at("#code_form label", has_text="curl").click()
    wait_for_text(window, "#request_code", "/v1/completions")
    assert window.page.url.rstrip("/") in window.text("#request_code")

    window.at("#presets button", has_text="Show a first call").click()
    window.page.wait_for_function("document.querySelector('#exact_key input')?.checked")
    window.at("#prediction .outcome-miss").wait_for()
    has_number(window, "num_beams", 4)  # only the number of new tokens had to change
    window.at("#presets button", has_text="Greedy").click()
    window.page.wait_for_function("document.querySelector('#exact_key input')?.checked === false")
    has_number(window, "num_beams", 1)


def test_what_was_written_survives_a_reload(visit: Open, site: Site) -> None:
    window = visit()
    window.write("Half a thought")
    window.choose_model("slow")
    window.set_number("max_new_tokens", 11)
    window.open_more()
    window.set_number("temperature", 0.6)
    window.at("#hold input:enabled").check()
    window.set_number("seed", 77)
    window.page.wait_for_function(
        "JSON.parse(sessionStorage.getItem('xla-playground-request') ?? '[]').includes(77)"
    )
    address = window.page.url

    def is_as_written() -> None:
        window.settle()
        window.has_value("#prompt textarea", "Half a thought")
        window.has_value("#model input", re.compile("slow"))
        has_number(window, "max_new_tokens", 11)
        has_number(window, "temperature", 0.6)
        window.open_more()
        window.has_value("#seed input", "77")
        expect(window.at("#hold input")).to_be_checked()

    window.go()
    is_as_written()
    window.go(address)  # typed anew
    is_as_written()
    window.go(f"{address}?prompt=Of+a+link")
    window.settle()
    window.has_value("#prompt textarea", "Of a link")
    window.write("Of a link, changed")
    window.page.wait_for_function(
        "(sessionStorage.getItem('xla-playground-request') ?? '').includes('changed')"
    )
    window.go()
    window.has_value("#prompt textarea", "Of a link, changed")
    assert visit().at("#prompt textarea").input_value() != "Half a thought", "by window"


def test_what_the_browser_kept_of_a_request_may_be_anything(visit: Open) -> None:
    window = visit()
    before = window.at("#prompt textarea").input_value()
    for kept in ("{", "[1, 2]", "null", '["a"]'):
        window.page.evaluate(
            "(kept) => sessionStorage.setItem('xla-playground-request', kept)", kept
        )
        window.go()
        window.settle()
        assert window.at("#prompt textarea").input_value() == before
        assert not window.at("#notice .problem, #link_notice .problem").count()
