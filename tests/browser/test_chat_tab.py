"""The Chat tab with a real engine, as a visitor uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from playground.chat import panel
from playground.ui.markup import clean
from tests import checkpoints
from tests.browser.chat_window import ChatWindow
from tests.playground.served import Served, children, serve, slowed
from xla_backend import Backend, GenerationOptions, Message, question

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NEW_TOKENS = 12
MANY_TOKENS = 256
FIRST, SECOND = "Where is the kite?", "Who has it?"

Open = Callable[..., ChatWindow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.instruct(tmp_path_factory.mktemp("models") / "talker")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes a second for an answer, to be stopped in."""
    large = {"hidden_size": 512, "intermediate_size": 1536, "head_dim": 64}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8}
    folder = tmp_path_factory.mktemp("models") / "slow-talker"
    return checkpoints.instruct(folder, num_hidden_layers=6, **large, **heads)


@pytest.fixture(scope="module")
def served(folder: Path, slow: Path, small_gpt2: Path) -> Iterator[Served]:
    served = serve("--models", f"{small_gpt2},{folder},{slow}", "--no-store")
    yield served
    served.end()


@pytest.fixture
def chat(served: Served, browser: Browser) -> Iterator[Open]:
    """Opens the tab as a new visitor; afterwards the console must be without errors."""
    windows: list[ChatWindow] = []

    def opened(
        query: str = "", width: int = 1280, new_tokens: int = NEW_TOKENS, **options: object
    ) -> ChatWindow:
        windows.append(ChatWindow(browser, f"{served.url}/?tab=chat{query}", width, **options))
        windows[-1].limit(new_tokens)
        return windows[-1]

    yield opened
    complaints = [complaint for each in windows for complaint in each.complaints]
    for each in windows:
        each.close()
    assert complaints == []


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """The library, in this process."""
    backend = Backend(store="off")
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def endless(backend: Backend, slow: Path) -> str:
    """A question whose answer the model does not end by itself."""
    options = GenerationOptions(max_new_tokens=MANY_TOKENS)
    questions = [f"Tell story {number}." for number in range(20)]
    return next(
        each
        for each in questions
        if backend.generate(str(slow), question(each), options).finish == "length"
    )


@pytest.fixture(scope="module")
def expected(backend: Backend, folder: Path) -> tuple[str, str]:
    """What the library answers to the two questions, as a page can show it."""
    options = GenerationOptions(max_new_tokens=NEW_TOKENS)
    first = backend.generate(str(folder), question(FIRST), options).text
    talk = (*question(FIRST), Message("assistant", first), Message("user", SECOND))
    second = backend.generate(str(folder), talk, options).text
    return clean(first), clean(second)


def test_two_turns_answer_what_the_library_answers_and_are_there_after_a_reload(
    chat: Open, expected: tuple[str, str]
) -> None:
    window = chat()
    window.has_value("#chat_model input", re.compile("talker"))  # GPT-2 has no chat template
    window.ask(FIRST)
    window.ask(SECOND)
    assert window.questions() == [FIRST, SECOND]
    window.answers_are(list(expected))
    for line in window.lines():
        assert line.split()[0] in ("HIT", "MISS", "DISK", "REUSED")
        assert all(part in line for part in ("TTFT", "TPOT", "12 tokens", "prompt tokens"))
    reused = [int(line.partition("reused ")[2].split()[0]) for line in window.lines()]
    assert reused[1] > 0, "what the first turn computed"
    bars = window.at("#chat_strip [role=img]")
    assert bars.locator(".chat-bar").count() == 2
    assert str(bars.get_attribute("aria-label")).startswith("TTFT by turn: 1: ")
    window.listed_as(f"{FIRST}\n2 turns")
    window.reload()
    window.answers_are(list(expected))
    window.ask("And now?")
    assert len(window.answers()) == 3


def test_answers_join_the_history(chat: Open) -> None:
    window = chat()
    window.ask(FIRST)
    window.ask(SECOND)
    window.open_tab("Playground")
    rows = window.at("#history tbody tr")
    rows.nth(1).wait_for()
    rows.first.get_by_role("button", name="Rerun").click()
    window.at("#history_notice .problem", has_text="a later turn of a chat").wait_for()


