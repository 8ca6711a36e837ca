"""Regular expressions as people write them, turned into those that become automata.

Knows the syntax tree of Python's own parser (`re`), which JSON Schema's patterns and those of
`guided_regex` have in common with it. Must not know schemas or automata.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from xla_backend.grammar import json_text
from xla_backend.grammar.json_text import Ranges, complement, joined
from xla_backend.interface.errors import InvalidRequest

_ASCII: dict[str, Ranges] = {
    "digit": [(48, 57)],
    "word": [(48, 57), (65, 90), (95, 95), (97, 122)],
    "space": [(9, 13), (32, 32)],
}
"""Digits, letters and spaces that are such in every dialect."""
_UNICODE: dict[str, Callable[[str], bool]] = {
    "digit": str.isdecimal,
    "word": lambda character: character.isalnum() or character == "_",
    "space": lambda character: character.isspace() or character == "\ufeff",
}
"""Those that are such in some: in Python's all of Unicode, in ECMA-262 fewer."""


@functools.cache
def _in_some_dialect(name: str) -> tuple[tuple[int, int], ...]:
    belongs = _UNICODE[name]
    found = (code for code in range(0x110000) if belongs(chr(code)))
    return tuple(joined((code, code) for code in found))


_MAX_REPEATS = 1000
"""Counts above are refused: each is a state of its own."""
_MAX_CHARACTERS = 2_000_000
"""Of a pattern as it is written for automata: one set, as \\W, can take thousands."""
_MAX_WAYS = 1000
"""Alternatives that anchors take apart: groups in a row multiply them."""


@dataclass(frozen=True)
class _Way:
    """One alternative of a pattern: what is between its anchors, and which of these it has."""

    begins: bool
    tree: list[Any]
    ends: bool

    @classmethod
    def of(cls, tree: list[Any]) -> _Way:
        begins = bool(tree) and tree[0] in _BEGINNINGS
        ends = len(tree) > begins and tree[-1] in _ENDS
        return cls(begins, tree[begins : len(tree) - ends], ends)


def _alternatives(tree: list[Any]) -> Iterator[list[Any]]:
    """The alternatives of a tree, taken apart where some of them have anchors of their own."""
    for place in {0, len(tree) - 1} if tree else ():
        kind, value = tree[place]
        if not _has_anchor(kind, value):
            continue
        if kind is code.BRANCH:
            inner = [list(each) for each in value[1]]
        elif kind is code.SUBPATTERN and not value[1] and not value[2]:
            inner = [list(value[3])]
        else:
            continue
        before, after = tree[:place], tree[place + 1 :]
        for each in inner:
            yield from _alternatives([*before, *each, *after])
        return
    yield tree


def _has_anchor(kind: Any, value: Any) -> bool:
    if kind is code.BRANCH:
        return any(_has_anchor(*node) for each in value[1] for node in each)
    if kind is code.SUBPATTERN:
        return any(_has_anchor(*node) for node in value[3])
    return kind is code.AT


_SAME = {
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$": r"^[+-]?(\d+\.?\d*|\.\d+)$",  # Pydantic's Decimal
}
"""Common patterns with look-around, and others that match the same."""


