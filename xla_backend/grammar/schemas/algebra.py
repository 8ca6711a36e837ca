"""JSON schemas as sets of values: a union of cases, each the intersection of a few conditions.

Must not know what keywords mean (`keywords`), how values are written, nor automata. `not`, `oneOf`,
`if`, `dependencies` and the others are set operations: each schema that must hold, or must not, is
a disjunction of conditions, and these are multiplied out. Cases without values are dropped on the
way, so that branches with different tags do not multiply.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from xla_backend.grammar.schemas.conditions import (
    OF_TYPE,
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
    key,
    merged_count,
    merged_range,
    type_of,
)
from xla_backend.grammar.schemas.drafts import normalized
from xla_backend.grammar.schemas.keywords import NOTES, READ, no_branch
from xla_backend.grammar.schemas.references import References
from xla_backend.interface.errors import InvalidRequest

MAX_STEPS = 60_000
"""Branches looked at: some seconds."""
Place = tuple[int, ...]
"""Of a condition in its schema: the order in which its members are written."""
Placed = tuple[Place, Factor]


class Algebra:
    """The cases of a document's schemas."""

    def __init__(self, root: Any, *, is_closed: bool, is_lenient: bool = False) -> None:
        """Takes a schema.

        Args:
            is_closed: as under OpenAI's `strict`: objects have no other members than those named,
                unless `additionalProperties` says so, and keywords that are not known are refused.
            is_lenient: whether a keyword that cannot be read is left out.
        """
        self.is_closed, self.is_lenient = is_closed, is_lenient
        self.root = root
        self._steps = 0
        self._goals: dict[tuple[Any, bool], Goal] = {}
        self._read: dict[int, dict[str, Any]] = {}
        self._factors: dict[Goal, list[Factor]] = {}
        self._cases: dict[Goals, list[Case]] = {}
        self._open: set[Goals] = set()
        self._made: list[Any] = []  # keeps schemas that have an identity here
        self._references = References(root)
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
        """The cases of which each value that satisfies all goals is in at least one."""
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
        return any(self._is_in(value, case) for case in self.cases(goals))

    def _is_in(self, value: Any, case: Case) -> bool:
        if type_of(value) not in case.types:
            return False
        if case.values is not None and key(value) not in map(key, case.values):
            return False
        return all(self._satisfies(value, each) for each in case.conditions)

    def _satisfies(self, value: Any, condition: Condition) -> bool:
        if type(condition) in OF_TYPE and OF_TYPE[type(condition)] != type_of(value):
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
        if condition.siblings is not None:
            return not condition.siblings.has(name)
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
        self, case: Case, factors: list[Placed], seen: set[Goal], places: dict[int, Place]
    ) -> Iterator[Case]:
        """The cases in which a case and one branch of each factor hold.

        Args:
            case, factors: see above; factors come with their places.
            seen: goals whose factors are among them, or were.
            places: where in the schema the conditions of the case stand, by their identity.
        """
        waiting: list[Placed] = []
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
            chosen: list[Placed] = [(place, [branch]), *rest]
            yield from self._expand(possible, chosen, set(seen), dict(places))

    def _placed(self, goals: Iterable[Goal], place: Place) -> list[Placed]:
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
            fits = (each for each in case.conditions if OF_TYPE.get(type(each), "") in {*types, ""})
            case = Case(frozenset(types), tuple(fits))
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

    def _factors_of(self, goal: Goal) -> list[Factor]:
        if goal not in self._factors:
            if isinstance(goal.schema, bool):
                found: list[Factor] = [] if goal.schema else [[]]
            else:
                schema = self._normal(goal.schema, goal.at)
                positive = goal.is_held
                found = [
                    self._conditions(keyword, schema, goal.at, positive)
                    for keyword in schema
                    if keyword not in NOTES
                ]
                if not positive:  # one of them is violated
                    found = [[branch for factor in found for branch in factor]]
            self._factors[goal] = found
        return self._factors[goal]

    def _conditions(
        self, keyword: str, schema: Mapping[str, Any], at: str, is_held: bool
    ) -> Factor:
        """The branches of which one holds where a keyword does, or does not."""
        read = READ.get(keyword)
        if read is None:
            if self.is_closed and not self.is_lenient and not keyword.startswith(("x-", "$")):
                raise InvalidRequest(
                    f"the JSON schema has the unknown keyword {keyword[:40]!r} at {at}: leave it "
                    "out, or ask without strict."
                )
            return no_branch(self, None, schema, at, is_held)
        return read(self, schema[keyword], schema, f"{at}/{keyword}", is_held)

    def _normal(self, schema: Mapping[str, Any], at: str) -> dict[str, Any]:
        if id(schema) not in self._read:
            alone = "$ref" in schema and self._refs_alone
            given = {"$ref": schema["$ref"]} if alone else schema
            self._read[id(schema)] = normalized(given, at, self.is_lenient)
            self._made.append(schema)
        return self._read[id(schema)]

    def target(self, ref: str, at: str) -> Any:
        """The part of the schema that a reference names."""
        try:
            return self._references.target(ref)
        except KeyError:
            if self.is_lenient:
                return True
            raise InvalidRequest(
                f"the JSON schema has {ref[:60]!r} at {at}, and there is nothing of that name in "
                'it; refer to a part of it, as "#/$defs/name".'
            ) from None


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