def test_retry_undo_and_edit(chat: Open, expected: tuple[str, str]) -> None:
    window = chat()
    window.ask("Something else")
    window.edit(0, FIRST)
    window.answers_are([expected[0]])
    assert window.questions() == [FIRST]
    window.listed_as(f"{FIRST}\n1 turn")
    window.ask(SECOND)
    window.retry()
    window.answers_are(list(expected))

    # What followed an edited turn stays, in the conversation that it was.
    window.edit(0, "Another beginning")
    assert window.questions() == ["Another beginning"]
    window.listed_as("Another beginning\n1 turn", f"{FIRST}\n2 turns")
    window.open_listed(FIRST)
    window.answers_are(list(expected))

    window.press_message("Undo")
    window.draft_is(SECOND)
    assert window.questions() == [FIRST]
    window.listed_as(f"{FIRST}\n1 turn", "Another beginning\n1 turn")


def test_stop_keeps_what_was_written(chat: Open, served: Served, endless: str) -> None:
    window = chat(new_tokens=MANY_TOKENS)
    window.choose("slow-talker")
    window.ask(FIRST)  # makes the function
    window.at("#chat_new").click()
    window.questions_are([])
    [engine] = children(served.process.pid)
    with slowed(engine):
        window.write(endless)
        window.page.keyboard.press("Enter")
        window.at("#chat .caret").wait_for()
        window.page.keyboard.press("Escape")
        window.wait_for_answer(1)
    [line] = window.lines()
    assert "stopped" in line, line
    assert window.answers() != [""]


def test_what_was_written_is_never_lost(chat: Open) -> None:
    window = chat()
    window.write("A draft")
    window.reload()
    window.draft_is("A draft")
    # Refused before it began: too long for the model, even alone.
    window.write("kite " * 600)
    window.at("#chat_send").click()
    window.at("#chat_notice .problem", has_text="too long").wait_for()
    assert window.draft() == "kite " * 600
    assert window.questions() == []


def test_when_the_context_is_full_the_page_says_what_goes_before_it_does(chat: Open) -> None:
    window = chat()
    for number in range(2):
        window.ask(f"{number} " + "kite " * 200)
    window.write("kite " * 200)
    note = window.at("#chat_prediction .chat-left-out")
    note.wait_for()
    assert "The system prompt stays" in note.inner_text()
    window.page.keyboard.press("Enter")
    window.wait_for_answer(3)
    assert "not read" in window.lines()[2]
    assert len(window.questions()) == 3, "the visitor still sees all of it"


def test_conversations_are_renamed_deleted_and_brought_back(chat: Open) -> None:
    window = chat()
    window.ask(FIRST)
    window.at("#chat_name input, #chat_name textarea").fill("About a kite")
    window.page.keyboard.press("Enter")
    window.listed_as("About a kite\n1 turn")
    window.at("#chat_new").click()
    window.questions_are([])
    window.ask(SECOND)
    window.listed_as(f"{SECOND}\n1 turn", "About a kite\n1 turn")
    window.open_listed("About a kite")
    assert window.questions() == [FIRST]
    window.at("#chat_delete").click()
    window.questions_are([])
    window.listed_as(f"{SECOND}\n1 turn")
    window.at("#chat_undo_delete").click()
    window.questions_are([FIRST])
    window.listed_as(f"{SECOND}\n1 turn", "About a kite\n1 turn")


def test_without_reuse_nothing_is_reused(chat: Open) -> None:
    window = chat()
    window.ask(FIRST)
    window.at("#chat_without_reuse input").check()
    window.ask(SECOND)
    assert "without reuse" in window.lines()[1]
    assert window.at("#chat_strip .chat-bar .without-reuse").count() == 1


def test_a_message_that_is_sent_before_the_page_is_loaded_is_reused_too(chat: Open) -> None:
    window = chat()
    salt = window.page.evaluate("chatBefore()[3]")
    assert len(salt) == 32
    assert window.page.evaluate("sending(['Hello', '{}', '', 1])") == ["Hello", "{}", salt, 1]


