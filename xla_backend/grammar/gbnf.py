"""llama.cpp's grammars as text (GBNF), in the notation of `step_by_step`.

Knows their notation (llama.cpp, grammars/README.md), which vLLM's `guided_grammar` shares. Must not
know tokens.
"""

from __future__ import annotations

import re

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


def rules(text: str) -> str:
    """The rules, of which `start` allows what `root` does; they may be recursive.

    The longest match of a part always counts, so each character is a part of its own.
    """
    try:
        return _Reader(text).rules()
    except RecursionError:
        raise InvalidRequest("the grammar is nested too deeply.") from None


class _Reader:
    def __init__(self, text: str) -> None:
        self._parts: list[re.Match[str]] = []
        self._names = {ROOT: ROOT}
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

    def rules(self) -> str:
        written = {}
        while self._parts:
            if (name := self._parts.pop()["rule"]) is None:
                raise InvalidRequest("a grammar consists of rules, as root ::= [0-9]+.")
            written[name] = f"{self._named(name)}: {self._either()}"
        for name in self._names:
            if name not in written:
                raise InvalidRequest(f"the grammar has no rule {name!r}.")
        return "\n".join([f"start: {ROOT}", *written.values()])

    def _named(self, name: str) -> str:
        return self._names.setdefault(name, f"r{len(self._names)}")

    def _either(self) -> str:
        ways = [self._sequence()]
        while self._next_is("|"):
            self._parts.pop()
            ways.append(self._sequence())
        return f"({' | '.join(ways)})"

    def _next_is(self, signs: str) -> bool:
        return bool(self._parts) and (self._parts[-1]["sign"] or " ") in signs

    def _sequence(self) -> str:
        parts: list[str] = []
        while self._parts and self._parts[-1]["rule"] is None and not self._next_is("|)"):
            part = self._parts.pop()
            if part["text"] is not None:
                spans = _spans(part["text"], with_ranges=False)
                parts.append(" ".join(f"/{json_text.any_of([span])}/" for span in spans) or '""')
            elif part["set"] is not None:
                spans = _spans(part["set"])
                spans = json_text.complement(spans) if part["not"] else json_text.joined(spans)
                parts.append(f"/{json_text.any_of(spans)}/")
            elif part["name"]:
                parts.append(self._named(part["name"]))
            elif part["sign"] == ".":
                parts.append(f"/{json_text.any_of(json_text.complement([]))}/")
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
                parts[-1] = f"({parts[-1]}){part['sign'] or times}"
        return " ".join(parts) or '""'


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
