"""Regular expressions as people write them, turned into those that become automata.

Knows the syntax tree of Python's own parser (`re`), which JSON Schema's patterns and those of
`guided_regex` have in common with it, and Unicode's properties. Must not know schemas or automata.
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

import regex

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
def _all_characters() -> str:
    return "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))


@functools.lru_cache(200)
def _property(name: str) -> Ranges:
    """The characters of a Unicode property, as L or Script=Han."""
    spans = (found.span() for found in regex.finditer(rf"\p{{{name}}}+", _all_characters()))
    beyond = 0xE000 - 0xD800
    return [
        (first if first < 0xD800 else first + beyond, last - 1 + (beyond if last > 0xD800 else 0))
        for first, last in spans
    ]


_PROPERTY = re.compile(
    r"\\(?:(p|P)(?:\{(\^?)([^{}]*)\}|([A-Z]))|.)|\[:(\^?)(\w+):\]|\[\^?\]?|\]", re.DOTALL
)


def _without_properties(text: str) -> str:
    """A pattern with \\p{...} and [:...:] written as sets, which Python's parser knows."""
    is_in_set = False

    def written(found: re.Match[str]) -> str:
        nonlocal is_in_set
        if found[6] and not is_in_set:
            return found[0]  # a set of these letters
        if not (found[1] or found[6]):
            if found[0][0] != "\\":
                is_in_set = is_in_set if found[0][0] == "[" and is_in_set else found[0] != "]"
            return found[0]
        try:
            ranges = _property(found[3] or found[4] or found[6])
        except regex.error as error:
            raise re.error(f"{found[0]} is no property that Unicode has") from error
        if (found[1] == "P") != bool(found[2] or found[5]):
            ranges = complement(ranges)
        inner = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
        return inner if is_in_set else f"[{inner}]"

    return _PROPERTY.sub(written, text)


@functools.cache
def _cases() -> list[tuple[int, int]]:
    """Pairs of characters that differ in case alone."""
    pairs = []
    for letter in map(chr, range(0x1E944)):  # the last one that has cases
        for other in {letter.lower(), letter.upper()} - {letter}:
            if len(other) == 1:
                pairs += [(ord(letter), ord(other)), (ord(other), ord(letter))]
    return pairs


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

    anchored: bool
    tree: list[Any]
    ends: bool
    ahead: list[tuple[list[_Way], bool]]
    """What the text from its beginning on matches, or does not."""

    @classmethod
    def of(cls, tree: list[Any]) -> _Way:
        anchored, ahead = bool(tree) and tree[0] in _BEGINNINGS, []
        tree = tree[anchored:]
        while anchored and tree and tree[0][0] in _LOOKAHEAD and tree[0][1][0] == 1:
            inner = [cls.of(each) for each in _alternatives(list(tree[0][1][1]))]
            ahead.append((inner, tree[0][0] is code.ASSERT))
            tree = tree[1:]
        ends = bool(tree) and tree[-1] in _ENDS
        return cls(anchored, tree[: len(tree) - ends], ends, ahead)


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
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$": r"^[+-]?(\d+\.?\d*|\.\d+)$"  # Pydantic's Decimal
}
"""Common patterns with look-around, and others that match the same."""


