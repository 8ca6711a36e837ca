"""Rules of texts, and two notations of them.

Knows sequences, alternatives, repetitions and references, what has no end among them, and how JSON
breaks lines. Must not know schemas. Rules become a regular expression where they are regular, and
otherwise those of `step_by_step`; both allow the same texts.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

from xla_backend.grammar import json_text, step_by_step
from xla_backend.interface.errors import InvalidRequest

MAX_CHARACTERS = 2_000_000
"""Of a regular expression."""


@dataclass(frozen=True)
class Terminal:
    """What a regular expression matches as a whole, all others of `also` match too, or do not."""

    regex: str
    also: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True)
class Number:
    """A number that the library of `step_by_step` describes by its own schema."""

    schema: str


@dataclass(frozen=True)
class Sequence:
    """One part after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    ways: tuple[Node, ...]


@dataclass(frozen=True)
class Repetition:
    part: Node
    fewest: int
    most: int | None


@dataclass(frozen=True)
class Enclosed:
    """An array or an object; what is between its members is one level deeper."""

    opening: str
    closing: str
    inner: Node


@dataclass(frozen=True)
class Ref:
    rule: int


class Comma:
    """Between two members."""


class Anything:
    """Any JSON value."""


Node = Terminal | Number | Sequence | Either | Repetition | Enclosed | Ref | Comma | Anything
COMMA, ANYTHING, EMPTY = Comma(), Anything(), Sequence(())


def optional(part: Node) -> Node:
    return Repetition(part, 0, 1)


def in_order(*parts: Node) -> Node:
    flat = [each.parts if isinstance(each, Sequence) else (each,) for each in parts]
    return Sequence(tuple(itertools.chain.from_iterable(flat)))


def without_dead_ends(rules: list[Any], start: Node) -> tuple[list[Any], Node | None]:
    """Rules and their start without what no text ends; None where nothing is left."""
    ended: set[int] = set()
    open_rules, before = list(range(len(rules)))[::-1], -1
    while len(open_rules) != before:
        before, left = len(open_rules), []
        for number in open_rules:
            if _live(rules[number], ended) is not None:
                ended.add(number)
            else:
                left.append(number)
        open_rules = left[::-1]  # chains of rules are long one way or the other
    return [_live(node, ended) for node in rules], _live(start, ended)


def _live(node: Any, ended: set[int]) -> Node | None:
    """A part without ways that have no end; None where all have none."""
    match node:
        case Terminal(regex, also):
            return node if not also or _has_text(regex, also) else None
        case Ref(rule):
            return node if rule in ended else None
        case Sequence(parts):
            live = []
            for part in parts:
                if (of := _live(part, ended)) is None:
                    return None
                live.append(of)
            return Sequence(tuple(live))
        case Either(ways):
            left = [of for way in ways if (of := _live(way, ended)) is not None]
            return (left[0] if len(left) == 1 else Either(tuple(left))) if left else None
        case Repetition(part, fewest, most):
            of = _live(part, ended)
            return Repetition(of, fewest, most) if of else None if fewest else EMPTY
        case Enclosed(opening, closing, inner):
            of = _live(inner, ended)
            return Enclosed(opening, closing, of) if of else None
    return node


@functools.lru_cache(4000)
def _has_text(regex: str, also: tuple[tuple[str, bool], ...]) -> bool:
    return step_by_step.has_text(f"start: T\nT: {_terminal(regex, also)}")


def _terminal(regex: str, also: tuple[tuple[str, bool], ...]) -> str:
    parts = [(text.replace("/", "\\x2f"), held) for text, held in ((regex, True), *also)]
    return " & ".join(f"{'' if held else '~'}/{text}/" for text, held in parts)


