"""Texts of strings, numbers and constants that a case allows, as parts of rules."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from xla_backend.grammar import json_text
from xla_backend.grammar.schemas.conditions import (
    Case,
    Length,
    Matches,
    Multiple,
    Range,
    merged_count,
    merged_range,
    refused,
)
from xla_backend.grammar.schemas.rules import (
    COMMA,
    Either,
    Enclosed,
    Node,
    Number,
    Sequence,
    Terminal,
)
from xla_backend.interface.errors import InvalidRequest


def constants(values: Iterable[Any]) -> Iterable[Node]:
    scalars = [value for value in values if not isinstance(value, list | dict)]
    if scalars:
        yield Terminal(any_constant(scalars))
    for value in values:
        if isinstance(value, list | dict):
            yield _constant(value)


def _constant(value: Any) -> Node:
    if not isinstance(value, list | dict):
        return Terminal(json_text.value(value))
    parts: list[Node] = []
    for each in value:
        parts += [COMMA] if parts else []
        if isinstance(value, dict):
            parts.append(Terminal(json_text.value(each) + json_text.COLON))
        parts.append(_constant(value[each] if isinstance(value, dict) else each))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return Enclosed(opening, closing, Sequence(tuple(parts)))


def any_constant(values: Iterable[Any]) -> str:
    return f"(?:{'|'.join(dict.fromkeys(map(json_text.value, values)))})"


def negated(parts: list[tuple[str, bool]], is_held: bool) -> list[tuple[str, bool]]:
    if is_held:
        return parts
    if len(parts) > 1:
        raise InvalidRequest("a pattern with look-around cannot be excluded: write it without.")
    return [(parts[0][0], False)]


def string(case: Case, others: list[str]) -> list[tuple[str, bool]]:
    """The expressions of a string's text that match, or do not; none for any string."""
    parts: list[tuple[str, bool]] = []
    fewest, most = merged_count(case.of(Length))
    held = [each.pattern for each in case.of(Matches) if each.is_held]
    for each in case.of(Matches):
        parts += negated(each.pattern.in_string(), each.is_held)
    low = max((pattern.lengths()[0] for pattern in held), default=0)
    high = min((pattern.lengths()[1] for pattern in held), default=float("inf"))
    if fewest > low or (most is not None and most < high):
        bounds = f"{{{fewest},{'' if most is None else most}}}"
        parts.append((f'"{json_text.CHARACTER}{bounds}"', True))
    if others:
        parts.append((any_constant(others), False))
    return parts


def text(parts: list[tuple[str, bool]], is_name: bool = False) -> Terminal:
    """A string that all parts say something of."""
    parts = list(dict.fromkeys(parts))
    first = next((part for part in parts if part[1]), (json_text.STRING, True))
    rest = tuple(part for part in parts if part != first)
    colon = json_text.COLON if is_name else ""
    return Terminal(first[0] + colon, tuple((text + colon, held) for text, held in rest))


def number(case: Case, others: list[Any], at: str) -> Node:
    low, high = merged_range(case.of(Range))
    multiples = case.of(Multiple)
    steps = [each.of for each in multiples if each.is_held]
    if any(not each.is_held and each.of != 1 for each in multiples):
        raise refused("multipleOf under not or oneOf", at)
    is_whole, is_broken = 1 in steps, any(not each.is_held for each in multiples)
    if finer := [step for step in steps if step != 1]:
        if others or is_broken or len(finer) > 1:
            raise refused("multipleOf beside multipleOf, not or oneOf", at)
        schema: dict[str, Any] = {"type": "integer" if is_whole else "number"}
        schema["multipleOf"] = float(finer[0]) if finer[0] % 1 else int(finer[0])
        for bound, name in ((low, "inimum"), (high, "aximum")):
            if bound:
                letter = "m" if bound[1] else "exclusiveM"
                schema[f"{letter}{name}"] = float(bound[0]) if bound[0] % 1 else int(bound[0])
        return Number(json.dumps(schema))
    if is_whole:
        least = None if low is None else json_text.whole(low[0], up=True, apart=not low[1])
        top = None if high is None else json_text.whole(high[0], up=False, apart=not high[1])
        if least is not None and top is not None and least > top:
            return Either(())
        is_free = least is None and top is None
        regex = json_text.INTEGER if is_free else json_text.integer(least, top)
    elif low is None and high is None:
        regex = rf"{json_text.INTEGER}(?:\.[0-9]+)?" if others or is_broken else json_text.NUMBER
    else:
        regex = json_text.number(low, high)
    also = [(f"{json_text.value(_short(value))}(?:\\.0+)?", False) for value in others]
    if is_broken:
        also.append((rf"{json_text.INTEGER}(?:\.0+)?", False))
    return Terminal(regex, tuple(also))


def _short(value: float) -> float:
    return int(value) if value == int(value) else value
