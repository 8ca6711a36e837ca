"""Schemas of all keywords together: what is valid can be written, and nothing else."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.xla_backend.grammar.vocabularies import KINDS, refused_at, vocabulary
from xla_backend import Grammar, InvalidRequest
from xla_backend.grammar.grammars import Grammars

KIND = KINDS[1]
NAMES = ("a", "b", "xy")
SCALARS: list[Any] = [0, 1, 2, 6, -3, 2.5, "", "a", "ab", "bab", "2024-02-30", True, False, None]
DOCUMENTS: list[Any] = [
    *SCALARS,
    *([], [1], ["a"], [1, 1], [1, "a"], ["a", 1, 2], [[]], [6, 2.5, None, "ab"]),
    *({}, {"a": 1}, {"a": "ab"}, {"b": 6}, {"xy": None}, {"a": 0, "b": "a"}, {"a": "", "xy": 2}),
    *({"b": True, "xy": "ab"}, {"a": 1, "b": 2, "xy": 6}, {"a": {"a": 1}}, {"a": [1], "q": 2}),
    *({"b": {"b": "ab"}, "z": []}, {"a": {"xy": 2, "a": "a"}, "b": None, "q": False}),
]

names = some.sampled_from(NAMES)
counts = some.integers(0, 3)
numbers = some.sampled_from([0, 1, 2, 2.5, 6, -3])
texts = some.sampled_from(["a", "^a", "b$", "^(a|b)+$", "^[^b]*$", "^(?!a)", "x|y"])


def keywords(inner: some.SearchStrategy[Any]) -> some.SearchStrategy[dict[str, Any]]:
    """All but `uniqueItems`, which holds in every case of a schema or in none."""
    several = some.lists(inner, min_size=1, max_size=3)
    types = some.sampled_from("object array string number integer boolean null".split())
    by_name = some.dictionaries(names, inner, max_size=3)
    each: dict[str, some.SearchStrategy[Any]] = {
        "type": types | some.lists(types, min_size=1, max_size=3, unique=True),
        "enum": some.lists(some.sampled_from(DOCUMENTS), min_size=1, max_size=4),
        "const": some.sampled_from(SCALARS),
        **dict.fromkeys("minLength maxLength minItems maxItems".split(), counts),
        **dict.fromkeys("minProperties maxProperties".split(), counts),
        **dict.fromkeys("minimum maximum exclusiveMinimum exclusiveMaximum".split(), numbers),
        "multipleOf": some.sampled_from([1, 2, 3]),
        "pattern": texts,
        "format": some.sampled_from(["date", "unknown"]),
        "properties": by_name,
        "patternProperties": some.dictionaries(texts, inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "required": some.lists(names, max_size=2, unique=True),
        "items": inner,
        "prefixItems": several,
        "contains": inner,
        **dict.fromkeys("allOf anyOf oneOf".split(), several),
        **dict.fromkeys("not if then else".split(), inner),
        "dependentRequired": some.dictionaries(names, some.lists(names, max_size=2), max_size=2),
        "dependentSchemas": by_name,
        "unevaluatedProperties": some.just(False),
    }
    return some.lists(some.sampled_from([*each]), min_size=1, max_size=4, unique=True).flatmap(
        lambda chosen: some.fixed_dictionaries({name: each[name] for name in chosen})
    )


schemas = some.recursive(some.booleans() | keywords(some.booleans()), keywords, max_leaves=6)


def orders(document: Any) -> Iterator[Any]:
    """The document with its members in each order."""
    if isinstance(document, list):
        yield from map(list, itertools.product(*map(orders, document)))
    elif isinstance(document, dict):
        for order in itertools.permutations(document):
            for values in itertools.product(*(orders(document[name]) for name in order)):
                yield dict(zip(order, values, strict=True))
    else:
        yield document


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(keywords(schemas))
def test_what_is_valid_can_be_written_in_some_order_and_nothing_else(of: dict[str, Any]) -> None:
    checker = jsonschema.Draft202012Validator(of, format_checker=jsonschema.FormatChecker(["date"]))
    is_valid = [checker.is_valid(document) for document in DOCUMENTS]
    try:
        made = Grammars(lambda: vocabulary(KIND)).get(Grammar.json_schema(of)).result()
    except InvalidRequest as error:
        reason = str(error)
        assert "cannot hold" in reason or "cannot be" in reason or not any(is_valid), reason
        return
    for document, is_one in zip(DOCUMENTS, is_valid, strict=True):
        written = [json.dumps(each) for each in orders(document)]
        can = [refused_at(made, KIND, text) is None for text in written]
        assert any(can) is is_one, (document, of)