def test_two_windows_of_a_browser_have_the_same_conversations(chat: Open) -> None:
    window = chat()
    window.ask(FIRST)
    other = chat(beside=window)
    other.listed_as(f"{FIRST}\n1 turn")
    other.open_listed(FIRST)
    other.ask(SECOND)
    window.questions_are([FIRST, SECOND])
    window.ask("And now?")
    other.questions_are([FIRST, SECOND, "And now?"])
    other.listed_as(f"{FIRST}\n3 turns")


def test_a_file_brings_a_conversation_back_and_others_are_refused(
    chat: Open, tmp_path: Path
) -> None:
    window = chat()
    window.ask(FIRST)
    answers = window.answers()
    saved = window.saved("#chat_json")
    content = json.loads(saved)
    assert content["format"] == "xla-playground-chat"
    markdown = window.saved("#chat_markdown")
    assert f"## User\n\n{FIRST}" in markdown
    assert answers[0] in markdown

    other = chat()
    for name, text in (
        ("picture.json", "GIF89a"),
        ("runs.json", json.dumps({"format": "xla-playground-runs"})),
        ("edited.json", saved.replace('"turns"', '"turn"')),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert "othing was changed" in other.is_refused(tmp_path / name)
        assert other.questions() == []
    (tmp_path / "chat.json").write_text(saved, encoding="utf-8")
    other.bring(tmp_path / "chat.json")
    other.questions_are([FIRST])
    other.answers_are(answers)


def test_a_link_carries_settings_and_the_first_message(chat: Open) -> None:
    window = chat()
    window.at("#chat_system textarea").fill("Answer like a fox.")
    window.ask(FIRST)
    window.ask(SECOND)
    window.page.evaluate(
        "() => { window.copied = async (text) => { window.link = text; return true; }; }"
    )
    window.at("#chat_copy_link").click()
    window.at("#chat_link_notice .calm").wait_for()
    link = str(window.page.evaluate("window.link"))
    other = chat(link.partition("?tab=chat")[2])
    other.draft_is(FIRST)
    other.has_value("#chat_system textarea", "Answer like a fox.")
    assert other.questions() == []
    assert other.at("#prompt textarea").input_value() != FIRST, "the Playground has its own links"


def test_open_in_playground(chat: Open, expected: tuple[str, str]) -> None:
    window = chat()
    window.at("#chat_system textarea").fill("Answer like a fox.")
    window.ask(FIRST)
    window.at("#chat_to_playground").click()
    window.at("#prompt textarea").wait_for()
    window.has_value("#prompt textarea", FIRST)
    window.has_value("#system textarea", "Answer like a fox.")
    window.has_value("#model input", re.compile("talker"))
    window.page.wait_for_url("**tab=playground**")


def test_keys(chat: Open) -> None:
    window = chat()
    window.at("#chat_text textarea").fill("One line")
    window.page.keyboard.press("Shift+Enter")
    window.page.keyboard.type("another")
    assert window.draft() == "One line\nanother"
    window.page.keyboard.press("Enter")
    window.wait_for_answer(1)
    assert window.questions() == ["One line\nanother"]
    assert window.draft() == ""


def test_what_was_said_is_text_and_nothing_is_fetched(chat: Open) -> None:
    window = chat()
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url))
    url = "http://example.org"
    said = f'<img src="{url}/x.png" onerror="window.hurt=1"> ![a]({url}/y.png) &lt;b&gt; <!-- c -->'
    window.ask(said)
    assert [panel.as_written(each) for each in window.questions()] == [said]
    window.at('#chat button[aria-label="Edit"]').click()
    shown = window.at("#chat .edit-textarea").input_value()
    assert panel.as_written(shown) == said
    assert window.at("#chat img, #chat a").count() == 0
    assert window.page.evaluate("window.hurt") is None
    assert not [url for url in asked if "example.org" in url]


def test_a_phone_shows_it_without_scrolling_sideways(chat: Open) -> None:
    window = chat(width=390)
    window.ask("kite" * 60)
    window.ask(SECOND)
    assert window.overflow() == 0
    assert window.at("#chat_send").bounding_box()["width"] > 60  # type: ignore[index]
