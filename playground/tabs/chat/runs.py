"""One turn of a chat, from the click to what becomes of the conversation.

Knows which question it is of which conversation. Must not know components or HTML.
"""

from playground.context.runs import TextRun
from playground.tabs.chat.conversation import Conversation, Figures, Turn


class ChatRun(TextRun):
    """One question.

    Attributes:
        conversation: what was there before the question; with the options of this turn.
        question: what was asked.
        left_out: turns at the beginning that are not read.
    """

    def __init__(
        self, conversation: Conversation, question: str, left_out: int, cache_salt: str
    ) -> None:
        super().__init__(
            conversation.model,
            conversation.messages(question, left_out),
            conversation.options,
            cache_salt=cache_salt,
        )
        self.conversation = conversation
        self.question = question
        self.left_out = left_out

    def after(self) -> Conversation | None:
        """The conversation with this turn; None where nothing was written before an error."""
        result = self.result
        if result is None and not self.text:
            return None
        figures = Figures.of(result, bool(self.cache_salt), self.left_out) if result else None
        turn = Turn(self.question, result.text if result else self.text, figures)
        return self.conversation.after(turn, self.left_out)
