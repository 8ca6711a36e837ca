"""`AnswerReader`: an answer's text, as it comes, in parts: thoughts, text and calls; `StopStrings`:
where it ends.

Knows how thoughts are marked and how a model's format writes calls. Must not know tokens: see
`decoder`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from xla_backend.answers.tool_format import ToolFormat
from xla_backend.interface.prompt import THOUGHTS, THOUGHTS_END, ToolCall


class StopStrings:
    """Ends a text before or after the first stop string in it.

    The result does not depend on the chunks. Of overlapping strings, the one that ends first
    counts; of those that end together, the longest.

    Attributes:
        found: the string that ended the text; empty before.
    """

    def __init__(self, strings: Sequence[str], shows: bool = False) -> None:
        """Starts with an empty text.

        Args:
            strings: each ends the text.
            shows: whether the text includes the string that ended it.
        """
        self._strings = strings
        self._shows = shows
        self._held = ""
        self.found = ""

    def push(self, chunk: str) -> str:
        """Takes the next characters; returns those that are final now.

        The end of the text is held back where a stop string could begin.
        """
        if not self._strings:
            return chunk
        if self.found:
            return ""
        text, self._held = self._held + chunk, ""
        # The held text is the longest possible beginning of a string: none begins before it.
        found = [
            (place + len(string), place)
            for string in self._strings
            if (place := text.find(string)) >= 0
        ]
        if found:
            end, place = min(found)
            self.found = text[place:end]
            return text[: end if self._shows else place]
        held = max((_overlap(text, string) for string in self._strings), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """Ends the text; returns what was held back."""
        held, self._held = self._held, ""
        return held


class CallPart(NamedTuple):
    """A part of a call.

    Attributes:
        number: of the call, from 0 on.
        name: of the function in a call's first part; empty in others.
        arguments: what comes to their text.
    """

    number: int
    id: str
    name: str
    arguments: str


class Thought(str):
    """A part of the thoughts in front of an answer."""


class AnswerReader:
    """Reads the text of an answer as it comes: what is thought, said and called.

    Attributes:
        thoughts: so far.
        calls: so far; the last one's arguments may not be complete.
    """

    def __init__(self, form: ToolFormat | None = None) -> None:
        """Without a format all text behind the thoughts is content."""
        self.thoughts = ""
        self.calls: list[ToolCall] = []
        self._form = form
        self._held = ""
        self._has_text = False
        self._read: Callable[[], Iterator[str | CallPart]] = self._before
        self._arguments = _Object()
        if form is not None:
            opening, middle, closing = (_loosely(part) for part in form[:3])
            self._begin = re.compile(rf"{opening}([A-Za-z0-9_.-]+){middle}(?=\{{)")
            self._end = re.compile(closing)

    @property
    def has_called(self) -> bool:
        """Whether there are calls, and all are complete."""
        return bool(self.calls) and self._read != self._call

    def push(self, text: str) -> Iterator[str | CallPart]:
        """What more text says; held back is what may become a call."""
        self._held += text
        before = None
        while before != (before := (self._held, self._read)):
            yield from self._read()

    def finish(self) -> Iterator[str | CallPart]:
        """The text held back so far, without white space after a call."""
        if self._read == self._think:
            yield from self._thought(self._held.rstrip())
        elif not (self._held.isspace() and (self.calls or self.thoughts)):
            yield from [self._held] if self._held and self._read != self._call else []
        self._held = ""

    def read_whole(self, text: str) -> str:
        """Reads a whole answer; returns what is said in it."""
        parts = [*self.push(text), *self.finish()]
        return "".join(part for part in parts if type(part) is str)

    def _before(self) -> Iterator[Thought]:
        opened = self._held.lstrip()
        if opened.startswith(THOUGHTS):
            self._held, self._read = opened[len(THOUGHTS) :], self._think
        elif not THOUGHTS.startswith(opened):
            self._read = self._text
        yield from ()

    def _think(self) -> Iterator[Thought]:
        if not self.thoughts:
            self._held = self._held.lstrip()
        end = _before_mark(self._held, THOUGHTS_END)
        certain, is_over = len(self._held[:end].rstrip()), self._held[end:].startswith(THOUGHTS_END)
        yield from self._thought(self._held[:certain])
        self._held = self._held[end + len(THOUGHTS_END) if is_over else certain :]
        if is_over:
            self._read = self._after

    def _thought(self, text: str) -> Iterator[Thought]:
        if text:
            self.thoughts += text
            yield Thought(text)

    def _after(self) -> Iterator[Thought]:
        self._held = self._held.lstrip()
        self._read = self._text if self._held else self._after
        yield from ()

    def _text(self) -> Iterator[str | CallPart]:
        end, opened = len(self._held), None
        if self._form is not None:
            opened = self._begin.search(self._held)
            if opened and not self._form.marker and (opened.start() or self._has_text):
                opened = None
            end = len(self._held[: opened.start()].rstrip()) if opened else self._certain()
        if shown := self._held[:end]:
            self._has_text = True
            yield shown
        self._held = self._held[opened.end() if opened else end :]
        if opened:
            self._read, self._arguments = self._call, _Object()
            self.calls.append(ToolCall(secrets.token_hex(5)[:9], opened[1], ""))
            yield CallPart(len(self.calls) - 1, self.calls[-1].id, opened[1], "")

    def _certain(self) -> int:
        """How many characters before a call certainly belong to no call."""
        assert self._form is not None
        marker = self._form.marker
        if not marker:
            opening = self._form.opening
            may_begin = opening.startswith(self._held) or self._held.startswith(opening)
            return 0 if may_begin and not self._has_text else len(self._held)
        return len(self._held[: _before_mark(self._held, marker)].rstrip())

    def _call(self) -> Iterator[str | CallPart]:
        call = self.calls[-1]
        if more := self._held[: self._arguments.push(self._held)]:
            self.calls[-1] = call._replace(arguments=call.arguments + more)
            self._held = self._held[len(more) :]
            yield CallPart(len(self.calls) - 1, call.id, "", more)
        elif self._arguments.is_over and (closing := self._end.match(self._held)):
            self._held = self._held[closing.end() :]
            self._read = self._text


def split_thoughts(text: str) -> tuple[str, str]:
    """The thoughts in front of an answer, and the rest."""
    reader = AnswerReader()
    rest = reader.read_whole(text)
    return reader.thoughts, rest


def thoughts_end(text: str) -> int:
    """Where the thoughts in front of an answer end, before their mark; 0 if there are none."""
    return _before_mark(text, THOUGHTS_END) if text.lstrip().startswith(THOUGHTS) else 0


def _overlap(text: str, string: str) -> int:
    """How many of the text's last characters are a beginning, but not all, of a string."""
    sizes = range(min(len(text), len(string) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(string[:size])), 0)


def _before_mark(text: str, mark: str) -> int:
    """How many characters are in front of a mark, or of what may become one."""
    end = text.find(mark)
    return len(text) - _overlap(text, mark) if end < 0 else end


class _Object:
    """Where a JSON object ends that comes in pieces; each character is looked at once."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._is_escaped = False
        self.is_over = False

    def push(self, text: str) -> int:
        """How many characters of more text belong to it."""
        for at, each in enumerate(text):
            if self.is_over:
                return at
            if self._in_string:
                self._in_string = each != '"' or self._is_escaped
                self._is_escaped = each == "\\" and not self._is_escaped
            elif each == '"':
                self._in_string = True
            else:
                self._depth += (each in "{[") - (each in "}]")
                self.is_over = self._depth == 0
        return len(text)


def _loosely(part: str) -> str:
    return "".join(
        r"\s*" if piece.isspace() else re.escape(piece) for piece in re.split(r"(\s+)", part)
    )
