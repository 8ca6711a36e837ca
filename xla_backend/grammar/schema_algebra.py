"""JSON schemas as sets of values: a union of cases, each the intersection of a few conditions.

Knows the keywords (drafts 4 to 2020-12 and OpenAPI 3.0), and what becomes of them under negation.
Must not know how values are written, nor automata. `not`, `oneOf`, `if`, `dependencies` and the
others are set operations: each schema that must hold, or must not, is a disjunction of conditions,
and these are multiplied out. Cases without values are dropped on the way, so that branches with
different tags do not multiply.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

from xla_backend.grammar import json_text
from xla_backend.grammar.json_text import Bound
from xla_backend.grammar.pattern import Pattern
from xla_backend.interface.errors import InvalidRequest

MAX_STEPS = 60_000
"""Branches looked at: some seconds."""
TYPES = ("object", "array", "string", "number", "boolean", "null")
_ALL = frozenset(TYPES)
_ALIASES = {
    "int": "integer",
    "float": "number",
    "double": "number",
    "str": "string",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
}
"""What people write for types."""
_NOTES = frozenset(
    "title description default examples example $schema $id id $comment deprecated readOnly "
    "writeOnly $defs definitions $anchor $dynamicAnchor $recursiveAnchor $vocabulary discriminator "
    "xml externalDocs contentEncoding contentMediaType contentSchema then else minContains "
    "maxContains nullable markdownDescription enumNames propertyOrdering".split()
)
"""Keywords that allow and forbid nothing, or are read with others."""
_NUMBER_FORMATS = {"int32": 31, "int64": 63}
_FREE_FORMATS = frozenset("float double byte binary password".split())
"""OpenAPI's, which forbid nothing."""


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
    beside: Members | None = None
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
_OF_TYPE: dict[type, str] = {
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

    types: frozenset[str] = _ALL
    conditions: tuple[Condition, ...] = ()
    values: tuple[Any, ...] | None = None

    def of(self, *kinds: type) -> list[Any]:
        """The conditions of some kinds."""
        return [each for each in self.conditions if isinstance(each, kinds)]


class _Branch(NamedTuple):
    case: Case
    goals: Goals = ()


_Factor = Sequence[_Branch]
"""One of which must hold."""
_Place = tuple[int, ...]
_Placed = tuple[_Place, _Factor]


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
    """The type of a JSON value."""
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


class Algebra:
    """The cases of a document's schemas."""

    def __init__(self, root: Any, *, is_closed: bool, is_lenient: bool = False) -> None:
        """Takes a schema.

        Args:
            root: the schema.
            is_closed: as under OpenAI's `strict`: objects have no other members than those named,
                unless `additionalProperties` says so, and keywords that are not known are refused.
            is_lenient: whether a keyword that cannot be read is left out.
        """
        self.is_closed, self.is_lenient = is_closed, is_lenient
        self.root = root
        self._steps = 0
        self._goals: dict[tuple[Any, bool], Goal] = {}
        self._read: dict[int, dict[str, Any]] = {}
        self._factors: dict[Goal, list[_Factor]] = {}
        self._cases: dict[Goals, list[Case]] = {}
        self._open: set[Goals] = set()
        self._named: dict[str, Any] = {}
        self._made: list[Any] = []  # keeps schemas that have an identity here
        self._index(root, "")
        named = str(root.get("$schema", "")) if isinstance(root, Mapping) else ""
        self._refs_alone = any(f"draft-0{n}" in named for n in (3, 4, 6, 7))
        self.nothing = self.goal(False, "#")

    def goal(self, schema: Any, at: str, is_held: bool = True) -> Goal:
        """The same for the same schema."""
        if schema == {} and isinstance(schema, Mapping):
            schema = True
        if isinstance(schema, bool):
            schema, is_held, at = schema is is_held, True, "#"
        elif not isinstance(schema, Mapping):
            if not self.is_lenient:
                raise InvalidRequest(f"the JSON schema must have an object or a boolean at {at}.")
            schema, is_held, at = True, True, "#"
        else:
            self._made.append(schema)
        name = schema if isinstance(schema, bool) else id(schema), is_held
        if name not in self._goals:
            self._goals[name] = Goal(schema, at, is_held)
        return self._goals[name]

    def cases(self, goals: Goals) -> list[Case]:
        """The cases of which each value that satisfies all goals is in at least one.

        Raises:
            InvalidRequest: there are too many, a keyword cannot be read, or cannot be followed.
        """
        if goals not in self._cases:
            self._open.add(goals)
            found: dict[Any, Case] = {}
            for case in self._expand(Case(), self._placed(goals, ()), set(goals), {}):
                values = None if case.values is None else tuple(map(key, case.values))
                found.setdefault((case.types, frozenset(case.conditions), values), case)
            self._open.discard(goals)
            self._cases[goals] = list(found.values())
        return self._cases[goals]

    def is_possible(self, goals: Goals) -> bool:
        """Whether some value may satisfy them; True where that is not known."""
        return goals in self._open or bool(self.cases(goals))

    def holds(self, value: Any, goals: Goals) -> bool:
        """Whether a value satisfies them."""
        return any(self._is_in(value, case) for case in self.cases(goals))

    def _is_in(self, value: Any, case: Case) -> bool:
        if type_of(value) not in case.types:
            return False
        if case.values is not None and key(value) not in map(key, case.values):
            return False
        return all(self._satisfies(value, each) for each in case.conditions)

    def _satisfies(self, value: Any, condition: Condition) -> bool:
        if type(condition) in _OF_TYPE and _OF_TYPE[type(condition)] != type_of(value):
            return True
        match condition:
            case Length() | Size() | Count():
                most = math.inf if condition.most is None else condition.most
                return condition.fewest <= len(value) <= most
            case Matches(pattern, is_held):
                return pattern.is_in(value) is is_held
            case Range(low, high):
                number = Decimal(str(value))
                above = low is None or number > low[0] or (low[1] and number == low[0])
                return above and (
                    high is None or number < high[0] or (high[1] and number == high[0])
                )
            case Multiple(of, is_held):
                return (Decimal(str(value)) % of == 0) is is_held
            case Other(values):
                return key(value) not in map(key, values)
            case Members():
                return all(self.holds(v, (*condition.goals(name),)) for name, v in value.items())
            case Required(names):
                return all(name in value for name in names)
            case Names(goal):
                return all(self.holds(name, (goal,)) for name in value)
            case SomeMember(goal):
                return any(
                    self.is_some(condition, name) and self.holds(v, (goal,) if goal else ())
                    for name, v in value.items()
                )
            case Items(front, rest):
                goals = [*front, *[rest] * (len(value) - len(front))]
                each = zip(value, goals, strict=False)
                return all(goal is None or self.holds(item, (goal,)) for item, goal in each)
            case SomeItem(start, goal):
                return any(self.holds(item, (goal,)) for item in value[start:])
        return len(set(map(key, value))) == len(value)

    def is_some(self, condition: SomeMember, name: str) -> bool:
        """Whether a name is one of which the condition speaks."""
        if condition.beside is not None:
            return not condition.beside.has(name)
        if condition.pattern is not None:
            return condition.pattern.is_in(name)
        return condition.name is None or self.holds(name, (condition.name,))

    def overlap(self, one: Goal, other: Goal) -> bool:
        """Whether some value may satisfy both; True where that is not known."""
        if {(one,), (other,)} & self._open:
            return True
        for mine in self.cases((one,)):
            for others in self.cases((other,)):
                self._step()
                both = _joined(mine, others)
                if both is not None and self._possible(both, is_last=False) is not None:
                    return True
        return False

    def member_goals(self, case: Case, name: str) -> Goals:
        """What the value of a member satisfies."""
        found = [goal for each in case.of(Members) for goal in each.goals(name)]
        return tuple(dict.fromkeys(goal for goal in found if goal.schema is not True))

    def item_goals(self, case: Case, place: int) -> Goals:
        """What an item satisfies."""
        found = [
            each.front[place] if place < len(each.front) else each.rest for each in case.of(Items)
        ]
        return tuple(dict.fromkeys(goal for goal in found if goal and goal.schema is not True))

    # --- multiplying out ------------------------------------------------------------------------

    def _expand(
        self, case: Case, factors: list[_Placed], seen: set[Goal], places: dict[int, _Place]
    ) -> Iterator[Case]:
        """The cases in which a case and one branch of each factor hold.

        Args:
            case, factors: see above; factors come with their places.
            seen: goals whose factors are among them, or were.
            places: where in the schema the conditions of the case stand, by their identity.
        """
        waiting: list[_Placed] = []
        todo = factors[::-1]
        while todo:
            place, factor = todo.pop()
            if len(factor) != 1:
                waiting.append((place, factor))
                continue
            self._step()
            (branch,) = factor
            joined = _joined(case, branch.case)
            if joined is None:
                return
            case = joined
            places |= {id(each): place for each in branch.case.conditions}
            todo += self._placed([goal for goal in branch.goals if goal not in seen], place)[::-1]
            seen |= {*branch.goals}
        possible = self._possible(case, is_last=not waiting)
        if possible is None:
            return
        if not waiting:
            in_order = sorted(possible.conditions, key=lambda each: places[id(each)])
            yield possible._replace(conditions=tuple(in_order))
            return
        (place, first), *rest = waiting
        for branch in first:
            chosen: list[_Placed] = [(place, [branch]), *rest]
            yield from self._expand(possible, chosen, set(seen), dict(places))

    def _placed(self, goals: Iterable[Goal], place: _Place) -> list[_Placed]:
        """The factors of goals, each with its place in a schema that stands at a place."""
        return [
            ((*place, number, at), factor)
            for number, goal in enumerate(goals)
            for at, factor in enumerate(self._factors_of(goal))
        ]

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise InvalidRequest(
                "the JSON schema is too large: its alternatives multiply. Use fewer of anyOf, "
                "oneOf, not and if that hold together."
            )

    def _possible(self, case: Case, is_last: bool) -> Case | None:
        """A case without the types of which no value is left; None if there is none."""
        if case.values is not None:
            others = case._replace(values=None)
            values = tuple(value for value in case.values if self._is_in(value, others))
            if not values:
                return None
            conditions = () if is_last else case.conditions
            return Case(frozenset(map(type_of, values)), conditions, values)
        types = {kind for kind in case.types if self._has_values(kind, case)}
        if not types:
            return None
        if types != case.types or is_last:
            kept = (
                each for each in case.conditions if _OF_TYPE.get(type(each), "") in {*types, ""}
            )
            case = Case(frozenset(types), tuple(kept))
        return case

    def _has_values(self, kind: str, case: Case) -> bool:
        if kind == "number":
            low, high = merged_range(case.of(Range))
            if (
                low
                and high
                and (low[0] > high[0] or (low[0] == high[0] and not (low[1] and high[1])))
            ):
                return False
            multiples = case.of(Multiple)
            return not any(
                one.of == other.of and one.is_held and not other.is_held
                for one in multiples
                for other in multiples
            )
        if kind == "object":
            fewest, most = merged_count(case.of(Size))
            required = {name for each in case.of(Required) for name in each.names}
            if most is not None and max(fewest, len(required)) > most:
                return False
            return all(self.is_possible(self.member_goals(case, name)) for name in required)
        counted = {"string": Length, "array": Count}.get(kind)
        fewest, most = merged_count(case.of(counted)) if counted else (0, None)
        return most is None or fewest <= most

    # --- keywords -------------------------------------------------------------------------------

    def _factors_of(self, goal: Goal) -> list[_Factor]:
        if goal not in self._factors:
            if isinstance(goal.schema, bool):
                found: list[_Factor] = [] if goal.schema else [[]]
            else:
                schema = self._normal(goal.schema, goal.at)
                positive = goal.is_held
                found = [
                    self._conditions(keyword, schema, goal.at, positive)
                    for keyword in schema
                    if keyword not in _NOTES
                ]
                if not positive:  # one of them is violated
                    found = [[branch for factor in found for branch in factor]]
            self._factors[goal] = found
        return self._factors[goal]

    def _conditions(
        self, keyword: str, schema: Mapping[str, Any], at: str, is_held: bool
    ) -> _Factor:
        """The branches of which one holds where a keyword does, or does not."""
        read = _READ.get(keyword)
        if read is None:
            if self.is_closed and not self.is_lenient and not keyword.startswith(("x-", "$")):
                raise InvalidRequest(
                    f"the JSON schema has the unknown keyword {keyword[:40]!r} at {at}: leave it "
                    "out, or ask without strict."
                )
            return _nothing_more(self, None, schema, at, is_held)
        return read(self, schema[keyword], schema, f"{at}/{keyword}", is_held)

    def _normal(self, schema: Mapping[str, Any], at: str) -> dict[str, Any]:
        """A schema with its keywords in the newest draft's form.

        Raises:
            InvalidRequest: one has a value of another type, and is not to be left out.
        """
        if id(schema) in self._read:
            return self._read[id(schema)]
        if "$ref" in schema and self._refs_alone:
            schema = {"$ref": schema["$ref"]}
        found: dict[str, Any] = {}
        for keyword, value in schema.items():
            check = _CHECKS.get(keyword)
            if check is None or (value := check(value)) is not None:
                found[keyword] = value
            elif keyword == "required" and isinstance(schema[keyword], bool):
                continue  # draft 3: read by the schema around it
            elif schema[keyword] is not None and not self.is_lenient:
                raise InvalidRequest(f"{keyword} must be {_MUST[check]} at {at}.")
        for side in ("Minimum", "Maximum"):
            exclusive, bound = f"exclusive{side}", found.get(side.lower())
            is_boolean = isinstance(found.get(exclusive), bool)
            if is_boolean and found.pop(exclusive) and bound is not None:
                found[exclusive] = found.pop(side.lower())
        if found.get("nullable") is True and "type" in found:
            found["type"] = [*found["type"], "null"]
        if "divisibleBy" in found:
            found["multipleOf"] = found.pop("divisibleBy")
        by_draft_3 = [
            name
            for name, each in found.get("properties", {}).items()
            if isinstance(each, Mapping) and each.get("required") is True
        ]
        if by_draft_3:
            found["required"] = [*found.get("required", ()), *by_draft_3]
        if isinstance(found.get("items"), list):
            front, rest = found.pop("items"), found.pop("additionalItems", True)
            found |= {"prefixItems": front, "items": rest}
        found.pop("additionalItems", None)
        if {"patternProperties", "additionalProperties"} & found.keys():
            found.setdefault("properties", {})
        if "prefixItems" in found:
            found.setdefault("items", True)
        if "format" in found and found["format"] in _NUMBER_FORMATS:
            bound = 2 ** _NUMBER_FORMATS[found["format"]]
            found.setdefault("allOf", [])
            found["allOf"] = [*found["allOf"], {"minimum": -bound, "maximum": bound - 1}]
        for keyword in [each for each in found if each.startswith("unevaluated")]:
            if found[keyword] is not True and found[keyword] != {}:
                beside = {k: v for k, v in found.items() if k != keyword}
                found = {keyword: (found[keyword], beside)}
                break
        self._read[id(schema)] = found
        self._made.append(schema)
        return found

    def _index(self, schema: Any, base: str) -> None:
        """Finds the names that references can have."""
        todo = [(schema, base)]
        while todo:
            schema, base = todo.pop()
            if isinstance(schema, Mapping):
                name = schema.get("$id", schema.get("id"))
                if isinstance(name, str):
                    base = urljoin(base, name).rstrip("#")
                    self._named.setdefault(base, schema)
                for each in ("$anchor", "$dynamicAnchor"):
                    if isinstance(schema.get(each), str):
                        self._named.setdefault(f"{base}#{schema[each]}", schema)
                todo += [(each, base) for k, each in schema.items() if k not in ("enum", "const")]
            elif isinstance(schema, list):
                todo += [(each, base) for each in schema]

    def target(self, ref: str, at: str) -> Any:
        """The part of the schema that a reference (RFC 6901 behind #) names."""
        base, _, pointer = ref.partition("#")
        names = [ref, *(f"{known}#{pointer}" for known in self._named if not base)]
        ways = [self.root] if not base else []
        ways += [of for known, of in self._named.items() if base and _same_document(known, base)]
        for name in names:
            if pointer and not pointer.startswith("/") and name in self._named:
                return self._named[name]
        for target in ways:
            if pointer and not pointer.startswith("/"):
                break
            for part in pointer.split("/")[1:]:
                name = _unquoted(part)
                try:
                    target = target[int(name) if isinstance(target, list) else name]
                except (KeyError, TypeError, ValueError, IndexError):
                    break
            else:
                return target
        if self.is_lenient:
            return True
        raise InvalidRequest(
            f"the JSON schema has {ref[:60]!r} at {at}, and there is nothing of that name in "
            'it; refer to a part of it, as "#/$defs/name".'
        )


def _same_document(known: str, base: str) -> bool:
    return known == base or known.rstrip("/").endswith("/" + base.lstrip("./"))


def _unquoted(part: str) -> str:
    return unquote(part).replace("~1", "/").replace("~0", "~")


def _joined(one: Case, other: Case) -> Case | None:
    """Both; None where they have no type in common."""
    types = one.types & other.types
    if not types:
        return None
    values = one.values if other.values is None else other.values
    if one.values is not None and other.values is not None:
        common = set(map(key, one.values))
        values = tuple(value for value in other.values if key(value) in common)
    known = set(one.conditions)
    more = tuple(each for each in other.conditions if each not in known)
    return Case(types, one.conditions + more, values)


# --- what keywords say: each returns the branches of which one must hold --------------------------

_Reader = Callable[[Algebra, Any, Mapping[str, Any], str, bool], _Factor]


def _either(kind: str, held: Condition, *violated: Condition) -> Callable[[bool], _Factor]:
    """A condition on values of a type, or what violates it."""

    def branches(is_held: bool) -> _Factor:
        if is_held:
            return [_Branch(Case(conditions=(held,)))]
        return [_Branch(Case(frozenset([kind]), (each,))) for each in violated]

    return branches


def _type(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    is_whole = "integer" in value and "number" not in value
    types = frozenset("number" if kind == "integer" else kind for kind in value) & _ALL
    whole = Multiple(Decimal(1), is_held)
    if is_held:
        return [_Branch(Case(types, (whole,) if is_whole else ()))]
    found = [_Branch(Case(_ALL - types))] if _ALL - types else []
    return [*found, _Branch(Case(frozenset(["number"]), (whole,)))] if is_whole else found


def _values(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    values = tuple(value)
    try:  # Python's reader takes NaN and Infinity
        json.dumps(values, allow_nan=False)
    except ValueError:
        raise refused("a value that is no JSON", at) from None
    if not is_held:
        return [_Branch(Case(conditions=(Other(values),)))]
    return [_Branch(Case(values=values))] if values else []


def _const(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    return _values(of, [value], schema, at, is_held)


def _fewest(kind: str, condition: type) -> _Reader:
    def read(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
        violated = [condition(0, value - 1)] if value else []
        return _either(kind, condition(value, None), *violated)(is_held)

    return read


def _most(kind: str, condition: type) -> _Reader:
    def read(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
        return _either(kind, condition(0, value), condition(value + 1, None))(is_held)

    return read


def _bound(is_low: bool, is_in: bool) -> _Reader:
    def read(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
        number = Decimal(str(value))
        held = Range((number, is_in), None) if is_low else Range(None, (number, is_in))
        rest = Range(None, (number, not is_in)) if is_low else Range((number, not is_in), None)
        return _either("number", held, rest)(is_held)

    return read


def _multiple(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    step = Decimal(str(value))
    return _either("number", Multiple(step, True), Multiple(step, False))(is_held)


def _pattern(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    try:
        pattern = Pattern(value)
    except InvalidRequest as error:
        if of.is_lenient:
            return _nothing_more(of, value, schema, at, is_held)
        raise InvalidRequest(f"at {at} of the JSON schema {error}") from error
    return _either("string", Matches(pattern, True), Matches(pattern, False))(is_held)


def _format(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    if value in json_text.FORMATS:
        pattern = Pattern.of_format(value)
        return _either("string", Matches(pattern, True), Matches(pattern, False))(is_held)
    if of.is_closed and not of.is_lenient and value not in {*_FREE_FORMATS, *_NUMBER_FORMATS}:
        raise InvalidRequest(
            f"the JSON schema has the format {value[:40]!r} at {at}, which cannot be followed: "
            f"use one of {', '.join(json_text.FORMATS)}, a pattern, or ask without strict."
        )
    return _nothing_more(of, value, schema, at, is_held)  # a note, as the drafts say


def _properties(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
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
        return [_Branch(Case(conditions=(members,)))]
    conditions: list[tuple[Condition, ...]] = [
        (Required((name,)), Members({name: goal})) for name, goal in properties.items()
    ]
    conditions += [(SomeMember(goal, pattern=pattern),) for pattern, goal in patterns]
    if others is not None:
        conditions.append((SomeMember(others, beside=members),))
    return [_Branch(Case(frozenset(["object"]), each)) for each in conditions]


def _nothing_more(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    """Read with another keyword."""
    return [_Branch(Case())] if is_held else []


def _names(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    goal = of.goal(value, at, is_held)
    return _either("object", Names(goal), SomeMember(name=goal))(is_held)


def _required(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    absent = [Members({name: of.nothing}) for name in value]
    return _either("object", Required(tuple(value)), *absent)(is_held)


def _prefix(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    rest = of.goal(schema["items"], f"{at.rpartition('/')[0]}/items", is_held)
    front = tuple(of.goal(each, f"{at}/{n}", is_held) for n, each in enumerate(value))
    if is_held:
        return [_Branch(Case(conditions=(Items(front, rest),)))]
    free = of.goal(True, at)
    found: list[tuple[Condition, ...]] = [
        (Count(n + 1, None), Items((*[free] * n, goal), None)) for n, goal in enumerate(front)
    ]
    found.append((SomeItem(len(front), rest),))
    return [_Branch(Case(frozenset(["array"]), each)) for each in found]


def _items(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    if "prefixItems" in schema:
        return _nothing_more(of, value, schema, at, is_held)
    goal = of.goal(value, at, is_held)
    return _either("array", Items((), goal), SomeItem(0, goal))(is_held)


def _contains(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    fewest, most = schema.get("minContains", 1), schema.get("maxContains")
    if fewest == 0 and most is None:
        return _nothing_more(of, value, schema, at, is_held)
    if fewest > 1 or most is not None:
        raise refused("minContains or maxContains", at)
    goal = of.goal(value, at, is_held)
    return _either("array", SomeItem(0, goal), Items((), goal))(is_held)


def _unique(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    if not value:
        return _nothing_more(of, value, schema, at, is_held)
    if not is_held:
        raise refused("uniqueItems under not or oneOf", at)
    return _either("array", Unique())(True)


def _all_of(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    goals = [of.goal(each, f"{at}/{n}", is_held) for n, each in enumerate(value)]
    if is_held:
        return [_Branch(Case(), tuple(goals))]
    return [_Branch(Case(), (goal,)) for goal in goals]


def _any_of(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    goals = [of.goal(each, f"{at}/{n}", is_held) for n, each in enumerate(value)]
    if is_held:
        return [_Branch(Case(), (goal,)) for goal in goals]
    return [_Branch(Case(), tuple(goals))]


def _one_of(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    held, violated = (
        [of.goal(each, f"{at}/{n}", way) for n, each in enumerate(value)] for way in (True, False)
    )
    overlap = {(n, m) for n in range(len(held)) for m in range(n) if of.overlap(held[n], held[m])}
    if not is_held:
        both = [_Branch(Case(), (held[n], held[m])) for n, m in sorted(overlap)]
        return [_Branch(Case(), tuple(violated)), *both]
    return [
        _Branch(
            Case(),
            (
                goal,
                *(
                    violated[m]
                    for m in range(len(held))
                    if (max(n, m), min(n, m)) in overlap and m != n
                ),
            ),
        )
        for n, goal in enumerate(held)
    ]


def _not(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    return [_Branch(Case(), (of.goal(value, at, not is_held),))]


def _if(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    place = at.rpartition("/")[0]
    return [
        _Branch(
            Case(),
            (
                of.goal(value, at, is_true),
                of.goal(schema.get(way, True), f"{place}/{way}", is_held),
            ),
        )
        for is_true, way in ((True, "then"), (False, "else"))
    ]


def _dependencies(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    needs = [
        ({"required": each} if isinstance(each, list) else each, name)
        for name, each in value.items()
    ]
    if not is_held:
        return [
            _Branch(
                Case(frozenset(["object"]), (Required((name,)),)),
                (of.goal(each, f"{at}/{name}", False),),
            )
            for each, name in needs
        ]
    if len(needs) > 1:
        parts = [{"dependentSchemas": {name: each}} for each, name in needs]
        return _all_of(of, parts, schema, at, True)
    return [
        branch
        for each, name in needs
        for branch in (
            _Branch(Case(conditions=(Members({name: of.nothing}),))),
            _Branch(Case(conditions=(Required((name,)),)), (of.goal(each, f"{at}/{name}"),)),
        )
    ] or [_Branch(Case())]


def _ref(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    goal = of.goal(of.target(value, at), value, is_held)
    return [_Branch(Case(), (goal,))]


def _unevaluated(of: Algebra, value: Any, schema: Any, at: str, is_held: bool) -> _Factor:
    """What no other keyword of the schema has spoken of, in the case at hand."""
    if not is_held:
        raise refused(at.rpartition("/")[2], at, "use additionalProperties")
    rest, beside = value
    goal = of.goal(rest, at)
    found = []
    for case in of.cases((of.goal(beside, at.rpartition("/")[0]),)):
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
        found.append(_Branch(case._replace(conditions=(*case.conditions, more))))
    return found


def refused(what: str, at: str, instead: str = "leave it out") -> InvalidRequest:
    """The error for what cannot be followed."""
    return InvalidRequest(
        f"the JSON schema has {what} at {at}, which the grammar cannot hold: {instead}."
    )


_READ: dict[str, _Reader] = {
    "type": _type,
    "enum": _values,
    "const": _const,
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
    "patternProperties": _nothing_more,
    "additionalProperties": _nothing_more,
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
    "allOf": _all_of,
    "anyOf": _any_of,
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


# --- values of keywords as they are read; None for what is none -----------------------------------


def _as_count(value: Any) -> int | None:
    is_whole = (
        not isinstance(value, bool) and isinstance(value, int | float) and value == int(value)
    )
    return int(value) if is_whole and value >= 0 else None


def _as_number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def _as_bound(value: Any) -> Any:
    return value if isinstance(value, bool) else _as_number(value)  # draft 4's are true or false


def _as_step(value: Any) -> float | None:
    return number if (number := _as_number(value)) and number > 0 else None


def _as_types(value: Any) -> list[Any] | None:
    kinds = [_ALIASES.get(kind, kind) for kind in (value if isinstance(value, list) else [value])]
    if "any" in kinds:
        return list(TYPES)
    return kinds if all(kind in (*TYPES, "integer") for kind in kinds) else None


def _as_list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None


def _as_names(value: Any) -> list[str] | None:
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return list(dict.fromkeys(value)) if is_list else None


def _as_object(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_MUST: dict[Callable[[Any], Any], str] = {
    _as_count: "a whole number, and not below 0",
    _as_number: "a number",
    _as_bound: "a number",
    _as_step: "a number above 0",
    _as_types: "a type that JSON has, or several",
    _as_list: "a list",
    _as_names: "a list of names",
    _as_object: "an object",
    _as_text: "text",
}
_CHECKS: dict[str, Callable[[Any], Any]] = {
    keyword: check
    for check, keywords in {
        _as_count: "minLength maxLength minProperties maxProperties minItems maxItems minContains "
        "maxContains",
        _as_number: "minimum maximum",
        _as_bound: "exclusiveMinimum exclusiveMaximum",
        _as_step: "multipleOf divisibleBy",
        _as_types: "type",
        _as_list: "enum allOf anyOf oneOf prefixItems",
        _as_names: "required",
        _as_object: "properties patternProperties dependencies dependentRequired dependentSchemas",
        _as_text: "pattern format $ref $dynamicRef $recursiveRef",
    }.items()
    for keyword in keywords.split()
}