class RegexWriter:
    def __init__(self, rules: list[Any], any_levels: int | None) -> None:
        self._rules, self._any_levels = rules, any_levels
        self._open: set[int] = set()
        self._characters = 0

    def write(self, node: Any, depth: int) -> str:
        match node:
            case Terminal(regex, ()):
                written = regex
            case Sequence(parts):
                written = "".join(self.write(part, depth) for part in parts)
            case Either(ways):
                each = dict.fromkeys(self.write(way, depth) for way in ways)
                written = f"(?:{'|'.join(each)})"
            case Repetition(part, fewest, most):
                inner = self.write(part, depth)
                times = f"{{{fewest},{'' if most is None else most}}}"
                written = (
                    f"(?:{inner}){'?' if (fewest, most) == (0, 1) else times}" if inner else ""
                )
            case Enclosed(opening, closing, inner):
                inner = self.write(inner, depth + 1)
                written = json_text.enclosed(opening, inner, closing, depth)
            case Comma():
                written = json_text.comma(depth - 1)
            case Ref(rule):
                if rule in self._open:
                    raise InvalidRequest("the JSON schema refers to itself.")
                self._open.add(rule)
                written = self.write(self._rules[rule], depth)
                self._open.discard(rule)
            case Anything() if self._any_levels is not None:
                written = json_text.any_value(self._any_levels, depth)
            case _:
                raise InvalidRequest("the JSON schema is not regular.")
        self._characters += len(written)
        if self._characters > MAX_CHARACTERS:
            raise InvalidRequest("the JSON schema is too large for tables.")
        return written


class RulesWriter:
    def __init__(self, rules: list[Any], is_regular: bool, prefix: str) -> None:
        self._rules, self._is_regular, self._prefix = rules, is_regular, prefix
        self._texts: dict[str, str] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._todo: list[tuple[str, int, int]] = []
        self._has_any = False

    def write(self, start: Node) -> tuple[str, str]:
        first = self._of(start, 0)
        lines = [f"{name}: {self._of(self._rules[rule], at)}" for name, rule, at in self._todo]
        if self._has_any:
            scalar = self._text(Terminal(json_text.SCALAR))
            ways = self._of(_ANY_OBJECT, 1), self._of(_ANY_ARRAY, 1)
            lines.append(f"{self._prefix}any: {scalar} | {' | '.join(ways)}")
        lines += [f"{name}: {text}" for text, name in self._texts.items()]
        return first, "\n".join(lines)

    def _text(self, text: Terminal) -> str:
        written = _terminal(text.regex, text.also)
        return self._texts.setdefault(written, f"{self._prefix.upper()}T{len(self._texts)}")

    def _space(self, depth: int) -> str:
        return json_text.line_break(depth if self._is_regular else json_text.DEEPEST)

    def _of(self, node: Any, depth: int) -> str:
        match node:
            case Terminal():
                return self._text(node)
            case Number(schema):
                return f"%json {schema}"
            case Sequence(parts):
                return " ".join(self._of(part, depth) for part in parts) or '""'
            case Either(ways):
                return f"({' | '.join(self._of(way, depth) for way in ways)})"
            case Repetition(part, fewest, most):
                inner = self._of(part, depth)
                signs = {(0, 1): "?", (0, None): "*", (1, None): "+"}
                times = f"{{{fewest},{'' if most is None else most}}}"
                if most == 0:
                    return '""'
                return f"({inner}){signs.get((fewest, most), times)}"
            case Enclosed(opening, closing, inner):
                before = self._text(Terminal(f"\\{opening}{self._space(depth + 1)}"))
                following = self._text(Terminal(f"{self._space(depth)}\\{closing}"))
                return f"{before} {self._of(inner, depth + 1)} {following}"
            case Comma():
                return self._text(Terminal(f"[ ]?,{self._space(depth)}"))
            case Ref(rule):
                place = rule, depth if self._is_regular else 0
                if place not in self._names:
                    self._names[place] = name = f"{self._prefix}r{len(self._names)}"
                    self._todo.append((name, rule, depth))
                return self._names[place]
        self._has_any = True
        return f"{self._prefix}any"


def _any_number_of(each: Node) -> Node:
    return optional(in_order(each, Repetition(in_order(COMMA, each), 0, None)))


_ANY_MEMBER = in_order(Terminal(json_text.STRING + json_text.COLON), ANYTHING)
_ANY_OBJECT = Enclosed("{", "}", _any_number_of(_ANY_MEMBER))
_ANY_ARRAY = Enclosed("[", "]", _any_number_of(ANYTHING))