class Pattern:
    """A pattern that was parsed."""

    def __init__(self, text: str) -> None:
        """Parses it.

        Raises:
            InvalidRequest: it is no regular expression, or more than one.
        """
        self._text = text
        try:
            tree = list(parser.parse(re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", _SAME.get(text, text))))
            ways = list(itertools.islice(_alternatives(tree), _MAX_WAYS + 1))
        except RecursionError:
            raise self._refused("with groups so deep") from None
        except (re.error, OverflowError) as error:
            raise InvalidRequest(
                f"the pattern {text[:60]!r} is no regular expression: {error}."
            ) from error
        if len(ways) > _MAX_WAYS:
            raise self._refused("with too many alternatives that have anchors")
        self._ways = [_Way.of(each) for each in ways]
        self._room = _MAX_CHARACTERS

    def whole(self) -> str:
        """Matches a whole text."""
        try:
            return "|".join(self._written(way.tree, json_text.any_of) for way in self._ways)
        except RecursionError:
            raise self._refused("with groups so deep") from None

    def in_string(self, fewest: int, most: int | None) -> str:
        """Matches a JSON string with its quotes, which holds the pattern somewhere.

        Args:
            fewest, most: characters of the string; None for any number.

        Raises:
            InvalidRequest: the pattern says nothing of lengths, so that both cannot be followed.
        """
        any_more = f"{json_text.CHARACTER}*"
        ways = []
        for way in self._ways:
            tree = way.tree
            if fewest or most is not None:
                tree = self._bound(way, fewest, most)
            written = self._written(tree, json_text.any_of_in_string)
            before, after = ("" if held else any_more for held in (way.begins, way.ends))
            ways.append(f"{before}{written}{after}")
        return f'"(?:{"|".join(ways)})"'

    def _bound(self, way: _Way, fewest: int, most: int | None) -> list[Any]:
        """Follows bounds on the length: they are the pattern's, or can be its one repetition's."""
        is_whole, tree = way.begins and way.ends, way.tree
        low, high = parser.SubPattern(parser.State(), tree).getwidth()
        if is_whole and low >= fewest and (most is None or high <= most):
            return tree
        if is_whole and len(tree) == 1 and tree[0][0] in _REPEATS:
            kind, (low, high, repeated) = tree[0]
            if repeated.getwidth() == (1, 1):
                top = high if most is None or high <= most else most
                if max(low, fewest) <= top:
                    return [(kind, (max(low, fewest), top, repeated))]
        raise self._refused("together with a bound on the string's length")

    def _written(self, tree: Any, one: Callable[[Ranges], str]) -> str:
        """A tree as a regular expression; `one` writes one of some characters."""
        return "".join(self._node(kind, value, one) for kind, value in tree)

    def _node(self, kind: Any, value: Any, one: Callable[[Ranges], str]) -> str:
        if kind in _SETS:
            if not (ranges := self._characters(kind, value)):
                raise self._refused("with a set of no characters")
            written = one(ranges)
            self._room -= len(written)
            if self._room < 0:
                raise self._refused("with so many sets of characters")
            return written
        if kind is code.BRANCH:
            return f"(?:{'|'.join(self._written(each, one) for each in value[1])})"
        if kind is code.SUBPATTERN:
            _, added, removed, inner = value
            if added or removed:
                raise self._refused("with flags, as (?i)")
            return f"(?:{self._written(inner, one)})"
        if kind in _REPEATS:
            low, high, inner = value
            if low > _MAX_REPEATS or (high is not code.MAXREPEAT and high > _MAX_REPEATS):
                raise self._refused(f"with a count above {_MAX_REPEATS:,}")
            times = f"{low}," if high is code.MAXREPEAT else f"{low},{high}"
            return f"(?:{self._written(inner, one)}){{{times}}}"
        names = {
            code.AT: "with an anchor inside",
            code.GROUPREF: "with a back-reference",
            code.ASSERT: "with look-around",
            code.ASSERT_NOT: "with look-around",
        }
        raise self._refused(names.get(kind, f"with {str(kind).lower()}"))

    def _characters(self, kind: Any, value: Any, in_some: bool = False) -> Ranges:
        """What one character may be in every dialect, or in some."""
        if kind is code.LITERAL:
            return [(value, value)]
        if kind is code.RANGE:
            return [value]
        if kind is code.NOT_LITERAL:
            return complement([(value, value)])
        if kind is code.ANY:
            return complement([(10, 10), (13, 13)])
        if kind is code.CATEGORY:
            *negation, name = str(value).removeprefix("CATEGORY_").lower().split("_")
            is_narrow = in_some is bool(negation)
            ranges = _ASCII[name] if is_narrow else list(_in_some_dialect(name))
            return complement(ranges) if negation else ranges
        is_negated = value[0][0] is code.NEGATE
        within = in_some is not is_negated
        parts = [self._characters(part, of, within) for part, of in value[is_negated:]]
        ranges = joined(each for part in parts for each in part)
        return complement(ranges) if is_negated else ranges

    def _refused(self, why: str) -> InvalidRequest:
        return InvalidRequest(
            f"the pattern {self._text[:60]!r} {why} cannot be followed: write it without."
        )


_SETS = (code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN, code.RANGE, code.CATEGORY)
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT)
_BEGINNINGS = [(code.AT, code.AT_BEGINNING), (code.AT, code.AT_BEGINNING_STRING)]
_ENDS = [(code.AT, code.AT_END), (code.AT, code.AT_END_STRING)]
