"""`UniqueItems`: which tokens would repeat an item of an array whose items must differ.

Knows the text of one document as far as it is written, and which of its arrays have `uniqueItems`.
Must not know rules: `step_by_step` takes the tokens out that it names. Where a schema has several
cases, an array is one of those if it is in any of them.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from xla_backend.grammar.automaton import TokenBytes
from xla_backend.grammar.schemas.algebra import Algebra
from xla_backend.grammar.schemas.conditions import Goals, Unique, key
from xla_backend.interface.errors import InvalidRequest

_SPACE = b" \t\r\n"
_ENDS = (b",", b"]", b" ", b"\n", b"\r", b"\t")
"""What may end a number."""


@dataclass
class _Open:
    """An array or an object whose end is not written.

    Attributes:
        goals: what its value satisfies in each case.
        is_object, is_unique: what it is.
        start: where its current item begins in the text. count: of its items before that.
        seen: the items before, as keys and as they were written.
    """

    goals: set[Goals]
    is_object: bool
    is_unique: bool
    start: int
    count: int = 0
    seen: dict[str, bytes] = field(default_factory=dict)
    name: str = ""


class UniqueItems:
    """Follows one document."""

    def __init__(self, algebra: Algebra, vocabulary: TokenBytes) -> None:
        self._algebra, self._vocabulary = algebra, vocabulary
        self._text = bytearray()
        self._open: list[_Open] = []
        self._quote = -1  # where the open string begins
        self._is_escaped = False

    def for_row(self) -> UniqueItems:
        return UniqueItems(self._algebra, self._vocabulary)

    def follow(self, text: bytes) -> None:
        """Reads more of the document."""
        for byte in text:
            self._text.append(byte)
            self._read(chr(byte))

    def _read(self, each: str) -> None:
        top, end = self._open[-1] if self._open else None, len(self._text) - 1
        if self._quote >= 0:
            if each == '"' and not self._is_escaped:
                if top and top.is_object and not top.name:
                    top.name = json.loads(self._text[self._quote :])
                self._quote = -1
            self._is_escaped = each == "\\" and not self._is_escaped
        elif each == '"':
            self._quote = end
        elif each in "[{":
            goals = self._inner(top)
            cases = [case for one in goals for case in self._algebra.cases(one)]
            is_unique = each == "[" and any(case.of(Unique) for case in cases)
            self._open.append(_Open(goals, each == "{", is_unique, end + 1))
        elif top and each in ",]}":
            self._end_item(top, bytes(self._text[top.start : end]))
            top.start, top.count, top.name = end + 1, top.count + 1, ""
            if each != ",":
                self._open.pop()

    def _end_item(self, top: _Open, item: bytes) -> None:
        if top.is_unique and item.strip(_SPACE):
            name = key(json.loads(item))
            if name in top.seen:
                raise InvalidRequest("the grammar cannot be followed further: an item came twice.")
            top.seen[name] = item.strip(_SPACE)

    def _inner(self, top: _Open | None) -> set[Goals]:
        """What the next value satisfies in each case."""
        algebra = self._algebra
        if top is None:
            return {(algebra.goal(algebra.root, "#"),)}
        cases = [case for one in top.goals for case in algebra.cases(one)]
        if top.is_object:
            return {algebra.member_goals(case, top.name) for case in cases}
        return {algebra.item_goals(case, top.count) for case in cases}

    def repeating(self) -> Iterator[int]:
        """The tokens that would end an item as an earlier one."""
        for level in self._open[-2:]:
            if not level.is_unique:
                continue
            prefix = bytes(self._text[level.start :]).lstrip(_SPACE)
            left = self._left(level) if level is self._open[-1] else None
            for item in level.seen.values():
                if item.startswith(prefix):
                    rest = item[len(prefix) :]
                    ends = (b"",) if item[:1] in (b'"', b"[", b"{") else _ENDS
                    for end in ends:
                        yield from self._tokens(rest + end, is_started=bool(prefix))
                    # Where no other item goes on so, nor may it be begun.
                    for size in range(1, len(rest)) if left is not None else ():
                        start = prefix + rest[:size]
                        if not any(other.startswith(start) for other in left or ()):
                            yield from self._tokens(rest[:size], bool(prefix), is_whole=True)
            if left is not None and len(left) <= 1:  # no item may follow the last one
                for item in left or [prefix]:
                    if prefix and item.startswith(prefix):
                        for comma in (b",", b" ,"):
                            yield from self._tokens(item[len(prefix) :] + comma, is_started=True)
        if len(self._open) > 1 and self._open[-2].is_unique:
            outer, inner = self._open[-2:]
            closing = b"}" if inner.is_object else b"]"
            end = b'"' + closing if self._quote >= 0 else closing
            try:
                name = key(json.loads(bytes(self._text[outer.start :]) + end))
            except ValueError:
                return
            if name in outer.seen:
                yield from self._tokens(end, is_started=self._quote >= 0)

    def _left(self, level: _Open) -> list[bytes] | None:
        """The items that have not come; None where they are not a few scalars."""
        values: list[bytes] = []
        for goals in self._inner(level):
            for case in self._algebra.cases(goals):
                if case.values is None or any(isinstance(v, list | dict) for v in case.values):
                    return None
                values += [
                    json.dumps(value, ensure_ascii=False).encode()
                    for value in case.values
                    if key(value) not in level.seen
                ]
        return values

    def _tokens(self, start: bytes, is_started: bool, is_whole: bool = False) -> Iterator[int]:
        """The tokens that begin so, also behind white space unless a value has begun; or that are
        no more than this."""
        names, ids = self._vocabulary.sorted_texts(not is_started)
        at = bisect.bisect_left(names, start)
        while at < len(names) and names[at].startswith(start):
            if not is_whole or names[at] == start:
                yield ids[at]
            at += 1
