"""One visitor's window on Chat, and what a visitor does there.

Knows its element ids. Must not know what any test expects.
"""

from pathlib import Path

from playwright.sync_api import expect

from tests.browser.visit import Visit

TEXT = "#chat_text textarea"


class ChatWindow(Visit):
    """A page that was opened on Chat."""

    def settle(self) -> None:
        """Waits until the mode is built, and the page's first questions are answered."""
        self.at(TEXT).wait_for()
        self.at("#chat_list button, #chat_list .nothing").first.wait_for()
        self.let_be_filled_in()

    def reload(self) -> None:
        """Loads the page anew."""
        self.go()
        self.settle()

    def write(self, text: str) -> None:
        """Writes a message without sending it."""
        self.at(TEXT).fill(text)

    def draft_is(self, expected: str) -> None:
        """Waits until it is this."""
        self.has_value(TEXT, expected)

    def send(self, text: str) -> None:
        """Sends a message."""
        self.write(text)
        self.page.keyboard.press("Enter")

    def ask(self, text: str) -> None:
        """Sends a message and waits for its answer."""
        answers = self.at("#chat .chat-copy").count()
        self.send(text)
        expect(self.at("#chat .chat-copy")).to_have_count(answers + 1)
        self.is_at_rest()

    def is_at_rest(self) -> None:
        """Waits until no answer is being written."""
        expect(self.at("#chat .caret, #chat .chat-line.busy")).to_have_count(0)
        expect(self.at("#chat_send")).to_be_enabled()

    def questions_are(self, *expected: str) -> None:
        """Waits until the visitor has asked these."""
        expect(self.at('#chat [data-testid="user"]')).to_have_text(expected)

    def answers_are(self, *expected: str) -> None:
        """Waits until the model has written these, and writes no more."""
        expect(self.at("#chat [data-text]")).to_have_text(expected)
        self.is_at_rest()

    def lines(self) -> list[str]:
        """What stands under each answer."""
        return self.at("#chat .chat-line").all_inner_texts()

    def press_message(self, name: str) -> None:
        self.at(f'#chat button[aria-label="{name}"]').last.click()

    def edit(self, number: int, text: str) -> None:
        """Edits a question, counted from 0."""
        self.at('#chat button[aria-label="Edit"]').nth(number).click()
        self.at("#chat .edit-textarea").fill(text)
        self.at('#chat button[aria-label="Submit"]').click()

    def listed_as(self, *expected: str) -> None:
        """Waits until the list begins so."""
        for place, said in enumerate(expected):
            expect(self.at("#chat_list button").nth(place)).to_have_text(said)

    def open_listed(self, name: str) -> None:
        self.at("#chat_list button", name).first.click()
        self.at("#chat_list button[aria-current]", name).wait_for()

    def bring(self, file: Path) -> None:
        """Imports a file."""
        with self.page.expect_file_chooser() as chooser:
            self.at("#chat_import").click()
        chooser.value.set_files(file)
