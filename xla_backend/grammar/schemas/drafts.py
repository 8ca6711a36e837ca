"""Keywords of all drafts (4 to 2020-12, and OpenAPI 3.0) in the newest one's form.

Knows which values a keyword can have, what people write instead, and how drafts differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from xla_backend.grammar.schemas.conditions import TYPES
from xla_backend.interface.errors import InvalidRequest

_ALIASES = {
    "int": "integer",
    "float": "number",
    "double": "number",
    "str": "string",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "none": "null",
}
"""What people write for types."""
NUMBER_FORMATS = {"int32": 31, "int64": 63}


def normalized(schema: Mapping[str, Any], at: str, is_lenient: bool) -> dict[str, Any]:
    """A schema with its keywords in the newest draft's form."""
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if value is None and keyword != "const":
            continue
        check, must = _CHECKS.get(keyword, (None, ""))
        if check is None or (value := check(value)) is not None:
            found[keyword] = value
        elif keyword == "required" and isinstance(schema[keyword], bool):
            continue  # draft 3: read by the schema around it
        elif not is_lenient:
            raise InvalidRequest(f"{keyword} must be {must} at {at}.")
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
    if "format" in found and found["format"] in NUMBER_FORMATS:
        bound = 2 ** NUMBER_FORMATS[found["format"]]
        found.setdefault("allOf", [])
        found["allOf"] = [*found["allOf"], {"minimum": -bound, "maximum": bound - 1}]
    for keyword in [each for each in found if each.startswith("unevaluated")]:
        if found[keyword] is not True and found[keyword] != {}:
            siblings = {k: v for k, v in found.items() if k != keyword}
            found = {keyword: (found[keyword], siblings)}
            break
    return found


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
    named = [str(each).lower() for each in (value if isinstance(value, list) else [value])]
    kinds = [_ALIASES.get(kind, kind) for kind in named]
    if "any" in kinds:
        return list(TYPES)
    return kinds if all(kind in (*TYPES, "integer") for kind in kinds) else None


def _as_names(value: Any) -> list[str] | None:
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return list(dict.fromkeys(value)) if is_list else None


def _as_object(value: Any) -> Mapping[str, Any] | None:
    return {} if value == [] else value if isinstance(value, Mapping) else None  # PHP's {} is []


def _of(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kind) else None


_CHECKS: dict[str, tuple[Callable[[Any], Any], str]] = {
    keyword: (check, must)
    for keywords, check, must in (
        (
            "minLength maxLength minProperties maxProperties minItems maxItems minContains "
            "maxContains",
            _as_count,
            "a whole number, and not below 0",
        ),
        ("minimum maximum", _as_number, "a number"),
        ("exclusiveMinimum exclusiveMaximum", _as_bound, "a number"),
        ("multipleOf divisibleBy", _as_step, "a number above 0"),
        ("type", _as_types, "a type that JSON has, or several"),
        ("enum allOf anyOf oneOf prefixItems", _of(list), "a list"),
        ("required", _as_names, "a list of names"),
        (
            "properties patternProperties dependencies dependentRequired dependentSchemas",
            _as_object,
            "an object",
        ),
        ("pattern format $ref $dynamicRef $recursiveRef", _of(str), "text"),
    )
    for keyword in keywords.split()
}
