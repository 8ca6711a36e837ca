"""llama.cpp's grammars as text (GBNF), in the notation of `step_by_step`.

Knows their notation (llama.cpp, grammars/README.md), which vLLM's `guided_grammar` shares. Must not
know tokens.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from xla_backend.grammar import json_text
from xla_backend.interface.errors import InvalidRequest

ROOT = "root"
_PART = re.compile(
    r"(?P<skipped>\s+|#[^\n]*)|(?P<rule>[\w-]+)\s*::=|(?P<name>[\w-]+)"
    r'|"(?P<text>(?:\\.|[^"\\])*)"|\[(?P<not>\^?)(?P<set>(?:\\.|[^]\\])*)\]'
    r"|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\}|(?P<sign>[.()|*+?])",
    re.DOTALL,
)
_CHARACTER = r"\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|[^\\]"
_SPAN = re.compile(rf"({_CHARACTER})(?:-({_CHARACTER}))?", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class _Reference(NamedTuple):
    name: str


class _Sequence(NamedTuple):
    parts: list[_Node]


class _Either(NamedTuple):
    ways: list[_Node]


class _Repeated(NamedTuple):
    part: _Node
    times: str


_Node = str | _Reference | _Sequence | _Either | _Repeated
"""A part of a rule; text is a regular expression already."""


def rules(text: str) -> str:
    """The rules, of which `start` allows what `root` does; they may be recursive.

    The longest match of a part always counts, so each character is a part of its own.
    """
    try:
        found = _Reader(text).rules()
        names = {name: f"r{number}" for number, name in enumerate(found)}
        written = [f"{names[name]}: {_in_parts(node, names)}" for name, node in found.items()]
        return "\n".join([f"start: {names[ROOT]}", *written])
    except KeyError as error:
        raise InvalidRequest(f"the grammar has no rule {error}.") from error
    except RecursionError:
        raise InvalidRequest("the grammar is nested too deeply.") from None


def _in_parts(node: _Node, names: dict[str, str]) -> str:
    match node:
        case _Reference(name):
            return names[name]
        case _Sequence(parts):
            return " ".join(_in_parts(part, names) for part in parts) or '""'
        case _Either(ways):
            return f"({' | '.join(_in_parts(way, names) for way in ways)})"
        case _Repeated(part, times):
            return f"({_in_parts(part, names)}){times}"
    return " ".join(f"/{each}/" for each in re.findall(r"\[.*?\]", node)) or '""'


class _Reader:
    def __init__(self, text: str) -> None:
        self._parts: list[re.Match[str]] = []
        at = 0
        while at < len(text):
            if not (part := _PART.match(text, at)):
                line = text.count("\n", 0, at) + 1
                raise InvalidRequest(
                    f"the grammar cannot be read in line {line}, at {text[at : at + 20]!r}."
                )
            at = part.end()
            if part["skipped"] is None:
                self._parts.append(part)
        self._parts.reverse()

    def rules(self) -> dict[str, _Node]:
        rules = {}
        while self._parts:
            if (name := self._parts.pop()["rule"]) is None:
                raise InvalidRequest("a grammar consists of rules, as root ::= [0-9]+.")
            rules[name] = self._either()
        return rules

    def _either(self) -> _Node:
        ways = [self._sequence()]
        while self._next_is("|"):
            self._parts.pop()
            ways.append(self._sequence())
        return _Either(ways)

    def _next_is(self, signs: str) -> bool:
        return bool(self._parts) and (self._parts[-1]["sign"] or " ") in signs

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._parts and self._parts[-1]["rule"] is None and not self._next_is("|)"):
            part = self._parts.pop()
            if part["text"] is not None:
                spans = _spans(part["text"], with_ranges=False)
                parts.append("".join(json_text.any_of([span]) for span in spans))
            elif part["set"] is not None:
                spans = _spans(part["set"])
                spans = json_text.complement(spans) if part["not"] else json_text.joined(spans)
                parts.append(json_text.any_of(spans))
            elif part["name"]:
                parts.append(_Reference(part["name"]))
            elif part["sign"] == ".":
                parts.append(json_text.any_of(json_text.complement([])))
            elif part["sign"] == "(":
                parts.append(self._either())
                if not self._next_is(")"):
                    raise InvalidRequest("the grammar has a group that is not closed.")
                self._parts.pop()
            elif not parts:
                raise InvalidRequest(f"the grammar has nothing before {part[0]!r} to repeat.")
            else:
                least = part["least"] or "0"
                if part["most"] and int(least) > int(part["most"]):
                    raise InvalidRequest(
                        f"the grammar has {part[0]}, whose first number is larger."
                    )
                times = f"{{{least}{part['comma']}{part['most']}}}"
                parts[-1] = _Repeated(parts[-1], part["sign"] or times)
        return _Sequence(parts)


def _spans(text: str, with_ranges: bool = True) -> json_text.Ranges:
    spans = []
    characters = _SPAN if with_ranges else re.compile(f"({_CHARACTER})()", re.DOTALL)
    for first, last in characters.findall(text):
        span = (_code(first), _code(last or first))
        if span[0] > span[1]:
            raise InvalidRequest(f"the grammar has a range that is empty: {first}-{last}.")
        spans.append(span)
    return spans


def _code(character: str) -> int:
    if not character.startswith("\\"):
        return ord(character)
    if len(character) > 2:
        return int(character[2:], 16)
    return ord(_ESCAPED.get(character[1], character[1]))
