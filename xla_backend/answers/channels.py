"""`Channels`: answers that are messages in channels, as GPT-OSS writes them.

Knows the format, OpenAI's "harmony" (docs/format.md of github.com/openai/harmony). Must not know
tokenizers: they say which of its tokens a model wrote, so that text that spells one stays text.
"""

from __future__ import annotations

import re

from xla_backend.answers.tool_format import CHANNELS
from xla_backend.interface.prompt import THOUGHTS, THOUGHTS_END

MARKS = {
    "<|channel|>": "\x01",
    "<|message|>": "\x02",
    "<|start|>": "\x03",
    "<|end|>": "\x04",
    "<|constrain|>": "\x05",
}
"""Tokens, and what stands for them in grammars: characters that no JSON contains."""
ENDS = frozenset({"<|call|>", "<|return|>"})
"""Tokens that end an answer."""
TOKENS = ENDS | MARKS.keys()

_CHANNEL = re.compile(r"<\|channel\|>\s*([a-z]*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]*)")
_FUNCTION = re.compile(r"\bfunctions\.([A-Za-z0-9_.-]+)")
_TYPE = re.compile(r"<\|constrain\|>\s*\w*")
ROLE = "assistant"


def written(text: str) -> str:
    """A text of the format as in grammars, where tokens that end an answer have no text."""
    for token, mark in (*MARKS.items(), *((end, "") for end in ENDS)):
        text = text.replace(token, mark)
    return text


class Channels:
    """Rewrites an answer as it comes: thoughts as Qwen3 marks them, then text, then calls.

    Thoughts behind text are left out: no protocol has a place for them. A message to anyone but a
    function is a thought, because no such tool was offered.
    """

    def __init__(self) -> None:
        """Begins with the header of a message."""
        self._header: str | None = ""  # None within a message
        self._kind = ""  # of the message: "thought", "text" or "call"
        self._is_thinking = self._has_text = self._is_empty = False

    @property
    def starts_message(self) -> bool:
        """Whether a header comes next."""
        return self._header is not None

    def text(self, text: str) -> str:
        """What text of the model adds to the answer."""
        if self._header is not None:
            self._header += text
            return ""
        if self._kind == "thought" and not self._is_thinking:
            return ""
        if self._is_empty and self._kind == "call":
            text = text.lstrip()
        self._is_empty &= not text
        return text

    def token(self, name: str) -> str:
        """What a token of the format adds to the answer."""
        if name == "<|message|>" and self._header is not None:
            return self._begin()
        if name in ENDS or name in ("<|start|>", "<|end|>"):
            is_lost = name == "<|start|>" and self._header is not None
            ended = "" if is_lost else self._end(has_ended=name in ENDS)
            self._header = ""
            return ended
        return self.text(name)

    def finish(self) -> str:
        """What the end of the text adds to the answer."""
        return self._end(has_ended=False) if self._header is not None else ""

    def _begin(self) -> str:
        header, self._header, self._is_empty = self._header or "", None, True
        channel = _CHANNEL.search(header)
        if function := _FUNCTION.search(header):
            self._kind = "call"
            return self._text(f"{CHANNELS.opening}{function[1]}{CHANNELS.middle}")
        if (channel and channel[1] == "analysis") or _RECIPIENT.search(header):
            self._kind = "thought"
            if self._is_thinking:
                return "\n"
            self._is_thinking = not self._has_text
            return THOUGHTS if self._is_thinking else ""
        self._kind = "text"
        return self._text("")

    def _text(self, text: str) -> str:
        """Text behind the thoughts, which it ends."""
        before = THOUGHTS_END if self._is_thinking else ""
        self._is_thinking, self._has_text = False, True
        return before + text

    def _end(self, has_ended: bool) -> str:
        """Ends a message; a header without one is text, apart from what headers have."""
        shown, header = "", self._header
        if header is not None:
            for part in (_CHANNEL, _RECIPIENT, _TYPE):
                header = part.sub("", header)
            header = header.strip()
            shown = "" if ROLE.startswith(header) else header.removeprefix(ROLE).strip()
        elif self._kind == "call":
            return ("{}" if self._is_empty else "") + CHANNELS.closing
        return self._text(shown) if shown or (has_ended and self._is_thinking) else ""
