"""The Chat tab, used as a visitor uses it, with an engine that a test leads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from playground.tabs.chat import report
from tests.browser.chat_window import TEXT, ChatWindow
from tests.browser.conftest import CLIPBOARD
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import FakeBackend
from xla_backend import Message

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FIRST, SECOND = "Where is the kite?", "Who has it?"
ANSWER = "there was a"


@pytest.fixture(scope="module")
def staying(site: ApiPage, browser: Browser) -> Iterator[ChatWindow]:
    """A visitor who stays for all of these tests, and has answers of twelve tokens at most."""
    address = f"{site.url}/?tab=chat&max_new_tokens=12"
    window = ChatWindow(browser, address, 1280, 900, permissions=CLIPBOARD)
    yield window
    window.close()


@pytest.fixture
def chat(window: ChatWindow) -> ChatWindow:
    """The same, with a new conversation; earlier ones stand further down in the list."""
    window.open_mode("Chat")
    window.is_at_rest()
    window.write("")
    window.at("#system textarea").fill("")
    window.at("#chat_new").click()
    window.questions_are()
    return window


def test_two_turns_are_told_kept_and_asked_elsewhere(chat: ChatWindow, engine: FakeBackend) -> None:
    chat.at("#system textarea").fill("Answer like a fox.")
    chat.ask(FIRST)
    chat.at(TEXT).fill("Who has it,")
    chat.page.keyboard.press("Shift+Enter")
    chat.page.keyboard.type("now?")
    chat.page.keyboard.press("Enter")
    chat.answers_are(ANSWER, ANSWER)
    chat.questions_are(FIRST, "Who has it, now?")
    chat.draft_is("")
    assert engine.asked[-1][1] == (
        Message("system", "Answer like a fox."),
        Message("user", FIRST),
        Message("assistant", " there was a"),
        Message("user", "Who has it,\nnow?"),
    )
    for line in chat.lines():
        assert all(part in line for part in ("MISS", "TTFT", "TPOT", "3 tokens", "prompt tokens"))
    bars = chat.at("#chat_strip [role=img]")
    expect(bars.locator(".chat-bar")).to_have_count(2)
    below = "([one, other]) => one.getBoundingClientRect().top > other.getBoundingClientRect().top"
    chat.resize(390, 844)
    strip, shown = chat.at("#chat_strip").element_handle(), chat.at("#chat").element_handle()
    assert chat.page.evaluate(below, [strip, shown]), "on a phone it pushes no answer out of sight"
    chat.resize(1280, 900)
    assert str(bars.get_attribute("aria-label")).startswith("TTFT by turn: 1: ")
    chat.listed_as(f"{FIRST}2 turns")
    chat.reload()
    chat.answers_are(ANSWER, ANSWER)

    chat.has_value("#system textarea", "Answer like a fox.")
    chat.open_mode("Your runs")
    rows = chat.at("#history tbody tr")
    rows.nth(1).wait_for()
    rows.first.get_by_role("button", name="Rerun").click()
    chat.says("#history_notice .problem", "several messages")


def test_retry_undo_and_edit(chat: ChatWindow, engine: FakeBackend) -> None:
    chat.ask("Something else")
    chat.edit(0, FIRST)
    chat.questions_are(FIRST)
    chat.answers_are(ANSWER)
    chat.listed_as(f"{FIRST}1 turn")
    chat.ask(SECOND)
    engine.words = (" another",)
    chat.press_message("Retry")
    chat.answers_are(ANSWER, "another")

    # What followed an edited turn stays, in the conversation that it was.
    chat.edit(0, "Another beginning")
    chat.questions_are("Another beginning")
    chat.answers_are("another")
    chat.listed_as("Another beginning1 turn", f"{FIRST}2 turns")
    chat.open_listed(FIRST)
    chat.answers_are(ANSWER, "another")

    chat.press_message("Undo")
    chat.draft_is(SECOND)
    chat.questions_are(FIRST)
    chat.listed_as(f"{FIRST}1 turn", "Another beginning1 turn")


def test_a_conversation_goes_on_from_edited_answers(chat: ChatWindow, engine: FakeBackend) -> None:
    chat.ask(FIRST)
    chat.ask(SECOND)
    edit = chat.at("#chat .chat-edit")
    edit.first.click()
    chat.at("#chat .chat-answer textarea").fill("Not this")
    chat.page.keyboard.press("Escape")
    chat.answers_are(ANSWER, ANSWER)
    edit.first.click()
    chat.at("#chat .chat-answer textarea").fill("In the <b>tree")
    edit.first.click()
    chat.answers_are("In the <b>tree")
    assert "edited" in chat.lines()[0]
    # What followed stays, in the conversation that it was.
    chat.listed_as(f"{FIRST}1 turn", f"{FIRST}2 turns")
    chat.ask(SECOND)
    assert engine.asked[-1][1][1] == Message("assistant", "In the <b>tree")
    chat.listed_as(f"{FIRST}2 turns", f"{FIRST}2 turns")


def test_what_was_written_is_never_lost(chat: ChatWindow, engine: FakeBackend) -> None:
    chat.ask(FIRST)
    chat.write("A draft")
    chat.reload()
    chat.draft_is("A draft")
    # Refused before it began: too long for the model, even alone.
    chat.write("kite " * 60)
    chat.at("#chat_send").click()
    chat.says("#chat_notice .problem", "The model has room for 150 tokens.")
    chat.draft_is("kite " * 60)
    chat.questions_are(FIRST)
    engine.hold("text")
    chat.send(SECOND)
    engine.write(" somewhere")
    expect(chat.at("#chat [data-text]")).to_have_text([ANSWER, "somewhere"])
    chat.at("#chat .caret").wait_for()
    chat.page.keyboard.press("Escape")
    chat.answers_are(ANSWER, "somewhere")
    assert "stopped" in chat.lines()[1]
    # A message may be sent before the page's own field of the salt is filled in.
    salt = chat.page.evaluate("chatBefore()[3]")
    assert len(salt) == 32
    assert chat.page.evaluate("sending(['Hello', '{}', '', 1], [0, 2])") == ["Hello", "{}", salt, 1]


def test_an_answer_cut_by_a_reload_is_asked_again(chat: ChatWindow, engine: FakeBackend) -> None:
    chat.ask(FIRST)
    engine.hold("text")
    chat.send(SECOND)
    engine.write(" somewhere")
    expect(chat.at("#chat [data-text]")).to_have_text([ANSWER, "somewhere"])
    chat.page.evaluate("sending(['Another', '{}', '', 1], [0, 2])")  # is refused meanwhile
    chat.reload()
    engine.release()
    chat.questions_are(FIRST, SECOND)
    chat.answers_are(ANSWER, "somewhere")
    chat.says("#chat .interrupted", "Interrupted")
    chat.draft_is("")
    chat.at(".chat-retry").click()
    chat.answers_are(ANSWER, ANSWER)


def test_when_the_context_is_full_the_page_says_what_goes_before_it_does(chat: ChatWindow) -> None:
    for number in range(2):
        chat.ask(f"{number} " + "kite " * 15)
    chat.write("kite " * 15)
    chat.says("#chat_prediction .chat-left-out", "the oldest 1 turn. The system prompt stays.")
    chat.page.keyboard.press("Enter")
    chat.answers_are(*[ANSWER] * 3)
    assert "the oldest 1 turn not read" in chat.lines()[2]


def test_conversations_are_renamed_deleted_and_brought_back_on_a_phone(chat: ChatWindow) -> None:
    chat.resize(390, 844)
    chat.ask("kite" * 60)
    chat.at("#chat_name input, #chat_name textarea").fill("About a kite")
    chat.page.keyboard.press("Enter")
    chat.listed_as("About a kite1 turn")
    chat.at("#chat_new").click()
    chat.questions_are()
    chat.ask(SECOND)
    chat.listed_as(f"{SECOND}1 turn", "About a kite1 turn")
    chat.open_listed("About a kite")
    chat.questions_are("kite" * 60)
    assert chat.overflow() == 0
    assert chat.at("#chat_send").bounding_box()["width"] > 60  # type: ignore[index]
    chat.at("#chat_delete").click()
    chat.questions_are()
    chat.listed_as(f"{SECOND}1 turn")
    chat.at("#chat_undo_delete").click()
    chat.questions_are("kite" * 60)
    chat.listed_as(f"{SECOND}1 turn", "About a kite1 turn")


def test_two_windows_of_a_browser_have_the_same_conversations(chat: ChatWindow) -> None:
    chat.ask(FIRST)
    other = chat.beside()
    other.listed_as(f"{FIRST}1 turn")
    other.open_listed(FIRST)
    other.ask(SECOND)
    chat.questions_are(FIRST, SECOND)
    chat.page.bring_to_front()
    chat.ask("And now?")
    other.questions_are(FIRST, SECOND, "And now?")
    other.listed_as(f"{FIRST}3 turns")
    other.page.close()


def test_a_file_brings_a_conversation_back_and_a_link_its_beginning(
    chat: ChatWindow, visit: Callable[..., ChatWindow], site: ApiPage, tmp_path: Path
) -> None:
    chat.at("#system textarea").fill("Answer like a fox.")
    chat.ask(FIRST)
    saved = chat.saved("#chat_json")
    assert json.loads(saved)["format"] == "xla-playground-chat"
    markdown = chat.saved("#chat_markdown")
    assert f"## User\n\n{FIRST}" in markdown
    assert ANSWER in markdown
    query = urlencode({"tab": "chat", "prompt": FIRST, "system": "Answer like a fox."})
    other = visit(kind=ChatWindow, address=f"{site.url}/?{query}")
    other.draft_is(FIRST)
    other.has_value("#system textarea", "Answer like a fox.")
    other.questions_are()
    other.open_mode("Playground")
    assert other.at("#prompt textarea").input_value() != FIRST, "the Playground has its own links"
    other.open_mode("Chat")
    for name, text, said in (
        ("picture.json", "GIF89a", "not JSON"),
        ("runs.json", json.dumps({"format": "xla-playground-runs"}), "holds no conversation"),
        ("edited.json", saved.replace('"turns"', '"turn"'), "was it edited"),
        ("chat.json", saved, ""),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        other.bring(tmp_path / name)
        if said:
            other.says("#chat_shelf_notice .problem", said)
            other.questions_are()
    other.questions_are(FIRST)
    other.answers_are(ANSWER)


def test_messages_are_text_and_fetch_nothing(chat: ChatWindow, engine: FakeBackend) -> None:
    url = "http://example.org"
    said = f'<img src="{url}/x.png" onerror="window.hurt=1"> ![a]({url}/y.png) &lt;b&gt; <!-- c -->'
    asked: list[str] = []
    chat.page.on("request", lambda request: asked.append(request.url))
    engine.words = (said,)
    chat.ask(said)
    shown = chat.at('#chat [data-testid="user"]').inner_text()
    assert report.as_written(shown.strip()) == said
    chat.at('#chat button[aria-label="Edit"]').click()
    assert report.as_written(chat.at("#chat .edit-textarea").input_value()) == said
    assert chat.at("#chat img, #chat a").count() == 0
    assert chat.page.evaluate("window.hurt") is None
    assert not [url for url in asked if "example.org" in url]