class Pattern:
    def __init__(self, text: str, *, is_plain: bool = False) -> None:
        """Parses it; `is_plain` is one whose characters are never written as escapes."""
        self._text = text
        self._one = json_text.any_of if is_plain else json_text.any_of_in_string
        try:
            plain = re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", _SAME.get(text, text))
            self._plain = _without_properties(plain)
            parsed = parser.parse(self._plain)
            self._flags = parsed.state.flags
            ways = list(itertools.islice(_alternatives(list(parsed)), _MAX_WAYS + 1))
        except RecursionError:
            raise self._refused("with groups so deep") from None
        except (re.error, OverflowError) as error:
            raise InvalidRequest(
                f"the pattern {text[:60]!r} is no regular expression: {error}."
            ) from error
        if len(ways) > _MAX_WAYS:
            raise self._refused("with too many alternatives that have anchors")
        if self._flags & re.MULTILINE:
            raise self._refused("with the flag (?m)")
        self._ways = [_Way.of(each) for each in ways]
        self._room = _MAX_CHARACTERS

    @classmethod
    @functools.cache
    def of_format(cls, name: str) -> Pattern:
        """The one of a format; see `json_text.FORMATS`."""
        return cls(f"^(?:{json_text.FORMATS[name]})$", is_plain=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    @functools.cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._plain)

    def is_in(self, text: str) -> bool:
        """Whether it matches a part of a text."""
        return self._compiled.search(text) is not None

    def whole(self) -> str:
        """Matches a whole text."""
        if any(way.ahead for way in self._ways):
            raise self._refused("with look-around")
        try:
            return "|".join(self._written(way.tree, json_text.any_of) for way in self._ways)
        except RecursionError:
            raise self._refused("with groups so deep") from None

    def in_string(self) -> list[tuple[str, bool]]:
        """Expressions of JSON strings with their quotes: a string holds the pattern somewhere where
        it matches each of them, or does not, as is said beside it."""
        try:
            if not any(way.ahead for way in self._ways):
                return [(self._quoted(self._ways, json_text.CHARACTER), True)]
            if len(self._ways) > 1:
                raise self._refused("with look-around in alternatives")
            (way,) = self._ways
            ahead = [(self._quoted(inner, "", way), held) for inner, held in way.ahead]
            return [(self._quoted(self._ways, json_text.CHARACTER), True), *ahead]
        except RecursionError:
            raise self._refused("with groups so deep") from None

    def _quoted(self, ways: list[_Way], before: str, around: _Way | None = None) -> str:
        """A string that one of some ways is in; `before` are characters in front of it."""
        written = []
        for way in ways:
            if around and way.ahead:
                raise self._refused("with look-around in look-around")
            inner = self._written(way.tree, self._one)
            front = f"{before}*" if before and not way.anchored else ""
            written.append(front + inner + ("" if way.ends else f"{json_text.CHARACTER}*"))
        return f'"(?:{"|".join(written)})"'

    def lengths(self) -> tuple[int, float]:
        """Between how many characters the strings have that it is in."""
        if not all(way.anchored and way.ends for way in self._ways):
            return 0, float("inf")
        widths = [parser.SubPattern(parser.State(), way.tree).getwidth() for way in self._ways]
        return min(low for low, _ in widths), max(high for _, high in widths)

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
            before, self._flags = self._flags, (self._flags | added) & ~removed
            written = self._written(inner, one)
            self._flags = before
            return f"(?:{written})"
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
            return self._in_any_case([(value, value)])
        if kind is code.RANGE:
            return self._in_any_case([value])
        if kind is code.NOT_LITERAL:
            return complement(self._in_any_case([(value, value)]))
        if kind is code.ANY:
            return complement([] if self._flags & re.DOTALL else [(10, 10), (13, 13)])
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

    def _in_any_case(self, ranges: Ranges) -> Ranges:
        """With the other cases of letters, where the pattern ignores cases."""
        if not self._flags & re.IGNORECASE:
            return ranges
        most = 0x7F if self._flags & re.ASCII else 0x10FFFF
        more = [
            (other, other)
            for letter, other in _cases()
            if other <= most and any(first <= letter <= last for first, last in ranges)
        ]
        return joined([*ranges, *more])

    def _refused(self, why: str) -> InvalidRequest:
        return InvalidRequest(
            f"the pattern {self._text[:60]!r} {why} cannot be followed: write it without."
        )


_SETS = (code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN, code.RANGE, code.CATEGORY)
_LOOKAHEAD = (code.ASSERT, code.ASSERT_NOT)
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT)
_BEGINNINGS = [(code.AT, code.AT_BEGINNING), (code.AT, code.AT_BEGINNING_STRING)]
_ENDS = [(code.AT, code.AT_END), (code.AT, code.AT_END_STRING)]
