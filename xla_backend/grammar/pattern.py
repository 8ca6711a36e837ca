"""Regular expressions as people write them, turned into those that become automata.

Knows the syntax tree of Python's own parser (`re`), which JSON Schema's patterns and those of
`guided_regex` have in common with it. Must not know schemas or automata.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from xla_backend.grammar import json_text
from xla_backend.grammar.json_text import Ranges, complement, joined
from xla_backend.interface.errors import InvalidRequest

_DIGITS: Ranges = [(48, 57)]
_WORD: Ranges = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACE: Ranges = [(9, 13), (32, 32), (160, 160), (0x2028, 0x2029), (0xFEFF, 0xFEFF)]
_CATEGORIES = {
    code.CATEGORY_DIGIT: _DIGITS,
    code.CATEGORY_NOT_DIGIT: complement(_DIGITS),
    code.CATEGORY_WORD: _WORD,
    code.CATEGORY_NOT_WORD: complement(_WORD),
    code.CATEGORY_SPACE: _SPACE,
    code.CATEGORY_NOT_SPACE: complement(_SPACE),
}
"""As ECMA-262 has them, ASCII's digits and letters."""
_UNBOUNDED = 1000
"""Counts above are refused: each is a state of its own."""


class Pattern:
    """A pattern that was parsed.

    Attributes:
        lengths: fewest and most characters that it matches; no most one is above `_UNBOUNDED`.
    """

    def __init__(self, text: str) -> None:
        """Parses it.

        Raises:
            InvalidRequest: it is no regular expression, or more than one.
        """
        self._text = text
        try:
            tree = list(parser.parse(re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", text)))
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidRequest(
                f"the pattern {text[:60]!r} is no regular expression: {error}."
            ) from error
        self._begins = bool(tree) and tree[0] in _BEGINNINGS
        self._ends = bool(tree) and tree[-1] in _ENDS
        self._tree = tree[self._begins : len(tree) - self._ends]

    def whole(self) -> str:
        """Matches a whole text."""
        return self._written(self._tree, json_text.any_of)

    def in_string(self, fewest: int, most: int | None) -> str:
        """Matches a JSON string with its quotes, which holds the pattern somewhere.

        Args:
            fewest, most: characters of the string; None for any number.

        Raises:
            InvalidRequest: the pattern says nothing of lengths, so that both cannot be followed.
        """
        if fewest or most is not None:
            self._bound(fewest, most)
        before = "" if self._begins else f"{json_text.CHARACTER}*"
        after = "" if self._ends else f"{json_text.CHARACTER}*"
        return f'"{before}{self._written(self._tree, json_text.any_of_in_string)}{after}"'

    def _bound(self, fewest: int, most: int | None) -> None:
        """Follows bounds on the length: they are the pattern's, or can be its one repetition's."""
        is_whole = self._begins and self._ends
        low, high = parser.SubPattern(parser.State(), self._tree).getwidth()
        if is_whole and low >= fewest and (most is None or high <= most):
            return
        if is_whole and len(self._tree) == 1 and self._tree[0][0] in _REPEATS:
            kind, (low, high, repeated) = self._tree[0]
            if repeated.getwidth() == (1, 1):
                top = high if most is None or high <= most else most
                if max(low, fewest) <= top:
                    self._tree = [(kind, (max(low, fewest), top, repeated))]
                    return
        raise self._refused("together with a bound on the string's length")

    def _written(self, tree: Any, one: Callable[[Ranges], str]) -> str:
        """A tree as a regular expression; `one` writes one of some characters."""
        return "".join(self._node(kind, value, one) for kind, value in tree)

    def _node(self, kind: Any, value: Any, one: Callable[[Ranges], str]) -> str:
        if kind in _SETS:
            if not (ranges := self._characters(kind, value)):
                raise self._refused("with a set of no characters")
            return one(ranges)
        if kind is code.BRANCH:
            return f"(?:{'|'.join(self._written(each, one) for each in value[1])})"
        if kind is code.SUBPATTERN:
            _, added, removed, inner = value
            if added or removed:
                raise self._refused("with flags, as (?i)")
            return f"(?:{self._written(inner, one)})"
        if kind in _REPEATS:
            low, high, inner = value
            if low > _UNBOUNDED or (high is not code.MAXREPEAT and high > _UNBOUNDED):
                raise self._refused(f"with a count above {_UNBOUNDED:,}")
            times = f"{low}," if high is code.MAXREPEAT else f"{low},{high}"
            return f"(?:{self._written(inner, one)}){{{times}}}"
        names = {
            code.AT: "with an anchor inside",
            code.GROUPREF: "with a back-reference",
            code.ASSERT: "with look-around",
            code.ASSERT_NOT: "with look-around",
        }
        raise self._refused(names.get(kind, f"with {str(kind).lower()}"))

    def _characters(self, kind: Any, value: Any) -> Ranges:
        """What one character may be."""
        if kind is code.LITERAL:
            return [(value, value)]
        if kind is code.RANGE:
            return [value]
        if kind is code.NOT_LITERAL:
            return complement([(value, value)])
        if kind is code.ANY:
            return complement([(10, 10), (13, 13)])
        if kind is code.CATEGORY:
            return _CATEGORIES[value]
        is_negated = value[0][0] is code.NEGATE
        parts = [self._characters(*each) for each in value[is_negated:]]
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
