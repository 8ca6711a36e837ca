"""JSON schemas (draft 2020-12) as regular expressions of the documents that are valid.

Knows the keywords that a finite automaton can hold. Must not know automata or tokens. What it
cannot hold is refused by its place in the schema. Of all valid documents those can be written that
name properties in the schema's order, have no others where `additionalProperties` is left out, and
break lines and indent as people do; so nothing that was asked for is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from xla_backend.grammar import json_text
from xla_backend.grammar.pattern import Pattern
from xla_backend.interface.errors import InvalidRequest

ANY_LEVELS = 3
"""How deep a value may nest of which the schema says nothing."""
MAX_COUNT = 3000
"""Of characters or items: each is a few states."""
MAX_CHARACTERS = 2_000_000
"""Of a regular expression."""
MAX_SCHEMAS = 100_000
"""Looked at, each as often as it is referred to."""

_NOT_HELD = (
    "$dynamicRef $recursiveRef not if then else contains dependentRequired dependentSchemas "
    "dependencies unevaluatedItems propertyNames"
).split()
_OF_TYPE = {
    "object": "properties required additionalProperties patternProperties minProperties "
    "maxProperties",
    "array": "items prefixItems minItems maxItems uniqueItems additionalItems",
    "string": "minLength maxLength pattern format",
    "number": "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf",
}
_REST = {
    "additionalProperties": ("properties", "patternProperties"),
    "items": ("prefixItems",),
}
"""Keywords of what others in the same schema do not name."""
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")

Schema = Mapping[str, Any]


def regex(schema: Any) -> str:
    """Matches the documents that a schema allows.

    Raises:
        InvalidRequest: it is no schema, nothing is valid, or an automaton cannot hold it.
    """
    return _Converter(schema).of(schema, "#", 0)


def any_object() -> str:
    """Matches every JSON object, up to a depth."""
    return json_text.any_object(ANY_LEVELS, 0)


class _Nothing(Exception):
    """No value is valid."""


class _Converter:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._refs: list[str] = []
        self._written = 0
        self._seen = 0

    def of(self, schema: Any, at: str, depth: int) -> str:
        """Of a whole document."""
        try:
            return self._any_of(schema, at, depth)
        except _Nothing:
            raise InvalidRequest(f"the JSON schema allows no value at {at}.") from None
        except RecursionError:
            raise InvalidRequest("the JSON schema nests too deep; use fewer levels.") from None

    def _any_of(self, schema: Any, at: str, depth: int) -> str:
        """Of the values that a schema at a place allows, in a value so many levels deep.

        Raises:
            _Nothing: there are none.
        """
        self._spend(schemas=1)
        if schema is True:
            schema = {}
        if schema is False:
            raise _Nothing
        if not isinstance(schema, Mapping):
            raise InvalidRequest(f"the JSON schema must have an object or a boolean at {at}.")
        for keyword in _NOT_HELD:
            if keyword in schema:
                raise _refused(keyword, at)
        if (ref := schema.get("$ref")) is not None:
            return self._of_ref(str(ref), schema, at, depth)
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in schema:
                return self._of_several(keyword, schema, at, depth)
        if "const" in schema or "enum" in schema:
            return self._of_values(schema, at, depth)
        ways = []
        for kind in _types(schema, at):
            try:
                ways.append(self._of_type(kind, schema, at, depth))
            except _Nothing:
                continue
        return self._one_of(ways)

    def _one_of(self, ways: Sequence[str]) -> str:
        if not ways:
            raise _Nothing
        written = ways[0] if len(ways) == 1 else f"(?:{'|'.join(dict.fromkeys(ways))})"
        self._spend(characters=len(written))
        return written

    def _spend(self, characters: int = 0, schemas: int = 0) -> None:
        """Refuses a schema that takes too much memory or time."""
        self._written += characters
        self._seen += schemas
        if self._written > MAX_CHARACTERS or self._seen > MAX_SCHEMAS:
            raise InvalidRequest(
                "the JSON schema is too large: use fewer optional properties in a row, or fewer "
                "levels."
            )

    def _of_ref(self, ref: str, schema: Schema, at: str, depth: int) -> str:
        if ref in self._refs:
            raise InvalidRequest(
                f"the JSON schema refers to itself at {at} ({ref}), and recursion cannot be held: "
                "write out as many levels as are needed."
            )
        target = self._target(ref, at)
        self._refs.append(ref)
        try:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self._any_of(self._both(target, rest, at), at, depth)
        finally:
            self._refs.pop()

    def _target(self, ref: str, at: str) -> Any:
        """The part of the schema that a reference (a JSON pointer, RFC 6901) names."""
        target = self._root
        for part in ref.removeprefix("#").split("/")[1:]:
            key: Any = part.replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(key) if isinstance(target, list) else key]
            except (KeyError, TypeError, ValueError, IndexError):
                target = None
        if target is None or not ref.startswith("#") or ref[1:2] not in ("", "/"):
            raise InvalidRequest(
                f"the JSON schema has {ref[:60]!r} at {at}, and there is nothing of that name in "
                'it; refer to a part of it, as "#/$defs/name".'
            )
        return target

    def _of_several(self, keyword: str, schema: Schema, at: str, depth: int) -> str:
        parts = schema[keyword]
        if not isinstance(parts, list) or not parts:
            raise InvalidRequest(f"{keyword} must be a list of schemas at {at}.")
        rest: Any = {key: value for key, value in schema.items() if key != keyword}
        if keyword == "allOf":
            for place, part in enumerate(parts):
                where = f"{at}/allOf/{place}"
                rest = self._both(rest, self._resolved(part, where), where)
            return self._any_of(rest, at, depth)
        if keyword == "oneOf" and not all(
            self._are_apart(self._resolved(one, at), self._resolved(other, at), at)
            for place, one in enumerate(parts)
            for other in parts[:place]
        ):
            raise _refused("oneOf with schemas that one value may fit both", at, "use anyOf")
        ways = []
        for place, part in enumerate(parts):
            where = f"{at}/{keyword}/{place}"
            try:
                # What is beside anyOf holds for each; a reference alone stays one, to be followed.
                both = self._both(rest, self._resolved(part, where), at) if _says(rest) else part
                ways.append(self._any_of(both, where, depth))
            except _Nothing:
                continue
        return self._one_of(ways)

    def _resolved(self, schema: Any, at: str) -> Any:
        """What a schema that is a reference, and nothing else, refers to."""
        for _ in range(20):
            if not (isinstance(schema, Mapping) and set(schema) == {"$ref"}):
                break
            schema = self._target(str(schema["$ref"]), at)
        return schema

    def _are_apart(self, one: Any, other: Any, at: str) -> bool:
        """Whether clearly no value satisfies both schemas."""
        self._spend(schemas=1)
        if not isinstance(one, Mapping) or not isinstance(other, Mapping):
            return one is False or other is False
        kinds = [
            {"number" if kind == "integer" else kind for kind in _types(each, "#")}
            for each in (one, other)
        ]
        values = [_values(each) for each in (one, other)]
        # A thousand comparisons of values take as long as a schema.
        self._spend(schemas=len(values[0] or ()) * len(values[1] or ()) // 1000)
        if None not in values and not any(value in (values[1] or []) for value in values[0] or []):
            return True
        if not kinds[0] & kinds[1]:
            return True
        required = [set(each.get("required", ())) for each in (one, other)]
        properties = [each.get("properties", {}) for each in (one, other)]
        if kinds[0] | kinds[1] != {"object"}:
            return False
        return any(
            each.get("additionalProperties") is False
            and required[1 - place] - set(properties[place])
            for place, each in enumerate((one, other))
        ) or any(
            self._are_apart(
                self._resolved(properties[0].get(name, {}), at),
                self._resolved(properties[1].get(name, {}), at),
                at,
            )
            for name in required[0] & required[1]
        )

    def _both(self, one: Any, other: Any, at: str) -> Any:
        """The intersection of two schemas."""
        self._spend(schemas=1)
        if one is False or other is False:
            return False
        if one is True or not _says(one):
            return other if isinstance(other, Mapping) else {}
        if other is True or not _says(other):
            return one
        both = dict(one)
        for key, value in other.items():
            if key not in both or both[key] == value or key in _NOTES:
                both[key] = value
            elif key == "properties":
                both[key] = {**both[key]}
                for name, schema in value.items():
                    mine = self._resolved(both[key].get(name, {}), at)
                    both[key][name] = self._both(mine, self._resolved(schema, at), at)
            elif key == "required":
                both[key] = [*dict.fromkeys([*both[key], *value])]
            elif key == "type":
                kinds = [_as_list(each) for each in (both[key], value)]
                both[key] = [
                    kind
                    for kind in _TYPES
                    if all(
                        kind in each or (kind == "integer" and "number" in each) for each in kinds
                    )
                ]
            elif key.startswith(("min", "exclusiveMin")):
                both[key] = max(both[key], value)
            elif key.startswith(("max", "exclusiveMax")):
                both[key] = min(both[key], value)
            else:
                raise _refused(f"two of {key} that hold together", at)
        for mine, others in ((one, other), (other, one)):
            for rest, keys in _REST.items():
                of_rest = mine.get(rest, True)
                if (of_rest is not True and _says(of_rest)) and any(
                    name not in mine.get(key, ()) for key in keys for name in others.get(key, ())
                ):
                    raise _refused(f"{rest} beside {' or '.join(keys)} of another part", at)
        return both

    def _of_values(self, schema: Schema, at: str, depth: int) -> str:
        values = _values(schema) or []
        self._spend(schemas=len(values))
        kinds = _as_list(schema["type"]) if "type" in schema else _TYPES
        values = [each for each in values if _kind(each) & set(kinds) and _fits(each, schema, at)]
        return self._one_of([json_text.value(each, depth) for each in values])

    def _of_type(self, kind: str, schema: Schema, at: str, depth: int) -> str:
        if kind == "object":
            return self._of_object(schema, at, depth)
        if kind == "array":
            return self._of_array(schema, at, depth)
        if kind == "string":
            return _of_string(schema, at)
        if kind == "boolean":
            return "(?:true|false)"
        if kind == "null":
            return "null"
        return _of_number(kind, schema, at)

    def _of_object(self, schema: Schema, at: str, depth: int) -> str:
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise InvalidRequest(f"properties must be an object at {at}.")
        required = list(schema.get("required", ()))
        patterns = schema.get("patternProperties", {})
        others = schema.get("additionalProperties", not properties and not patterns)
        fewest = _count(schema, "minProperties", at) or 0
        most = _count(schema, "maxProperties", at)
        if patterns and (properties or required or others is not False or len(patterns) > 1):
            raise _refused("patternProperties beside other properties", at)
        members, extra = [], None
        for name, of in {**properties, **dict.fromkeys(required, others), **properties}.items():
            where = f"{at}/properties/{name}"
            try:
                text = json_text.pair(json_text.value(name), self._any_of(of, where, depth + 1))
            except _Nothing:
                if name in required:
                    raise
                continue
            members.append((text, name in required))
        if patterns:
            ((pattern, others),) = patterns.items()
            name = Pattern(pattern).in_string(0, None)
        else:
            named = [*properties, *required]
            name = f'"{_other_than(named)}"' if named else json_text.STRING
        if others is not False:
            # Where the schema says nothing, a value nests fewer levels, as it is written twice.
            free = json_text.any_value(ANY_LEVELS - 1, depth + 1)
            try:
                extra = json_text.pair(
                    name,
                    free
                    if others is True or others == {}
                    else self._any_of(others, f"{at}/additionalProperties", depth + 1),
                )
            except _Nothing:
                extra = None
        needed = sum(is_required for _, is_required in members)
        if members:
            if most is not None and most < len(members) + (extra is not None) * 10**6:
                raise _refused("maxProperties beside properties", at)
            if fewest > max(needed, 1):
                raise _refused("minProperties beside properties", at)
        elif fewest > 1:
            raise _refused("minProperties above 1", at)
        return self._members(members, extra, fewest, most, depth)

    def _members(
        self,
        members: list[tuple[str, bool]],
        extra: str | None,
        fewest: int,
        most: int | None,
        depth: int,
    ) -> str:
        """An object of members in their order, of which some are required, and of others."""
        comma = json_text.comma(depth)
        if not members:
            top = "" if most is None else str(max(0, most - 1))
            some = f"{extra}(?:{comma}{extra}){{0,{top}}}" if extra and most != 0 else ""
            if not some and fewest:
                raise _Nothing
            body = some if fewest else f"(?:{some})?" if some else ""
        else:
            rest = f"(?:{comma}{extra})*" if extra else ""
            ways = []
            # After the first member each has a comma in front; before a required one, behind.
            first = next((at for at, (_, is_required) in enumerate(members) if is_required), None)
            for place in reversed(range(len(members)) if first is None else [first]):
                after = "".join(
                    f"{comma}{text}" if is_required else f"(?:{comma}{text})?"
                    for text, is_required in members[place + 1 :]
                )
                before = "".join(f"(?:{text}{comma})?" for text, _ in members[: first or 0])
                ways.append(f"{before}{members[place][0]}{after}{rest}")
                self._spend(characters=len(ways[-1]))  # at once: there may be thousands
            if first is None and extra:
                ways.append(f"{extra}{rest}")
            body = f"(?:{'|'.join(ways)})"
            if first is None and not fewest:
                body = f"(?:{body})?"
        return json_text.enclosed("{", body, "}", depth)

    def _of_array(self, schema: Schema, at: str, depth: int) -> str:
        if schema.get("uniqueItems"):
            raise _refused("uniqueItems", at)
        front, items = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(items, list):  # as drafts before 2020-12 have it
            front, items = items, schema.get("additionalItems", True)
        fewest = _count(schema, "minItems", at) or 0
        most = _count(schema, "maxItems", at)
        comma, body, texts = json_text.comma(depth), "", []
        for place, of in enumerate(front[:most]):
            try:
                texts.append(self._any_of(of, f"{at}/prefixItems/{place}", depth + 1))
            except _Nothing:
                most = place
                break
        try:
            each = (
                json_text.any_value(ANY_LEVELS - 1, depth + 1)
                if items is True or items == {}
                else self._any_of(items, f"{at}/items", depth + 1)
            )
        except _Nothing:
            each, most = "", len(texts)
        if most is not None and most < fewest:
            raise _Nothing
        low = max(0, fewest - len(texts))
        top = None if most is None else most - len(texts)
        if texts:
            body = f"(?:{comma}{each}){{{low},{'' if top is None else top}}}" if top != 0 else ""
            for place, text in reversed([*enumerate(texts)]):
                body = f"{comma if place else ''}{text}{body}"
                body = body if place < fewest else f"(?:{body})?"
        elif top != 0:
            times = f"{{{max(0, low - 1)},{'' if top is None else top - 1}}}"
            body = f"{each}(?:{comma}{each}){times}"
            body = body if fewest else f"(?:{body})?"
        self._one_of([body])
        return json_text.enclosed("[", body, "]", depth)


_NOTES = (
    "title description default examples $schema $id $comment deprecated readOnly writeOnly $defs "
    "definitions $anchor discriminator"
).split()
"""Keywords that allow and forbid nothing."""


def _says(schema: Any) -> bool:
    """Whether a schema constrains anything."""
    return not isinstance(schema, Mapping) or any(key not in _NOTES for key in schema)


def _types(schema: Schema, at: str) -> list[str]:
    """The types that a schema allows; all if it names none."""
    if "type" in schema:
        kinds = _as_list(schema["type"])
        for kind in kinds:
            if kind not in _TYPES:
                raise InvalidRequest(f"the JSON schema has the unknown type {kind!r:.40} at {at}.")
        return [kind for kind in kinds if not (kind == "integer" and "number" in kinds)]
    if (values := _values(schema)) is not None:
        return sorted(set().union(*map(_kind, values)) - {"number"} if values else set())
    spoken = [
        kind
        for kind, keywords in _OF_TYPE.items()
        if any(keyword in schema for keyword in keywords.split())
    ]
    return spoken or ["object", "array", "string", "number", "boolean", "null"]


def _values(schema: Schema) -> list[Any] | None:
    """The values of enum and const."""
    if "const" in schema:
        return [schema["const"]]
    return _as_list(schema["enum"]) if "enum" in schema else None


def _kind(value: Any) -> set[str]:
    """The types of a value."""
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int | float):
        return {"integer", "number"} if value == int(value) else {"number"}
    kinds = {dict: "object", list: "array", str: "string", type(None): "null"}
    return {kinds[type(value)]}


def _fits(value: Any, schema: Schema, at: str) -> bool:
    """Whether a value of enum or const is within what else the schema says of strings and numbers.

    Raises:
        InvalidRequest: the schema says more than that.
    """
    kind = "number" if "number" in _kind(value) else next(iter(_kind(value)))
    said = [key for key in _OF_TYPE.get(kind, "").split() if key in schema]
    if kind == "string" and not {"pattern", "format"} & set(said):
        fewest, most = _count(schema, "minLength", at) or 0, _count(schema, "maxLength", at)
        return fewest <= len(value) <= (len(value) if most is None else most)
    if kind == "number" and "multipleOf" not in said:
        low, high = _bounds(schema, at)
        number = Decimal(str(value))
        return (low is None or number > low[0] or (low[1] and number == low[0])) and (
            high is None or number < high[0] or (high[1] and number == high[0])
        )
    if said:
        raise _refused("enum or const beside other keywords", at)
    return True


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _count(schema: Schema, keyword: str, at: str) -> int | None:
    value = schema.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise InvalidRequest(f"{keyword} must be a whole number at {at}.")
    if not 0 <= value <= MAX_COUNT:
        raise InvalidRequest(
            f"the JSON schema has {keyword} {value:,} at {at}, and the grammar can count to "
            f"{MAX_COUNT:,}: use less, or leave it out."
        )
    return int(value)


def _of_string(schema: Schema, at: str) -> str:
    fewest, most = _count(schema, "minLength", at) or 0, _count(schema, "maxLength", at)
    if most is not None and most < fewest:
        raise _Nothing
    form = json_text.FORMATS.get(schema.get("format", ""))
    if (pattern := schema.get("pattern")) is not None:
        if form:
            raise _refused("pattern beside format", at)
        try:
            return Pattern(str(pattern)).in_string(fewest, most)
        except InvalidRequest as error:
            raise InvalidRequest(f"at {at} of the JSON schema {error}") from error
    if form:
        if fewest > 1 or (most is not None and most < 320):
            raise _refused("format beside a bound on the length", at)
        return f'"{form}"'
    if fewest == 0 and most is None:
        return json_text.STRING
    is_long = max(fewest, most or 0) > 1000
    character = json_text.PLAIN_CHARACTER if is_long else json_text.CHARACTER
    return f'"{character}{{{fewest},{"" if most is None else most}}}"'


def _bounds(schema: Schema, at: str) -> tuple[json_text.Bound | None, json_text.Bound | None]:
    """The lowest and the highest number; None for no bound."""
    bounds: dict[str, Decimal] = {}
    for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        value = schema.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e30:
            raise InvalidRequest(f"{name} must be a number at {at}, and not above 1e30.")
        bounds[name] = Decimal(str(value))
    low, high = (
        _tighter(bounds.get(f"{side}imum"), bounds.get(f"exclusive{side.title()}imum"), sign)
        for side, sign in (("min", 1), ("max", -1))
    )
    return low, high


def _of_number(kind: str, schema: Schema, at: str) -> str:
    step = schema.get("multipleOf")
    if step is not None and step != 1:
        raise _refused("multipleOf", at)
    low, high = _bounds(schema, at)
    if kind == "integer" or step == 1:
        if low is None and high is None:
            return json_text.INTEGER
        least = None if low is None else _whole(low[0], up=True, apart=not low[1])
        most = None if high is None else _whole(high[0], up=False, apart=not high[1])
        if least is not None and most is not None and least > most:
            raise _Nothing
        return json_text.integer(least, most)
    if low is None and high is None:
        return json_text.NUMBER
    if low and high and (low[0] > high[0] or (low[0] == high[0] and not (low[1] and high[1]))):
        raise _Nothing
    return json_text.number(low, high)


def _tighter(
    with_end: Decimal | None, without: Decimal | None, sign: int
) -> json_text.Bound | None:
    if without is not None and (with_end is None or sign * without >= sign * with_end):
        return without, False
    return None if with_end is None else (with_end, True)


def _whole(bound: Decimal, *, up: bool, apart: bool) -> int:
    """The nearest whole number within a bound."""
    nearest = int(bound.to_integral_value("ROUND_CEILING" if up else "ROUND_FLOOR"))
    return nearest + (1 if up else -1) if apart and nearest == bound else nearest


def _other_than(names: Sequence[str]) -> str:
    """A string, without quotes and escapes, that is none of these names."""
    plain = json_text.complement([(0, 0x1F), (ord('"'), ord('"')), (ord("\\"), ord("\\"))])
    anything = json_text.any_of(plain)

    def behind(endings: list[str]) -> str:
        follow = {
            name[0]: [each[1:] for each in endings if each[:1] == name[0]]
            for name in endings
            if name
        }
        firsts = [(ord(each), ord(each)) for each in follow]
        excluded = json_text.joined([*json_text.complement(plain), *firsts])
        ways = [json_text.any_of(json_text.complement(excluded)) + f"{anything}*"]
        ways += [json_text.literal(each) + behind(rest) for each, rest in follow.items()]
        return f"(?:{'|'.join(ways)})" + ("" if "" in endings else "?")

    return behind(list(dict.fromkeys(names)))


def _refused(what: str, at: str, instead: str = "leave it out") -> InvalidRequest:
    return InvalidRequest(
        f"the JSON schema has {what} at {at}, which the grammar cannot hold: {instead}."
    )
