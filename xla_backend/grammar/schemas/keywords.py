"""What keywords say: the branches of which one must hold where a keyword holds, or does not.

`algebra` multiplies them out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Protocol

from xla_backend.grammar import json_text
from xla_backend.grammar.pattern import Pattern
from xla_backend.grammar.schemas.conditions import (
    ALL,
    Branch,
    Case,
    Condition,
    Count,
    Factor,
    Goal,
    Goals,
    Items,
    Length,
    Matches,
    Members,
    Multiple,
    Names,
    Other,
    Range,
    Required,
    Size,
    SomeItem,
    SomeMember,
    Unique,
    refused,
)
from xla_backend.grammar.schemas.drafts import NUMBER_FORMATS
from xla_backend.interface.errors import InvalidRequest

NOTES = frozenset(
    "title description default examples example $schema $id id $comment deprecated readOnly "
    "writeOnly $defs definitions $anchor $dynamicAnchor $recursiveAnchor $vocabulary discriminator "
    "xml externalDocs contentEncoding contentMediaType contentSchema then else minContains "
    "maxContains nullable components markdownDescription enumNames propertyOrdering".split()
)
"""Keywords that allow and forbid nothing, or are read with others."""
_FREE_FORMATS = frozenset("float double byte binary password".split())
"""OpenAPI's, which forbid nothing."""


class Schemas(Protocol):
    """What keywords need of `algebra.Algebra`."""

    is_closed: bool
    is_lenient: bool
    nothing: Goal

    def goal(self, schema: Any, at: str, is_held: bool = True) -> Goal: ...

    def cases(self, goals: Goals) -> list[Case]: ...

    def overlap(self, one: Goal, other: Goal) -> bool: ...

    def target(self, ref: str, at: str) -> Any: ...


Reader = Callable[[Schemas, Any, Mapping[str, Any], str, bool], Factor]


def _either(is_held: bool, kind: str, held: Condition, *violated: Condition) -> Factor:
    """A condition on values of a type, or what violates it."""
    if is_held:
        return [Branch(Case(conditions=(held,)))]
    return [Branch(Case(frozenset([kind]), (each,))) for each in violated]


