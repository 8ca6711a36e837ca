"""Conditions on JSON values: what remains of a schema's keywords."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from xla_backend.grammar.json_text import Bound
from xla_backend.grammar.pattern import Pattern
from xla_backend.interface.errors import InvalidRequest

TYPES = ("object", "array", "string", "number", "boolean", "null")
ALL = frozenset(TYPES)


@dataclass(frozen=True, eq=False)
class Goal:
    """A schema that must hold, or must not.

    Attributes:
        schema: an object of keywords, or a boolean. at: its place.
        is_held: False if it must not hold.
    """

    schema: Any
    at: str
    is_held: bool = True


Goals = tuple[Goal, ...]
"""All of which a value must satisfy."""


@dataclass(frozen=True)
class Length:
    fewest: int
    most: int | None


@dataclass(frozen=True)
class Matches:
    """A pattern or, with quotes, the texts of a format."""

    pattern: Pattern
    is_held: bool


@dataclass(frozen=True)
class Range:
    low: Bound | None
    high: Bound | None


@dataclass(frozen=True)
class Multiple:
    of: Decimal
    is_held: bool


@dataclass(frozen=True, eq=False)
class Other:
    """None of some values."""

    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Members:
    """What the values of an object's members satisfy, by name, by pattern, and of other names."""

    properties: Mapping[str, Goal]
    patterns: tuple[tuple[Pattern, Goal], ...] = ()
    others: Goal | None = None
    is_given: bool = False
    """Whether the schema says what others are."""
    is_order: bool = False
    """Whether members come in the order of these properties."""

    def goals(self, name: str) -> Iterator[Goal]:
        found = [goal for pattern, goal in self.patterns if pattern.is_in(name)]
        if name in self.properties:
            found.insert(0, self.properties[name])
        yield from found or filter(None, [self.others])

    def has(self, name: str) -> bool:
        return name in self.properties or any(pattern.is_in(name) for pattern, _ in self.patterns)


@dataclass(frozen=True)
class Required:
    names: tuple[str, ...]


@dataclass(frozen=True)
class Size:
    """Numbers of an object's members."""

    fewest: int
    most: int | None


@dataclass(frozen=True)
class Names:
    """What all names satisfy."""

    goal: Goal


@dataclass(frozen=True, eq=False)
class SomeMember:
    """There is a member whose name is other than those of `beside`, matches `pattern`, or violates
    `name`, and whose value satisfies `goal`."""

    goal: Goal | None = None
    siblings: Members | None = None
    pattern: Pattern | None = None
    name: Goal | None = None


@dataclass(frozen=True, eq=False)
class Items:
    """What an array's items satisfy: the first ones, and the others."""

    front: tuple[Goal, ...]
    rest: Goal | None


@dataclass(frozen=True)
class Count:
    """Numbers of items."""

    fewest: int
    most: int | None


@dataclass(frozen=True)
class SomeItem:
    """There is an item from a place on that satisfies a goal."""

    start: int
    goal: Goal


@dataclass(frozen=True)
class Unique:
    """No two items are equal."""


Condition = (
    Length
    | Matches
    | Range
    | Multiple
    | Other
    | Members
    | Required
    | Size
    | Names
    | SomeMember
    | Items
    | Count
    | SomeItem
    | Unique
)
OF_TYPE: dict[type, str] = {
    **dict.fromkeys((Length, Matches), "string"),
    **dict.fromkeys((Range, Multiple), "number"),
    **dict.fromkeys((Members, Required, Size, Names, SomeMember), "object"),
    **dict.fromkeys((Items, Count, SomeItem, Unique), "array"),
}


class Case(NamedTuple):
    """Values of some types that satisfy conditions, each of which concerns one type.

    Attributes:
        values: the only ones, which satisfy all conditions; None for any.
    """

    types: frozenset[str] = ALL
    conditions: tuple[Condition, ...] = ()
    values: tuple[Any, ...] | None = None

    def of(self, *kinds: type) -> list[Any]:
        return [each for each in self.conditions if isinstance(each, kinds)]


class Branch(NamedTuple):
    """Values of a case that satisfy goals, too."""

    case: Case
    goals: Goals = ()


Factor = Sequence[Branch]
"""One of which must hold."""


def key(value: Any) -> str:
    """The same for equal JSON values only."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {dict: "object", list: "array", str: "string", type(None): "null"}[type(value)]


def merged_range(ranges: Iterable[Range]) -> tuple[Bound | None, Bound | None]:
    """The lowest and the highest number that all allow; None for no bound."""
    low = high = None
    for each in ranges:
        if each.low and (low is None or (each.low[0], not each.low[1]) > (low[0], not low[1])):
            low = each.low
        if each.high and (high is None or (each.high[0], each.high[1]) < (high[0], high[1])):
            high = each.high
    return low, high


def merged_count(counts: Iterable[Any]) -> tuple[int, int | None]:
    """The fewest and the most that all allow."""
    fewest, most = 0, None
    for each in counts:
        fewest = max(fewest, each.fewest)
        if each.most is not None:
            most = each.most if most is None else min(most, each.most)
    return fewest, most


def refused(what: str, at: str, instead: str = "leave it out") -> InvalidRequest:
    return InvalidRequest(
        f"the JSON schema has {what} at {at}, which the grammar cannot hold: {instead}."
    )
