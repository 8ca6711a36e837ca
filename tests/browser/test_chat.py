"""The Chat tab, used as a visitor uses it, with an engine that a test leads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from playground.chat import panel
from tests.browser.chat_window import TEXT, ChatWindow
from tests.browser.visit import Visit
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import FakeBackend
from xla_backend import Message

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FIRST, SECOND = "Where is the kite?", "Who has it?"
ANSWER = "there was a"

Open = Callable[..., ChatWindow]


@pytest.fixture
def chat(
    site: ApiPage, engine: FakeBackend, browser: Browser, opened: Callable[[Visit], Visit]
) -> Open:
    """Opens the tab as a new visitor, for answers of twelve tokens at most."""

    def open_tab(query: str = "", width: int = 1280, **options: object) -> ChatWindow:
        url = f"{site.url}/?tab=chat&max_new_tokens=12{query}"
        window = ChatWindow(browser, url, width, 900, **options)
        opened(window)
        return window

    return open_tab


def test_two_turns_are_told_kept_and_asked_elsewhere(chat: Open, engine: FakeBackend) -> None:
    window = chat()
    window.at("#chat_system textarea").fill("Answer like a fox.")
    window.ask(FIRST)
    window.at(TEXT).fill("Who has it,")
    window.page.keyboard.press("Shift+Enter")
    window.page.keyboard.type("now?")
    window.page.keyboard.press("Enter")
    window.answers_are(ANSWER, ANSWER)
    window.questions_are(FIRST, "Who has it, now?")
    window.draft_is("")
    assert engine.asked[-1][1] == (
        Message("system", "Answer like a fox."),
        Message("user", FIRST),
        Message("assistant", " there was a"),
        Message("user", "Who has it,\nnow?"),
    )
    for line in window.lines():
        assert all(part in line for part in ("MISS", "TTFT", "TPOT", "3 tokens", "prompt tokens"))
    bars = window.at("#chat_strip [role=img]")
    expect(bars.locator(".chat-bar")).to_have_count(2)
    assert str(bars.get_attribute("aria-label")).startswith("TTFT by turn: 1: ")
    window.listed_as(f"{FIRST}2 turns")
    window.reload()
    window.answers_are(ANSWER, ANSWER)

    window.at("#chat_to_playground").click()
    window.has_value("#prompt textarea", "Who has it,\nnow?")
    window.has_value("#system textarea", "Answer like a fox.")
    window.page.wait_for_url("**tab=playground**")
    rows = window.at("#history tbody tr")
    expect(rows).to_have_count(2)
    rows.first.get_by_role("button", name="Rerun").click()
    window.says("#history_notice .problem", "a later turn of a chat")


def test_retry_undo_and_edit(chat: Open, engine: FakeBackend) -> None:
    window = chat()
    window.ask("Something else")
    window.edit(0, FIRST)
    window.questions_are(FIRST)
    window.answers_are(ANSWER)
    window.listed_as(f"{FIRST}1 turn")
    window.ask(SECOND)
    engine.words = (" another",)
    window.press_message("Retry")
    window.answers_are(ANSWER, "another")

    # What followed an edited turn stays, in the conversation that it was.
    window.edit(0, "Another beginning")
    window.questions_are("Another beginning")
    window.answers_are("another")
    window.listed_as("Another beginning1 turn", f"{FIRST}2 turns")
    window.open_listed(FIRST)
    window.answers_are(ANSWER, "another")

    window.press_message("Undo")
    window.draft_is(SECOND)
    window.questions_are(FIRST)
    window.listed_as(f"{FIRST}1 turn", "Another beginning1 turn")


def test_what_was_written_is_never_lost(chat: Open, engine: FakeBackend) -> None:
    window = chat()
    window.write("A draft")
    window.reload()
    window.draft_is("A draft")
    # Refused before it began: too long for the model, even alone.
    window.write("kite " * 60)
    window.at("#chat_send").click()
    window.says("#chat_notice .problem", "The model has room for 150 tokens.")
    window.draft_is("kite " * 60)
    window.questions_are()
    engine.hold("text")
    window.send(FIRST)
    engine.write(" there")
    window.says("#chat [data-text]", "there")
    window.at("#chat .caret").wait_for()
    window.page.keyboard.press("Escape")
    window.answers_are("there")
    assert "stopped" in window.lines()[0]
    # A message may be sent before the page's own field of the salt is filled in.
    salt = window.page.evaluate("chatBefore()[3]")
    assert len(salt) == 32
    assert window.page.evaluate("sending(['Hello', '{}', '', 1])") == ["Hello", "{}", salt, 1]


def test_when_the_context_is_full_the_page_says_what_goes_before_it_does(chat: Open) -> None:
    window = chat()
    for number in range(2):
        window.ask(f"{number} " + "kite " * 15)
    window.write("kite " * 15)
    window.says("#chat_prediction .chat-left-out", "the oldest 1 turn. The system prompt stays.")
    window.page.keyboard.press("Enter")
    window.answers_are(*[ANSWER] * 3)
    assert "the oldest 1 turn not read" in window.lines()[2]


def test_conversations_are_renamed_deleted_and_brought_back_on_a_phone(chat: Open) -> None:
    window = chat(width=390)
    window.ask("kite" * 60)
    window.at("#chat_name input, #chat_name textarea").fill("About a kite")
    window.page.keyboard.press("Enter")
    window.listed_as("About a kite1 turn")
    window.at("#chat_new").click()
    window.questions_are()
    window.ask(SECOND)
    window.listed_as(f"{SECOND}1 turn", "About a kite1 turn")
    window.open_listed("About a kite")
    window.questions_are("kite" * 60)
    assert window.overflow() == 0
    assert window.at("#chat_send").bounding_box()["width"] > 60  # type: ignore[index]
    window.at("#chat_delete").click()
    window.questions_are()
    window.listed_as(f"{SECOND}1 turn")
    window.at("#chat_undo_delete").click()
    window.questions_are("kite" * 60)
    window.listed_as(f"{SECOND}1 turn", "About a kite1 turn")


def test_two_windows_of_a_browser_have_the_same_conversations(chat: Open) -> None:
    window = chat()
    window.ask(FIRST)
    other = chat(beside=window)
    other.listed_as(f"{FIRST}1 turn")
    other.open_listed(FIRST)
    other.ask(SECOND)
    window.questions_are(FIRST, SECOND)
    window.page.bring_to_front()
    window.ask("And now?")
    other.questions_are(FIRST, SECOND, "And now?")
    other.listed_as(f"{FIRST}3 turns")


def test_a_file_brings_a_conversation_back_and_a_link_its_beginning(
    chat: Open, tmp_path: Path
) -> None:
    window = chat()
    window.at("#chat_system textarea").fill("Answer like a fox.")
    window.ask(FIRST)
    saved = window.saved("#chat_json")
    assert json.loads(saved)["format"] == "xla-playground-chat"
    markdown = window.saved("#chat_markdown")
    assert f"## User\n\n{FIRST}" in markdown
    assert ANSWER in markdown
    window.page.evaluate(
        "() => { window.copied = async (text) => { window.link = text; return true; }; }"
    )
    window.at("#chat_copy_link").click()
    window.at("#chat_link_notice .calm").wait_for()
    link = str(window.page.evaluate("window.link"))

    other = chat(link.partition("?tab=chat")[2])
    other.draft_is(FIRST)
    other.has_value("#chat_system textarea", "Answer like a fox.")
    other.questions_are()
    assert other.at("#prompt textarea").input_value() != FIRST, "the Playground has its own links"
    for name, text, said in (
        ("picture.json", "GIF89a", "not JSON"),
        ("runs.json", json.dumps({"format": "xla-playground-runs"}), "holds no conversation"),
        ("edited.json", saved.replace('"turns"', '"turn"'), "othing was changed"),
        ("chat.json", saved, ""),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        other.bring(tmp_path / name)
        if said:
            other.says("#chat_shelf_notice .problem", said)
            other.questions_are()
    other.questions_are(FIRST)
    other.answers_are(ANSWER)


def test_what_was_said_is_text_and_nothing_is_fetched(chat: Open, engine: FakeBackend) -> None:
    url = "http://example.org"
    said = f'<img src="{url}/x.png" onerror="window.hurt=1"> ![a]({url}/y.png) &lt;b&gt; <!-- c -->'
    window = chat()
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url))
    engine.words = (said,)
    window.ask(said)
    shown = window.at('#chat [data-testid="user"]').inner_text()
    assert panel.as_written(shown.strip()) == said
    window.at('#chat button[aria-label="Edit"]').click()
    assert panel.as_written(window.at("#chat .edit-textarea").input_value()) == said
    assert window.at("#chat img, #chat a").count() == 0
    assert window.page.evaluate("window.hurt") is None
    assert not [url for url in asked if "example.org" in url]
