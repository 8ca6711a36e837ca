"""One visitor's window on the Chat tab, and what a visitor does there.

Knows the tab's element ids. Must not know what any test expects.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import TimeoutError as NotInTime

from tests.browser.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_TEXTS = "(at) => [...document.querySelectorAll(at)].map((each) => each.innerText.trim())"


class ChatWindow(Visit):
    """A page that was opened on the Chat tab."""

    def __init__(self, browser: Browser, url: str, width: int, **options: Any) -> None:
        super().__init__(browser, url, width, 900, **options)

    def settle(self) -> None:
        """Waits until the tab is built, and the page's first questions are answered."""
        self.at("#chat_text textarea").wait_for()
        self.at("#prediction .prediction:not(.awaited)").wait_for(state="attached")
        self.let_be_filled_in()

    def limit(self, new_tokens: int) -> None:
        """Sets how many tokens an answer may have."""
        field = self.at('#chat_max_new_tokens input[type="number"]')
        if not field.is_visible():
            self.open_more(".chat-columns")
        field.fill(str(new_tokens))
        field.press("Tab")

    def choose(self, model: str) -> None:
        """Picks a model from the list."""
        self.at("#chat_model input").click()
        self.page.get_by_role("option", name=model).click()

    def reload(self) -> None:
        """Loads the page anew."""
        self.go()
        self.settle()
        self.at("#chat_list button, #chat_list .nothing").first.wait_for()

    def write(self, text: str) -> None:
        """Writes a message without sending it."""
        self.at("#chat_text textarea").fill(text)

    def draft(self) -> str:
        """What is written and not sent."""
        return self.at("#chat_text textarea").input_value()

    def draft_is(self, expected: str) -> None:
        """Waits until it is this."""
        self.has_value("#chat_text textarea", expected)

    def ask(self, text: str) -> None:
        """Sends a message and waits for its answer."""
        before = len(self.answers())
        self.write(text)
        self.page.keyboard.press("Enter")
        self.wait_for_answer(before + 1)

    def wait_for_answer(self, number: int) -> None:
        """Waits until an answer, counted from 1, is the last one and is finished."""
        self._wait_until(
            "n => document.querySelectorAll('#chat .chat-copy').length === n"
            " && !document.querySelector('#chat .chat-copy.before')"
            " && !document.querySelector('#chat .caret, #chat .chat-line.busy')"
            " && !document.getElementById('chat_send').disabled",
            number,
        )

    def questions(self) -> list[str]:
        """What the visitor asked."""
        return list(self.page.evaluate(_TEXTS, '#chat [data-testid="user"]'))

    def questions_are(self, expected: list[str]) -> None:
        """Waits until these stand there."""
        self._wait_until(
            f"expected => JSON.stringify(({_TEXTS})('#chat [data-testid=\"user\"]')) === expected",
            _json(expected),
        )

    def answers(self) -> list[str]:
        """What the model wrote."""
        return list(
            self.page.evaluate(
                "[...document.querySelectorAll('#chat [data-text]')].map((e) => e.dataset.text)"
            )
        )

    def answers_are(self, expected: list[str]) -> None:
        """Waits until these stand there."""
        self._wait_until(
            "expected => JSON.stringify([...document.querySelectorAll('#chat [data-text]')]"
            ".map((e) => e.dataset.text)) === expected",
            _json(expected),
        )

    def lines(self) -> list[str]:
        """What stands under each answer."""
        return list(self.page.evaluate(_TEXTS, "#chat .chat-line"))

    def retry(self) -> None:
        """Asks the last question again and waits for its answer."""
        answers = len(self.answers())
        self._mark_last()
        self.press_message("Retry")
        self.wait_for_answer(answers)

    def press_message(self, name: str) -> None:
        """Presses the last of the buttons of that name beside a message."""
        self.at(f'#chat button[aria-label="{name}"]').last.click()

    def edit(self, number: int, text: str) -> None:
        """Edits a question, counted from 0, and waits for the answer."""
        self.at('#chat button[aria-label="Edit"]').nth(number).click()
        self.at("#chat .edit-textarea").fill(text)
        self._mark_last()
        self.at('#chat button[aria-label="Submit"]').click()
        self._wait_until(
            f"said => ({_TEXTS})('#chat [data-testid=\"user\"]').at(-1) === said", text
        )
        self.wait_for_answer(number + 1)

    def _mark_last(self) -> None:
        """So that an answer that is asked for again is not taken for the new one."""
        self.at("#chat .chat-copy").last.evaluate("button => button.classList.add('before')")

    def listed_as(self, *expected: str) -> None:
        """Waits until the list says that."""
        self._wait_until(
            f"expected => JSON.stringify(({_TEXTS})('#chat_list button')) === expected",
            _json(list(expected)),
        )

    def open_listed(self, name: str) -> None:
        """Opens a conversation of the list."""
        self.at("#chat_list button", has_text=name).click()
        self.at("#chat_list button[aria-current]", has_text=name).wait_for()

    def saved(self, button: str) -> str:
        """What a button saves as a file."""
        with self.page.expect_download() as download:
            self.at(button).click()
        return Path(download.value.path()).read_text(encoding="utf-8")

    def is_refused(self, file: Path) -> str:
        """What is said of a file that cannot be imported."""
        said = self.at("#chat_shelf_notice .problem")
        for earlier in said.all():
            earlier.evaluate("notice => notice.classList.add('before')")
        self.bring(file)
        self.at("#chat_shelf_notice .problem:not(.before)").wait_for()
        return said.inner_text()

    def _wait_until(self, script: str, arg: object) -> None:
        """Waits until a script says so of the page; where it never does, says what is there."""
        try:
            self.page.wait_for_function(script, arg=arg)
        except NotInTime as error:
            parts = ("#status", "#chat_notice", "#chat", "#chat_list")
            shown = {part: self.text(part) for part in parts} | {"answers": self.answers()}
            raise AssertionError(f"it never came to {arg!r}; the page shows {shown}") from error

    def bring(self, file: Path) -> None:
        """Imports a file."""
        with self.page.expect_file_chooser() as chooser:
            self.at("#chat_import").click()
        chooser.value.set_files(file)


def _json(texts: list[str]) -> str:
    """As JavaScript writes it."""
    return json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