def _type(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    is_whole = "integer" in value and "number" not in value
    types = frozenset("number" if kind == "integer" else kind for kind in value) & ALL
    whole = Multiple(Decimal(1), is_held)
    if is_held:
        return [Branch(Case(types, (whole,) if is_whole else ()))]
    found = [Branch(Case(ALL - types))] if ALL - types else []
    return [*found, Branch(Case(frozenset(["number"]), (whole,)))] if is_whole else found


def _values(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    values = tuple(value)
    try:  # Python's reader takes NaN and Infinity
        json.dumps(values, allow_nan=False)
    except ValueError:
        raise refused("a value that is no JSON", at) from None
    if not is_held:
        return [Branch(Case(conditions=(Other(values),)))]
    return [Branch(Case(values=values))] if values else []


def _fewest(kind: str, condition: type) -> Reader:
    def read(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
        violated = [condition(0, value - 1)] if value else []
        return _either(is_held, kind, condition(value, None), *violated)

    return read


def _most(kind: str, condition: type) -> Reader:
    def read(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
        return _either(is_held, kind, condition(0, value), condition(value + 1, None))

    return read


def _bound(is_low: bool, is_in: bool) -> Reader:
    def read(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
        number = Decimal(str(value))
        held = Range((number, is_in), None) if is_low else Range(None, (number, is_in))
        rest = Range(None, (number, not is_in)) if is_low else Range((number, not is_in), None)
        return _either(is_held, "number", held, rest)

    return read


def _multiple(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    step = Decimal(str(value))
    return _either(is_held, "number", Multiple(step, True), Multiple(step, False))


def _pattern(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    try:
        pattern = Pattern(value)
    except InvalidRequest as error:
        if of.is_lenient:
            return no_branch(of, value, schema, at, is_held)
        raise InvalidRequest(f"at {at} of the JSON schema {error}") from error
    return _either(is_held, "string", Matches(pattern, True), Matches(pattern, False))


def _format(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    if value in json_text.FORMATS:
        pattern = Pattern.of_format(value)
        return _either(is_held, "string", Matches(pattern, True), Matches(pattern, False))
    if of.is_closed and not of.is_lenient and value not in {*_FREE_FORMATS, *NUMBER_FORMATS}:
        raise InvalidRequest(
            f"the JSON schema has the format {value[:40]!r} at {at}, which cannot be followed: "
            f"use one of {', '.join(json_text.FORMATS)}, a pattern, or ask without strict."
        )
    return no_branch(of, value, schema, at, is_held)  # a note, as the drafts say


def _properties(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    place = at.rpartition("/")[0]
    properties = {name: of.goal(each, f"{at}/{name}", is_held) for name, each in value.items()}
    patterns = tuple(
        (Pattern(text), of.goal(each, f"{place}/patternProperties/{text}", is_held))
        for text, each in schema.get("patternProperties", {}).items()
    )
    rest = schema.get("additionalProperties")
    others = None if rest is None else of.goal(rest, f"{place}/additionalProperties", is_held)
    members = Members(properties, patterns, others, rest is not None, is_order=True)
    if is_held:
        return [Branch(Case(conditions=(members,)))]
    conditions: list[tuple[Condition, ...]] = [
        (Required((name,)), Members({name: goal})) for name, goal in properties.items()
    ]
    conditions += [(SomeMember(goal, pattern=pattern),) for pattern, goal in patterns]
    if others is not None:
        conditions.append((SomeMember(others, siblings=members),))
    return [Branch(Case(frozenset(["object"]), each)) for each in conditions]


def no_branch(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    """Read with another keyword."""
    return [Branch(Case())] if is_held else []


def _names(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    goal = of.goal(value, at, is_held)
    return _either(is_held, "object", Names(goal), SomeMember(name=goal))


def _required(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    absent = [Members({name: of.nothing}) for name in value]
    return _either(is_held, "object", Required(tuple(value)), *absent)


def _prefix(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    rest = of.goal(schema["items"], f"{at.rpartition('/')[0]}/items", is_held)
    front = tuple(of.goal(each, f"{at}/{n}", is_held) for n, each in enumerate(value))
    if is_held:
        return [Branch(Case(conditions=(Items(front, rest),)))]
    free = of.goal(True, at)
    found: list[tuple[Condition, ...]] = [
        (Count(n + 1, None), Items((*[free] * n, goal), None)) for n, goal in enumerate(front)
    ]
    found.append((SomeItem(len(front), rest),))
    return [Branch(Case(frozenset(["array"]), each)) for each in found]


def _items(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    if "prefixItems" in schema:
        return no_branch(of, value, schema, at, is_held)
    goal = of.goal(value, at, is_held)
    return _either(is_held, "array", Items((), goal), SomeItem(0, goal))


def _contains(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    fewest, most = schema.get("minContains", 1), schema.get("maxContains")
    if fewest == 0 and most is None:
        return no_branch(of, value, schema, at, is_held)
    if fewest > 1 or most is not None:
        raise refused("minContains or maxContains", at)
    goal = of.goal(value, at, is_held)
    return _either(is_held, "array", SomeItem(0, goal), Items((), goal))


def _unique(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    if not value:
        return no_branch(of, value, schema, at, is_held)
    if not is_held:
        raise refused("uniqueItems under not or oneOf", at)
    return _either(True, "array", Unique())


def _combined(are_all: bool) -> Reader:
    """All of them hold, or any; under negation the other way round."""

    def read(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
        goals = [of.goal(each, f"{at}/{n}", is_held) for n, each in enumerate(value)]
        if are_all is is_held:
            return [Branch(Case(), tuple(goals))]
        return [Branch(Case(), (goal,)) for goal in goals]

    return read


def _one_of(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    held, violated = (
        [of.goal(each, f"{at}/{n}", way) for n, each in enumerate(value)] for way in (True, False)
    )
    overlap = {(n, m) for n in range(len(held)) for m in range(n) if of.overlap(held[n], held[m])}
    if not is_held:
        both = [Branch(Case(), (held[n], held[m])) for n, m in sorted(overlap)]
        return [Branch(Case(), tuple(violated)), *both]
    others = [
        [m for m in range(len(held)) if (max(n, m), min(n, m)) in overlap] for n in range(len(held))
    ]
    return [
        Branch(Case(), (goal, *(violated[m] for m in others[n]))) for n, goal in enumerate(held)
    ]


def _not(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    return [Branch(Case(), (of.goal(value, at, not is_held),))]


def _if(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    place = at.rpartition("/")[0]

    def branch(way: str) -> Branch:
        goal = of.goal(schema.get(way, True), f"{place}/{way}", is_held)
        return Branch(Case(), (of.goal(value, at, way == "then"), goal))

    return [branch("then"), branch("else")]


def _dependencies(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    needs = [
        ({"required": each} if isinstance(each, list) else each, name)
        for name, each in value.items()
    ]
    if not is_held:
        return [
            Branch(
                Case(frozenset(["object"]), (Required((name,)),)),
                (of.goal(each, f"{at}/{name}", False),),
            )
            for each, name in needs
        ]
    if len(needs) > 1:
        parts = [{"dependentSchemas": {name: each}} for each, name in needs]
        return _combined(True)(of, parts, schema, at, True)
    return [
        branch
        for each, name in needs
        for branch in (
            Branch(Case(conditions=(Members({name: of.nothing}),))),
            Branch(Case(conditions=(Required((name,)),)), (of.goal(each, f"{at}/{name}"),)),
        )
    ] or [Branch(Case())]


def _ref(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    goal = of.goal(of.target(value, at), value, is_held)
    return [Branch(Case(), (goal,))]


def _unevaluated(of: Schemas, value: Any, schema: Any, at: str, is_held: bool) -> Factor:
    """What no other keyword of the schema has spoken of, in the case at hand."""
    if not is_held:
        raise refused(at.rpartition("/")[2], at, "use additionalProperties")
    rest, siblings = value
    goal = of.goal(rest, at)
    found = []
    for case in of.cases((of.goal(siblings, at.rpartition("/")[0]),)):
        more: Condition
        if at.endswith("Properties"):
            members = case.of(Members)
            named = {name: of.goal(True, at) for each in members for name in each.properties}
            patterns = tuple(pair for each in members for pair in each.patterns)
            is_rest = not any(each.is_given for each in members)
            more = Members(named, patterns, goal if is_rest else None, True)
        else:
            items = case.of(Items)
            size = max((len(each.front) for each in items), default=0)
            is_rest = all(each.rest is None or each.rest.schema is True for each in items)
            more = Items((of.goal(True, at),) * size, goal if is_rest else None)
        found.append(Branch(case._replace(conditions=(*case.conditions, more))))
    return found


READ: dict[str, Reader] = {
    "type": _type,
    "enum": _values,
    "const": lambda of, value, *more: _values(of, [value], *more),
    "minLength": _fewest("string", Length),
    "maxLength": _most("string", Length),
    "pattern": _pattern,
    "format": _format,
    "minimum": _bound(True, True),
    "maximum": _bound(False, True),
    "exclusiveMinimum": _bound(True, False),
    "exclusiveMaximum": _bound(False, False),
    "multipleOf": _multiple,
    "properties": _properties,
    "patternProperties": no_branch,
    "additionalProperties": no_branch,
    "propertyNames": _names,
    "required": _required,
    "minProperties": _fewest("object", Size),
    "maxProperties": _most("object", Size),
    "prefixItems": _prefix,
    "items": _items,
    "minItems": _fewest("array", Count),
    "maxItems": _most("array", Count),
    "uniqueItems": _unique,
    "contains": _contains,
    "allOf": _combined(True),
    "anyOf": _combined(False),
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "dependencies": _dependencies,
    "dependentRequired": _dependencies,
    "dependentSchemas": _dependencies,
    "$ref": _ref,
    "$dynamicRef": _ref,
    "$recursiveRef": _ref,
    "unevaluatedProperties": _unevaluated,
    "unevaluatedItems": _unevaluated,
}
