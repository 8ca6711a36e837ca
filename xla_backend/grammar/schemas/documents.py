"""Rules of the JSON documents that a schema allows.

Knows how JSON writes the cases of a schema (`algebra`). Of all valid documents those can be written
that name properties in the schema's order, others behind them, and break lines and indent as people
do.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from xla_backend.grammar import json_text
from xla_backend.grammar.schemas import scalars
from xla_backend.grammar.schemas.algebra import Algebra
from xla_backend.grammar.schemas.conditions import (
    Case,
    Count,
    Goal,
    Goals,
    Items,
    Members,
    Names,
    Other,
    Required,
    Size,
    SomeItem,
    SomeMember,
    Unique,
    merged_count,
    refused,
    type_of,
)
from xla_backend.grammar.schemas.rules import (
    ANYTHING,
    COMMA,
    EMPTY,
    Either,
    Enclosed,
    Node,
    Ref,
    RegexWriter,
    Repetition,
    RulesWriter,
    Terminal,
    in_order,
    optional,
    without_dead_ends,
)
from xla_backend.interface.errors import InvalidRequest

ANY_LEVELS = 3
"""How deep a value may nest in tables of which the schema says nothing."""
MAX_RULES = 60_000
_MAX_PATTERNS = 5
"""Names are of one class for each set of patterns that they match."""
_ORDER = ("string", "number", "boolean", "null", "object", "array")


@functools.lru_cache(32)
def read(text: str, *, is_closed: bool, is_lenient: bool = False) -> DocumentRules:
    """The rules of a schema as JSON; see `Algebra`."""
    try:
        return DocumentRules(Algebra(json.loads(text), is_closed=is_closed, is_lenient=is_lenient))
    except RecursionError:
        raise InvalidRequest("the JSON schema nests too deep; use fewer levels.") from None


class DocumentRules:
    """The rules of a schema.

    Attributes:
        regular: as a regular expression; None where they are not regular or too large.
        has_unique: whether items of some array must differ, which no rule says.
    """

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra
        self._rules: list[Node | None] = []
        self._of_goals: dict[Goals, int] = {}
        self.has_unique = False
        root = algebra.goal(algebra.root, "#")
        start = self._value((root,) if root.schema is not True else ())
        number = 0
        while number < len(self._rules):  # which grow
            if number > MAX_RULES:
                raise InvalidRequest("the JSON schema is too large: use fewer properties.")
            if callable(make := self._rules[number]):
                self._rules[number] = make()
            number += 1
        self._rules, self._start = without_dead_ends(self._rules, start)
        if self._start is None:
            raise InvalidRequest("the JSON schema allows no value at #.")
        self.regular: str | None = None
        with contextlib.suppress(InvalidRequest):
            self.regular = self.regex()

    def _new(self, make: Any) -> Ref:
        self._rules.append(make)
        return Ref(len(self._rules) - 1)

    def _value(self, goals: Goals) -> Node:
        """A value that satisfies goals; its rule is made later."""
        if not goals:
            return ANYTHING
        if goals not in self._of_goals:
            self._of_goals[goals] = self._new(functools.partial(self._of_cases, goals)).rule
        return Ref(self._of_goals[goals])

    def _of_cases(self, goals: Goals) -> Node:
        ways: dict[Node, None] = {}
        for case in self.algebra.cases(goals):
            if case.values is not None:
                ways.update(dict.fromkeys(scalars.constants(case.values)))
                continue
            if not case.conditions and len(case.types) == 6:
                return ANYTHING
            for kind in sorted(case.types, key=_ORDER.index):
                ways[self._of_type(kind, case, goals[0].at)] = None
        return Either(tuple(ways))

    def _of_type(self, kind: str, case: Case, at: str) -> Node:
        if kind == "object":
            return self._object(case, at)
        if kind == "array":
            return self._array(case, at)
        others = [v for each in case.of(Other) for v in each.values if type_of(v) == kind]
        if kind == "string":
            return scalars.text(scalars.string(case, others))
        if kind == "number":
            return scalars.number(case, others, at)
        names = {"boolean": ("true", "false"), "null": ("null",)}[kind]
        left = [name for name in names if json.loads(name) not in others]
        return Either(tuple(map(Terminal, left)))

    # --- objects --------------------------------------------------------------------------------

    def _object(self, case: Case, at: str) -> Node:
        algebra, members = self.algebra, case.of(Members)
        if any(type_of(v) == "object" for each in case.of(Other) for v in each.values):
            raise refused("an object in enum or const under not or oneOf", at)
        required = dict.fromkeys(name for each in case.of(Required) for name in each.names)
        # Also those of which it says nothing but that some other one is there.
        speak = [*members, *(each.siblings for each in case.of(SomeMember) if each.siblings)]
        speak.sort(key=lambda each: not each.is_order)
        named = dict.fromkeys(_in_one_order([[*each.properties] for each in speak])) | required
        on_names = tuple(each.goal for each in case.of(Names))
        some = case.of(SomeMember)
        fewest, most = merged_count(case.of(Size))
        is_closed = (
            algebra.is_closed
            and any(each.properties or each.patterns for each in members)
            and not any(each.is_given for each in members)
        )
        parts: list[_Member] = []
        for name in named:
            goals = algebra.member_goals(case, name)
            if on_names and not algebra.holds(name, on_names):
                goals = (algebra.nothing,)
            is_needed = name in required
            if is_closed and not is_needed and not any(each.has(name) for each in members):
                continue
            is_one = {number for number, each in enumerate(some) if algebra.is_some(each, name)}
            witness = self._witness(goals, some, is_one)
            if algebra.nothing not in goals or is_needed:
                text = Terminal(json_text.value(name) + json_text.COLON)
                parts.append(_Member(text, self._value(goals), is_needed, witness))
        extras = self._extras(case, list(named), on_names, some, is_closed)
        body = self._members(parts, extras, fewest, most, len(some), at)
        return Enclosed("{", "}", body)

    def _extras(
        self, case: Case, named: list[str], on_names: Goals, some: list[SomeMember], is_closed: bool
    ) -> list[_Member]:
        """The members that are not named, by the patterns that their names match."""
        members = case.of(Members)
        speak = [*members, *(each.siblings for each in some if each.siblings)]
        patterns = dict.fromkeys(pattern for each in speak for pattern, _ in each.patterns)
        patterns |= dict.fromkeys(each.pattern for each in some if each.pattern)
        if len(patterns) > _MAX_PATTERNS:
            raise InvalidRequest(
                f"the JSON schema has more than {_MAX_PATTERNS} patterns of names in one object."
            )
        found: list[_Member] = []
        for is_in in itertools.product((True, False), repeat=len(patterns)):
            held = list(zip(patterns, is_in, strict=True))
            matched = {pattern for pattern, is_held in held if is_held}
            goals: dict[Goal, None] = {}
            for each in members:
                mine = [goal for pattern, goal in each.patterns if pattern in matched]
                goals.update(dict.fromkeys(mine or filter(None, [each.others])))
            goals = {goal: None for goal in goals if goal.schema is not True}
            if self.algebra.nothing in goals or (is_closed and not matched):
                continue
            texts = [
                part
                for pattern, is_held in held
                for part in scalars.negated(pattern.in_string(), is_held)
            ]
            # One that its pattern does not match need not be excluded, and tables can be made.
            is_one = len(held) == 1 and matched
            excluded = [name for name in named if not is_one or held[0][0].is_in(name)]
            if excluded:
                texts.append((scalars.any_constant(excluded), False))
            for name_texts, violated in self._names(on_names, texts, some):
                is_one = {
                    number
                    for number, each in enumerate(some)
                    if (
                        not matched & {pattern for pattern, _ in each.siblings.patterns}
                        if each.siblings
                        else each.pattern in matched
                        if each.pattern
                        else number in violated or not each.name
                    )
                }
                witness = self._witness((*goals,), some, is_one)
                name = scalars.text(name_texts, is_name=True)
                found.append(_Member(name, self._value(tuple(goals)), False, witness))
        return found

    def _witness(
        self, goals: Goals, some: list[SomeMember], is_one: set[int]
    ) -> dict[frozenset[int], Node]:
        """The values with which a member is each set of those of which there must be some."""
        return {
            which: self._value(
                tuple(dict.fromkeys((*goals, *(g for at in which if (g := some[at].goal)))))
            )
            for which in _subsets(is_one)
            if which
        }

    def _names(
        self, on_names: Goals, texts: list[tuple[str, bool]], some: list[SomeMember]
    ) -> Iterable[tuple[list[tuple[str, bool]], set[int]]]:
        """The texts of names, for each way in which they satisfy goals; and which of `some` that
        speak of a name itself they are."""
        violated = [(at, each.name) for at, each in enumerate(some) if each.name]
        for chosen in itertools.product((False, True), repeat=len(violated)):
            goals = on_names + tuple(
                name for (_, name), is_in in zip(violated, chosen, strict=True) if is_in and name
            )
            which = {at for (at, _), is_in in zip(violated, chosen, strict=True) if is_in}
            if not goals:
                yield texts, which
                continue
            for case in self.algebra.cases(goals):
                if "string" not in case.types:
                    continue
                if case.values is not None:
                    names = [value for value in case.values if isinstance(value, str)]
                    if names:
                        yield [(scalars.any_constant(names), True), *texts], which
                    continue
                others = [v for e in case.of(Other) for v in e.values if isinstance(v, str)]
                yield [*scalars.string(case, others), *texts], which

    def _members(
        self,
        members: list[_Member],
        extras: list[_Member],
        fewest: int,
        most: int | None,
        pending: int,
        at: str,
    ) -> Node:
        """An object's inside: members in their order, of which some are required, then others.

        The rules are those of an automaton: what may follow when a place has been reached, so many
        members have been written, as far as that counts, and so many of those are pending of which
        there must be some.
        """
        needed = sum(each.is_required for each in members)
        if most is not None and not extras and most >= len(members):
            most = None
        is_counted = most is not None or fewest > max(1, needed)
        top = max(fewest, 1, most + 1 if most is not None else 0) if is_counted else 1
        all_pending = frozenset(range(pending))
        if (len(members) + 1) * top * 2**pending > MAX_RULES // 3:
            raise refused("minProperties or maxProperties so large", at)
        nothing = Either(())

        def written(each: _Member, count: int, of: Node) -> Node:
            return in_order(*([COMMA] if count else []), each.name, of)

        # What may follow, by count and pending ones.
        after: dict[tuple[int, frozenset[int]], Node] = {}
        for left in _subsets(all_pending):
            for count in range(top, -1, -1):
                ways: list[Node] = []
                is_last = not left and count >= min(fewest, top)
                if is_last and (most is None or count <= most):
                    ways.append(EMPTY)
                if most is None or count < most:
                    after_one = min(count + 1, top)
                    if not left and after_one == count:
                        if extras:
                            more = Either(tuple(written(e, 1, e.value) for e in extras))
                            ways = [Repetition(more, 0, None)]
                    elif not left and not is_counted:
                        ways += [
                            in_order(written(e, count, e.value), after[1, left]) for e in extras
                        ]
                    else:
                        again = after.get((after_one, left))
                        if again is None:  # itself
                            again = self._new(nothing)
                        loop = again if after_one == count else None
                        for e in extras:
                            ways.append(in_order(written(e, count, e.value), again))
                            for which in e.can_be(left):
                                rest = after[after_one, left - which]
                                ways.append(in_order(written(e, count, e.witness[which]), rest))
                        if isinstance(loop, Ref):
                            self._rules[loop.rule] = Either(tuple(ways))
                            after[count, left] = loop
                            continue
                after[count, left] = self._shared(Either(tuple(ways)))
        is_simple = not is_counted and not pending
        has_needed = needed > 0
        for place in reversed(range(len(members))):
            each = members[place]
            before = after
            after = {}
            for (count, left), rest in before.items():
                after_one = min(count + 1, top)
                ways = []
                if most is None or count < most:
                    ways.append(in_order(written(each, count, each.value), before[after_one, left]))
                    for which in each.can_be(left):
                        following = before[after_one, left - which]
                        ways.append(in_order(written(each, count, each.witness[which]), following))
                if is_simple and count == 1:  # the same follows
                    one = written(each, 1, each.value)
                    one = one if each.is_required else optional(one)
                    after[count, left] = self._shared(in_order(one, rest), not has_needed)
                elif (
                    is_simple
                    and not each.is_required
                    and any(later.is_required for later in members[place + 1 :])
                ):  # the comma is behind it
                    one = in_order(each.name, each.value, COMMA)
                    after[count, left] = in_order(optional(one), rest)
                else:
                    if not each.is_required:
                        ways += rest.ways if isinstance(rest, Either) else [rest]
                    after[count, left] = self._shared(Either(tuple(ways)), not is_simple)
        return after[0, all_pending]

    def _shared(self, node: Node, is_shared: bool = True) -> Node:
        """A rule of its own, where several refer to it."""
        return self._new(node) if is_shared and node not in (EMPTY, Either((EMPTY,))) else node

    # --- arrays ---------------------------------------------------------------------------------

    def _array(self, case: Case, at: str) -> Node:
        if any(type_of(v) == "array" for each in case.of(Other) for v in each.values):
            raise refused("an array in enum or const under not or oneOf", at)
        items, some = case.of(Items), case.of(SomeItem)
        fewest, most = merged_count(case.of(Count))
        if case.of(Unique) and most != 1:
            self.has_unique = True
        front = max((len(each.front) for each in items), default=0)

        goals = functools.partial(self.algebra.item_goals, case)
        if some:
            return Enclosed("[", "]", self._with_some(case, some, front, fewest, most, at))
        texts = [
            self._value(goals(place))
            for place in range(front if most is None else min(front, most))
        ]
        each = self._value(goals(front))
        low = max(0, fewest - len(texts))
        top = None if most is None else most - len(texts)
        body: Node
        if texts:
            body = EMPTY if top == 0 else Repetition(in_order(COMMA, each), low, top)
            for place, text in reversed([*enumerate(texts)]):
                body = in_order(*([COMMA] if place else []), text, body)
                body = body if place < fewest else optional(body)
        elif top == 0:
            body = EMPTY
        else:
            more = Repetition(
                in_order(COMMA, each), max(0, low - 1), None if top is None else top - 1
            )
            body = in_order(each, more)
            body = body if fewest else optional(body)
        return Enclosed("[", "]", body)

    def _with_some(
        self, case: Case, some: list[SomeItem], front: int, fewest: int, most: int | None, at: str
    ) -> Node:
        """Items of which some must satisfy more: states by place and those that are pending."""
        top = max(front, fewest, 1, *(each.start for each in some), 0 if most is None else most + 1)
        pending = frozenset(range(len(some)))
        if top * 2 ** len(some) > MAX_RULES // 3:
            raise refused("contains beside so many items", at)
        rules: dict[tuple[int, frozenset[int]], Ref] = {}
        for left in _subsets(pending):
            for place in range(top, -1, -1):
                rules[place, left] = rule = self._new(Either(()))
                ways: list[Node] = []
                if not left and fewest <= place and (most is None or place <= most):
                    ways.append(EMPTY)
                if most is None or place < most:
                    following = min(place + 1, top)
                    goals = self.algebra.item_goals(case, place)
                    may_be = {which for which in left if some[which].start <= place}
                    for more in _subsets(may_be):
                        value = self._value(
                            tuple(dict.fromkeys((*goals, *(some[which].goal for which in more))))
                        )
                        comma = [COMMA] if place else []
                        ways.append(in_order(*comma, value, rules[following, left - more]))
                self._rules[rule.rule] = Either(tuple(ways))
        return rules[0, pending]

    # --- notations ------------------------------------------------------------------------------

    def regex(self, any_levels: int | None = None) -> str:
        """Matches the documents.

        Args:
            any_levels: how deep a value may nest of which the schema says nothing; None if it
                must be any.
        """
        if self.has_unique:
            raise refused("uniqueItems", "#")
        assert self._start is not None
        try:
            return RegexWriter(self._rules, any_levels).write(self._start, 0)
        except RecursionError:
            raise InvalidRequest("the JSON schema is too large for tables.") from None

    def rules(self) -> str:
        """The documents, in the notation of `step_by_step`: the rule `start`, and others."""
        start, further = self.part("")
        return f"start: {start}\n{further}"

    def part(self, prefix: str) -> tuple[str, str]:
        """The part of a rule that is a document, and the rules of its own, named by a prefix."""
        if self.has_unique and prefix:
            raise refused("uniqueItems", "#")
        assert self._start is not None
        return RulesWriter(self._rules, self.regular is not None, prefix).write(self._start)


@dataclass(frozen=True)
class _Member:
    """A member of an object, or a kind of them.

    Attributes:
        name: with the colon. value: its value. is_required: whether it must be there.
        witness: for each set of those of which there must be some, the value with which it is
            these.
    """

    name: Node
    value: Node
    is_required: bool
    witness: dict[frozenset[int], Node]

    def can_be(self, pending: frozenset[int]) -> list[frozenset[int]]:
        """Which sets of pending ones it may be."""
        return [which for which in self.witness if which <= pending]


def _in_one_order(lists: Iterable[list[str]]) -> list[str]:
    """The names of all lists, those of a list in its order as far as the lists before allow: a new
    name stands before the known one that follows it, or at the end."""
    merged: list[str] = []
    for names in lists:
        known, new = set(merged), list[str]()
        for name in names:
            if name in known:
                at = merged.index(name)
                merged[at:at], new = new, []
            else:
                new.append(name)
        merged += new
    return merged


def _subsets(of: Iterable[int]) -> list[frozenset[int]]:
    """All, smaller ones first."""
    each = sorted(of)
    return [
        frozenset(some)
        for size in range(len(each) + 1)
        for some in itertools.combinations(each, size)
    ]
