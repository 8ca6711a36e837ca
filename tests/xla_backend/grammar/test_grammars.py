"""Grammars over tokens: every valid text can be written, and no other."""

import json
import os
import random
import re
import string
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.xla_backend.grammar.vocabularies import KINDS, refused_at, sampled, vocabulary
from xla_backend import Grammar, InvalidRequest
from xla_backend.compilation.store import Store
from xla_backend.grammar import automaton, grammars
from xla_backend.grammar.automaton import Automaton
from xla_backend.grammar.grammar_store import GrammarStore
from xla_backend.grammar.step_by_step import StepByStep

LETTERS = string.ascii_letters + string.digits + ' "\\/\n\t\x01é€🦊{}[]:,'


def word(dice: random.Random, fewest: int = 0, most: int = 12) -> str:
    return "".join(dice.choices(LETTERS, k=dice.randint(fewest, most)))


def number(dice: random.Random) -> float:
    return dice.choice([dice.randint(-(10**6), 10**6), round(dice.gauss(0, 100), 3), 0, 1e-7, 2e21])


def anything(dice: random.Random, levels: int = 2) -> Any:
    kind = dice.randrange(6 if levels else 4)
    if kind < 4:
        return dice.choice([word(dice), number(dice), dice.random() < 0.5, None])
    some = [anything(dice, levels - 1) for _ in range(dice.randint(0, 3))]
    return some if kind == 4 else {word(dice): each for each in some}


def members(dice: random.Random, required: dict[str, Any], optional: dict[str, Any]) -> dict:
    """Some of the optional ones; in the order in which they are given."""
    return required | {name: of for name, of in optional.items() if dice.random() < 0.5}


def schema(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names}


def listed(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
CLOSED = {"additionalProperties": False}
POINT = schema(x={"type": "number"}, y={"type": "number"}) | CLOSED
CASES: dict[str, tuple[Any, Callable[[random.Random], Any]]] = {  # read as with strict
    "person": (
        schema(["name", "age"], name=TEXT, age=WHOLE, email=TEXT, tags=listed(TEXT)),
        lambda d: members(
            d,
            {"name": word(d), "age": d.randint(-5, 120)},
            {"email": word(d), "tags": [word(d) for _ in range(d.randint(0, 3))]},
        ),
    ),
    "all optional": (
        schema([], a=WHOLE, b={"type": "boolean"}, c=TEXT, d={"type": "null"}),
        lambda d: members(d, {}, {"a": 3, "b": False, "c": word(d), "d": None}),
    ),
    "optional in front": (
        schema(["c"], a=WHOLE, b=WHOLE, c=WHOLE, d=WHOLE),
        lambda d: {k: 7 for k in "abcd" if k == "c" or d.random() < 0.5},
    ),
    "enum": (
        {"enum": ["red", 'say "hi"', "é", 3, -2.5, None, True, [1, "a"], {"k": {"l": []}}]},
        lambda d: d.choice(
            ["red", 'say "hi"', "é", 3, -2.5, None, True, [1, "a"], {"k": {"l": []}}]
        ),
    ),
    "nested": (
        schema(points=listed(POINT, minItems=1, maxItems=3), of=schema(id={"const": "p-1"})),
        lambda d: {
            "points": [{"x": number(d), "y": number(d)} for _ in range(d.randint(1, 3))],
            "of": {"id": "p-1"},
        },
    ),
    "bounds": (
        schema(
            i={"type": "integer", "minimum": -12, "maximum": 3045},
            n={"type": "number", "exclusiveMinimum": 0, "maximum": 1.25},
            above={"type": "integer", "exclusiveMinimum": 999},
        ),
        lambda d: {
            "i": d.randint(-12, 3045),
            "n": max(0.001, round(d.uniform(0, 1.25), 3)),
            "above": d.randint(1000, 10**9),
        },
    ),
    "lengths": (
        schema(code={"type": "string", "minLength": 2, "maxLength": 5}),
        lambda d: {"code": word(d, 2, 5)},
    ),
    "patterns": (
        schema(
            zip={"type": "string", "pattern": "^[0-9]{5}(-[0-9]{4})?$"},
            has={"type": "string", "pattern": "a.c|[^\\w\\s]{2}"},
            name={"type": "string", "pattern": "^[a-z\\-_]{1,6}$", "maxLength": 6},
        ),
        lambda d: {
            "zip": d.choice(["12345", "00000-9999"]),
            "has": d.choice(['a"c', "a\\c", "!!", '"\\', "a€c", "\x01\x02"]).join(
                [word(d), word(d)]
            ),
            "name": d.choice(["a", "ab-c_d", "zzzzzz"]),
        },
    ),
    "formats": (
        schema(
            date={"type": "string", "format": "date"},
            at={"type": "string", "format": "date-time"},
            id={"type": "string", "format": "uuid"},
            mail={"type": "string", "format": "email"},
            ip={"type": "string", "format": "ipv4"},
        ),
        lambda d: {
            "date": d.choice(["2024-02-29", "1999-12-31", "0001-01-01", "2000-02-29"]),
            "at": d.choice(["2026-11-27T04:00:00Z", "2026-01-01T23:59:59.123+02:00"]),
            "id": "".join(d.choices("0123456789abcdef", k=32)),
            "mail": d.choice(["a@b.co", "first.last+tag@mail.example.org"]),
            "ip": f"{d.randrange(256)}.0.0.{d.randrange(256)}",
        },
    ),
    "either": (
        schema(
            v={
                "anyOf": [TEXT, schema(n=WHOLE), {"type": ["number", "null"]}],
                "description": "what is beside anyOf and says nothing",
            }
        ),
        lambda d: {"v": d.choice([word(d), {"n": 4}, 2.5, None])},
    ),
    "one of": (
        {
            "oneOf": [
                schema(kind={"const": "circle"}, r={"type": "number", "minimum": 0}),
                schema(kind={"const": "box"}, w=WHOLE, h=WHOLE),
            ]
        },
        lambda d: d.choice([{"kind": "circle", "r": 2.5}, {"kind": "box", "w": 1, "h": -2}]),
    ),
    "enum with bounds": (
        schema(
            s={"enum": ["a", "abc", 5], "type": "string", "minLength": 2},
            n={"enum": [1, 2, 2.5], "exclusiveMaximum": 2.5, "minimum": 2},
            d={"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"},
            i={"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
        ),
        lambda d: {"s": "abc", "n": 2, "d": d.choice(["-0.5", ".5", "3."]), "i": d.randint(-9, 9)},
    ),
    "one of closed": (
        {
            "oneOf": [{"$ref": f"#/$defs/{name}"} for name in "ab"],
            "$defs": {name: schema(**{name: WHOLE}) | CLOSED for name in "ab"},
        },
        lambda d: {d.choice("ab"): d.randint(-9, 9)},
    ),
    "references": (
        schema(a={"$ref": "#/$defs/item"}, b=listed({"$ref": "#/$defs/item"}))
        | {"$defs": {"item": schema(sku=TEXT, price={"type": "number"})}},
        lambda d: {
            "a": {"sku": word(d), "price": number(d)},
            "b": [{"sku": word(d), "price": number(d)} for _ in range(d.randint(0, 2))],
        },
    ),
    "references to all kinds of names": (
        {
            "allOf": [{"$ref": "#/$defs/a~1b~0"}, {"$ref": "#/$defs/listed/anyOf/1"}],
            "$defs": {"a/b~": schema(a=WHOLE), "listed": {"anyOf": [True, schema(b=TEXT)]}},
        },
        lambda d: {"a": d.randint(-9, 9), "b": word(d)},
    ),
    "all of": (
        {
            "allOf": [
                schema(a=WHOLE),
                schema(b={"type": "integer", "minimum": 3}),
                {"minProperties": 1},
            ]
        },
        lambda d: {"a": d.randint(-9, 9), "b": d.randint(3, 12)},
    ),
    "map": (
        {"type": "object", "additionalProperties": WHOLE, "maxProperties": 3},
        lambda d: {word(d): d.randint(0, 99) for _ in range(d.randint(0, 3))},
    ),
    "items of several parts": (
        {"allOf": [listed(WHOLE), {"prefixItems": [{"minimum": 5}]}]},
        lambda d: [5, 3, 1][: d.randint(0, 3)],
    ),
    "tuple": (
        {
            "type": "array",
            "prefixItems": [WHOLE, TEXT],
            "items": {"type": "boolean"},
            "maxItems": 4,
        },
        lambda d: [1, word(d), True, False][: d.randint(0, 4)],
    ),
}


def written(dice: random.Random, document: Any) -> str:
    """A document in one of the forms that programs write."""
    form = dice.choice(
        [{}, {"indent": 2}, {"indent": 4}, {"separators": (",", ":")}, {"ensure_ascii": False}]
    )
    return json.dumps(document, **form)


def followed(grammar: Grammar, kind: str) -> tuple[StepByStep, Automaton | StepByStep]:
    """What follows a schema at first, and later."""
    made = grammars.Grammars(lambda: vocabulary(kind))
    first = made.get(grammar).result()
    assert isinstance(first, StepByStep)
    made.wait()
    return first, made.get(grammar).result()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_valid_can_be_written_and_what_is_written_is_valid(case: str, kind: str) -> None:
    of, document = CASES[case]
    first, tables = followed(Grammar.json_schema(of, strict=True), kind)
    assert isinstance(tables, Automaton)
    check_both_ways(tables, kind, case, of, document)
    check_drafts(tables, kind)
    check_same(first, tables, kind, case)


def test_members_of_all_parts_come_in_one_order() -> None:
    """A part that names some of the properties does not move these to the front."""
    parts = [{"properties": {"b": {"const": 1}}}, {"properties": {"x": {}, "b": {"const": 2}}}]
    of = {
        "oneOf": parts,
        "properties": dict.fromkeys("abc", WHOLE),
        "allOf": [{"properties": {"d": {}}}],
    }
    first, tables = followed(Grammar.json_schema(of), KINDS[0])
    for document in ({"a": 1, "b": 1, "c": 1, "d": 1}, {"x": 0, "a": 1, "b": 2, "c": 3}):
        for made in (first, tables):
            assert refused_at(made.for_row(), KINDS[0], json.dumps(document)) is None


def check_same(first: StepByStep, tables: Automaton, kind: str, case: str) -> None:
    """Step by step the same tokens may come as by the tables, after each."""
    dice, state = random.Random(case), automaton.START
    for _ in range(30):
        allowed = tables.next_state[state, tables.class_of_token] != automaton.NONE
        assert np.array_equal(first.class_of_token.astype(bool), allowed)
        allowed[vocabulary(kind).ends] = False
        if not allowed.any():
            break
        token = int(dice.choice(np.flatnonzero(allowed)))
        state = int(tables.next_state[state, tables.class_of_token[token]])
        first.follow([token])


def check_drafts(made: Automaton, kind: str) -> None:
    """Drafts may come; where bytes are forced, all tokens that may come agree on the first one."""
    state = np.arange(len(made.next_state))
    for drafts in made.drafts.T:
        preamble = made.next_state[state, made.class_of_token[drafts]]
        assert (preamble[drafts >= 0] != automaton.NONE).all()
        state = np.where(drafts >= 0, preamble, state)
    texts = vocabulary(kind).texts
    first = np.array([text[0] if text else -1 for text in texts[: vocabulary(kind).size]])
    for place in range(1, len(made.next_state), 1 + len(made.next_state) // 50):
        allowed = made.next_state[place, made.class_of_token] != automaton.NONE
        assert (len(np.unique(first[allowed])) == 1 and -1 not in first[allowed]) == (
            made.forced[place] > 0
        )


def check_both_ways(
    made: Automaton | StepByStep,
    kind: str,
    case: str,
    of: Any,
    document: Callable[[random.Random], Any],
    most: int = 3000,
) -> None:
    """What is valid can be written; what is written, with at most so many tokens, is valid."""
    checker = jsonschema.FormatChecker()
    dice = random.Random(case)
    for _ in range(40):
        valid = document(dice)
        if case == "formats":
            valid["id"] = re.sub("(.{8})(.{4})(.{4})(.{4})", r"\1-\2-\3-\4-", valid["id"])
        jsonschema.validate(valid, of, format_checker=checker)
        text = written(dice, valid)
        assert refused_at(made, kind, text) is None, text
    ended = 0
    for _ in range(25):
        try:
            ended_text = sampled(made, kind, dice, most)
        except InvalidRequest:  # no item is left that differs, which is known too late
            assert case.startswith("different")
            continue
        if ended_text is not None:
            jsonschema.validate(json.loads(ended_text), of, format_checker=checker)
            ended += 1
    assert ended > 2


def tree(dice: random.Random, levels: int = 4) -> dict[str, Any]:
    below = [tree(dice, levels - 1) for _ in range(dice.randint(0, 2) if levels else 0)]
    return {"name": word(dice), "below": below}


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": schema(name=TEXT, below=listed({"$ref": "#/$defs/node"}, maxItems=2)) | CLOSED
    },
}
NO_TABLES: dict[str, tuple[Any, Callable[[random.Random], Any]]] = {
    "recursion": (TREE, tree),
    "anything": ({}, anything),
    "open objects": (
        schema(["a"], a=WHOLE, ab=WHOLE),
        lambda d: members(d, {"a": 1}, {"ab": 2, "x": [word(d), {"y": 1}], 'a"': None}),
    ),
    "other members": (
        schema(["a"], a=WHOLE, ab=WHOLE) | {"additionalProperties": TEXT},
        lambda d: (
            members(d, {"a": 1}, {"ab": 2}) | {f"x{n}": word(d) for n in range(d.randint(0, 3))}
        ),
    ),
    "steps": ({"type": "number", "multipleOf": 0.5}, lambda d: d.randint(-99, 99) / 2),
    "long": (
        {"type": "string", "maxLength": 9_999},
        lambda d: word(d, 0, 40) * d.randint(0, 200),
    ),
    "patterns of names": (
        schema(a=TEXT) | {"patternProperties": {"^x": WHOLE, "y$": {"minimum": 2}}} | CLOSED,
        lambda d: {"a": word(d)} | {f"x{n}": n for n in range(d.randint(0, 3))} | {"xy": 4, "y": 2},
    ),
    "different items": (
        listed(TEXT | {"maxLength": 2}, uniqueItems=True, maxItems=4),
        lambda d: list(dict.fromkeys(word(d, 0, 2) for _ in range(d.randint(0, 4)))),
    ),
    "different items of few": (
        listed({"enum": ["a", "ab", 1, 12, None]}, uniqueItems=True),
        lambda d: d.sample(["a", "ab", 1, 12, None], d.randint(0, 5)),
    ),
    "different objects": (
        listed(schema(x={"enum": [1, 2, 3]}) | CLOSED, uniqueItems=True, minItems=1, maxItems=3),
        lambda d: [{"x": n} for n in d.sample([1, 2, 3], d.randint(1, 3))],
    ),
}


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("case", NO_TABLES)
def test_what_no_table_holds_is_followed_step_by_step(case: str, kind: str) -> None:
    _, made = followed(Grammar.json_schema(NO_TABLES[case][0]), kind)
    assert isinstance(made, StepByStep)
    check_both_ways(made, kind, case, *NO_TABLES[case], most=300)


def test_a_schema_of_any_length_is_followed() -> None:
    definitions = {f"d{n}": {"description": "x" * 100, **POINT} for n in range(2000)}
    of = {"$defs": definitions, "$ref": "#/$defs/d1999"}
    assert len(json.dumps(of)) > 300_000
    _, tables = followed(Grammar.json_schema(of), KINDS[1])
    assert refused_at(tables, KINDS[1], '{"x": 1, "y": 2}') is None


@pytest.mark.parametrize("kind", KINDS)
def test_choices_and_regular_expressions_are_whole_texts(kind: str) -> None:
    for grammar, allowed, refused in (
        (Grammar.choice(["a", "ab", "yes", "yes "]), ["a", "ab", "yes", "yes "], ["", "abc", "y"]),
        (Grammar.regex(r"(\d{3}|\w+?[^\W_])\.?$"), ["123", "a_b", "12."], ["_", "12..", "1 2"]),
        (Grammar.regex("the .* of|^$"), ["the name of", ""], ["the of", "the\nname of"]),
        (Grammar.json_object(), ['{"a": [1, {"b": null}]}', "{}"], ["[]", "1", '{"a": [1]']),
    ):
        made = automaton.build(grammars.regex(grammar), vocabulary(kind))
        assert [refused_at(made, kind, text) for text in allowed] == [None] * len(allowed)
        assert None not in [refused_at(made, kind, text) for text in refused]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"choice": "yes"}, "list of texts"),
        ({"choice": ["a", ""]}, "none empty"),
        ({"regex": ""}, "not empty"),
        ({"json_object": False}, "must be true"),
    ],
)
def test_what_is_no_grammar_is_refused(form: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Grammar.of(form)


REFUSED = {
    "no value at #": {"enum": []},
    "type must be a type that JSON has, or several at #/properties/a": schema(a={"type": "text"}),
    "look-around": {"type": "string", "pattern": "a(?=a)b"},
    "'#/$defs/gone' at #/items/$ref": listed({"$ref": "#/$defs/gone"}),
    "an object or a boolean at #/items": listed("string"),
    "minLength must be a whole number, and not below 0 at #": {"minLength": "5"},
    "no regular expression": {"type": "string", "pattern": "a("},
    "too many alternatives": {"type": "string", "pattern": "(|^|)" * 40},
    "'#/$defs/none' at #/allOf/1": {"allOf": [schema(a=WHOLE), {"$ref": "#/$defs/none"}]},
    "allows no value at #.": {"type": "array", "prefixItems": [TEXT, False], "minItems": 2},
    "is no property that Unicode has": {"pattern": r"\p{Klingon}"},
    "with the flag (?m)": {"pattern": "(?m)^a$"},
}
REFUSED_IF_STRICT = {
    "format 'semver' at #/properties/v/format": schema(v={"type": "string", "format": "semver"}),
    "unknown keyword 'maxLenght' at #/items": listed({"type": "string", "maxLenght": 3}),
}


@pytest.mark.parametrize("said", REFUSED | REFUSED_IF_STRICT)
def test_what_cannot_be_held_is_refused_by_its_place(said: str) -> None:
    of = (REFUSED | REFUSED_IF_STRICT)[said]
    for strict in (False, True)[said in REFUSED_IF_STRICT :]:
        with pytest.raises(InvalidRequest) as caught:
            grammars.check(Grammar.json_schema(of, strict=strict))
        assert said in str(caught.value)
    if said in REFUSED_IF_STRICT:
        grammars.check(Grammar.json_schema(of))


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        (r"^\p{L}+$", ["é", "漢a"], ["1", "é1"]),
        (r"^\p{Han}[^\p{L}]\P{Lu}$", ["漢1a"], ["a1a", "漢aa", "漢1A"]),
        ("(?i)^[^a]é$", ["bÉ", "Bé"], ["Aé", "aé"]),
        ("^(?i:a)b$", ["Ab"], ["AB"]),
        ("(?ai)^k$", ["K"], ["\u212a"]),
        ("^[[:alpha:]_][^[:digit:]]$", ["éb", "_-"], ["1b", "a1", ":a"]),
        ("^[:ab:]c$", [":c", "ac"], ["xc", "alphac"]),
        ("(?s)^a.b$", ["a\nb"], ["ab"]),
        ("^a.b$", ["a-b"], ["a\nb"]),
        ("^(?!ab|c$)(?=.*d)", ["ad", "cd", "d"], ["abd", "c", "a"]),
        ("^(?!foo$)", ["", "fo", "foo1"], ["foo"]),
    ],
)
def test_a_pattern_means_what_it_says(pattern: str, allowed: list[str], refused: list[str]) -> None:
    first, _ = followed(Grammar.json_schema({"type": "string", "pattern": pattern}), KINDS[1])
    for text in [*allowed, *refused]:
        document = json.dumps(text, ensure_ascii=False)
        assert (refused_at(first, KINDS[1], document) is None) is (text in allowed), document


FORMATS = {
    "duration": (["P1Y2M3DT4H5M6S", "PT20M", "P3W"], ["P", "1D", "PT", "P1S"]),
    "ipv6": (["::", "::1", "2001:db8::8:800:200c:417a", "::ffff:1.2.3.4"], ["1", ":::", "1::2::3"]),
    "uri": (["https://a.b/c%20d?e=f#g", "urn:a:b"], ["a b", "/c", "x:%zz"]),
    "uri-reference": (["../a?b#c", ""], ["a b", "%"]),
    "iri": (["http://räksmörgås.example/å?ö#ü", "urn:a"], ["räk", "http://a b", ":a"]),
    "iri-reference": (["", "../å#ö"], ["a b", "a#b#c"]),
    "json-pointer": (["", "/a/b~0c"], ["a", "/~2"]),
    "hostname": (["a.b-c.example"], ["-a", "a..b"]),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats(name: str) -> None:
    first, _ = followed(Grammar.json_schema({"format": name, "type": "string"}), KINDS[1])
    for text in [*FORMATS[name][0], *FORMATS[name][1]]:
        document = json.dumps(text, ensure_ascii=False)
        is_one = refused_at(first, KINDS[1], document) is None
        assert is_one is (text in FORMATS[name][0]), text


OLDER = {
    "draft 4": (
        {"minimum": 1, "exclusiveMinimum": True, "type": "integer"},
        {"exclusiveMinimum": 1, "type": "integer"},
    ),
    "draft 4's lists": (
        {"items": [WHOLE], "additionalItems": False},
        {"prefixItems": [WHOLE], "items": False},
    ),
    "draft 3": (
        {"properties": {"a": {"required": True, "divisibleBy": 2}}},
        {"properties": {"a": {"multipleOf": 2}}, "required": ["a"]},
    ),
    "OpenAPI 3.0": ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
    "names of other languages": (
        {"type": ["int", "STRING", "None"]},
        {"type": ["integer", "string", "null"]},
    ),
    "empty objects of PHP": (
        {"properties": [], "dependentRequired": [], "type": "object"},
        {"type": "object"},
    ),
    "null": ({"required": None, "type": "object", "items": None}, {"type": "object"}),
    "siblings of $ref in draft 7": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "items": {"$ref": "#/definitions/a", "minimum": 5},
            "definitions": {"a": WHOLE},
        },
        listed(WHOLE) | {"type": [*("array object string".split()), "number", "boolean", "null"]},
    ),
    "$id and $anchor": (
        {
            "$id": "https://a.example/b",
            "items": {"$ref": "c.json"},
            "additionalProperties": {"$ref": "#d"},
            "$defs": {"c": {"$id": "c.json", "type": "integer"}, "d": {"$anchor": "d", **TEXT}},
        },
        {"items": WHOLE, "additionalProperties": TEXT},
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_older_forms_are_read(name: str) -> None:
    old, new = OLDER[name]
    first, _ = followed(Grammar.json_schema(old), KINDS[1])
    checker = jsonschema.Draft202012Validator(new)
    dice = random.Random(name)
    documents = [1, 2, "a", None, [1], [1, 2], ["a"], [3], {"a": 2}, {"a": 1}, {}, {"b": "a"}]
    for document in [*documents, *(anything(dice) for _ in range(20))]:
        can = refused_at(first, KINDS[1], json.dumps(document)) is None
        assert can is checker.is_valid(document), document


def test_many_slow_schemas_do_not_stop_a_small_one_and_one_that_nobody_needs_is_not_made() -> None:
    made = grammars.Grammars(lambda: vocabulary(KINDS[1]))
    may_go_on, begun = threading.Event(), threading.Semaphore(0)

    def slow() -> None:
        begun.release()
        may_go_on.wait()

    for _ in range(grammars.THREADS - 1):
        made.in_front.submit(slow)
        begun.acquire()
    assert made.get(Grammar.json_schema(POINT)).result() is not None
    made.in_front.submit(slow)
    begun.acquire()
    unneeded = made.get(Grammar.json_schema(TREE))
    assert unneeded.cancel()
    may_go_on.set()
    assert made.get(Grammar.json_schema(TREE | {"title": "a"})).result() is not None
    assert Grammar.json_schema(TREE) not in made.known()


def test_automata_on_disk_serve_the_next_start_and_damaged_ones_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    build = automaton.build
    monkeypatch.setattr(
        automaton, "build", lambda regex, of: (built.append(regex), build(regex, of))[1]
    )

    def made(kind: str = KINDS[1]) -> Automaton:
        started = grammars.Grammars(lambda: vocabulary(kind), GrammarStore(Store(tmp_path)))
        grammar = Grammar.json_schema(CASES["person"][0], strict=True)
        first = started.get(grammar).result()
        started.wait()
        del first
        followed = started.get(grammar).result()
        assert isinstance(followed, Automaton)
        return followed

    first, again = made(), made()
    assert len(built) == 1
    for name, table in vars(first).items():
        assert np.array_equal(table, getattr(again, name))
        assert table.dtype == getattr(again, name).dtype
    made(KINDS[2])
    assert len(built) == 2
    for path in tmp_path.rglob("*.entry"):
        path.write_bytes(path.read_bytes()[:-9])
    check_both_ways(made(), KINDS[1], "person", *CASES["person"])
    assert len(built) == 3


def twice_a_level(kind: str, levels: int = 40) -> dict[str, Any]:
    """Schemas of which each refers twice to the one before: 2**levels places to look at."""
    defs: dict[str, Any] = {"a0": kind == "both" or {"enum": [{}]}, "b0": {"type": "string"}}
    for level in range(1, levels):
        for name in "ab":
            ref = {"$ref": f"#/$defs/{name}{level - 1}"}
            defs[f"{name}{level}"] = (
                {"anyOf": [ref, ref]} if kind == "any" else schema(left=ref, right=ref)
            )
    ends = [{"$ref": f"#/$defs/{name}{levels - 1}"} for name in "ab"]
    return {"$defs": defs, {"any": "anyOf", "both": "allOf", "apart": "oneOf"}[kind]: ends}


@pytest.mark.parametrize("kind", ["any", "both", "apart"])
def test_a_schema_that_doubles_at_each_level_takes_no_end_of_time(kind: str) -> None:
    started = time.process_time()
    if kind == "any":
        with pytest.raises(InvalidRequest, match="too large"):
            grammars.check(Grammar.json_schema(twice_a_level(kind)))
    else:
        grammars.check(Grammar.json_schema(twice_a_level(kind)))
    assert time.process_time() - started < 3.5


@pytest.mark.parametrize(
    ("of", "allowed", "refused"),
    [
        (
            {"properties": {"a": False}, "additionalProperties": True},
            ["{}", '{"b": 1}', '{"ab": 1, "b": 2}'],
            ['{"a": 1}', '{"b": 1, "a": 2}'],
        ),
        (
            {"type": "array", "prefixItems": [TEXT, False, TEXT]},
            ["[]", '["a"]'],
            ['["a", "b"]', '["a", "b", "c"]'],
        ),
        ({"type": "array", "prefixItems": [False]}, ["[]"], ["[1]"]),
        (
            {"allOf": [schema([], a=WHOLE, b=WHOLE), {"properties": {"a": False}}]},
            ["{}", '{"b": 1}'],
            ['{"a": 1}', '{"a": 1, "b": 2}'],
        ),
    ],
)
def test_parts_allowing_nothing(of: dict[str, Any], allowed: list[str], refused: list[str]) -> None:
    made, _ = followed(Grammar.json_schema(of), KINDS[1])
    for text in [*allowed, *refused]:
        is_valid = jsonschema.Draft202012Validator(of).is_valid(json.loads(text))
        assert (refused_at(made, KINDS[1], text) is None) is is_valid is (text in allowed), text


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.regex("(" * 280 + "a" + ")" * 280),  # can be parsed, but not written
        Grammar.regex("(" * 5000 + "a" + ")" * 5000),
        Grammar.regex(r"\W" * 50_000),
        Grammar.regex("(a{1,700}){1,700}"),
        Grammar.json_schema(schema([], **{f"a{n}": WHOLE for n in range(3000)})),
    ],
    ids=["deep", "deeper", "sets", "counts", "properties"],
)
def test_what_takes_long_to_find_too_large_is_refused_at_once(grammar: Grammar) -> None:
    tokens = vocabulary(KINDS[1])
    started = time.process_time() + sum(os.times()[2:4])
    with pytest.raises(InvalidRequest, match=r"cannot be followed|too large"):
        automaton.build(grammars.regex(grammar), tokens)
    assert time.process_time() + sum(os.times()[2:4]) - started < 3.5


@pytest.mark.parametrize(
    "regex",
    ["((a{900}){900}){900}", pytest.param("[ab]*a[ab]{24}", marks=pytest.mark.release)],
)
def test_what_has_no_end_of_states_is_refused_and_takes_no_memory_here(regex: str) -> None:
    with pytest.raises(InvalidRequest, match="too large"):
        automaton.build(grammars.regex(Grammar.regex(regex)), vocabulary(KINDS[1]))


def test_twenty_fields_take_a_moment_and_no_time_again() -> None:
    kinds = [TEXT, WHOLE, listed(TEXT), {"enum": ["a", "b"]}, {"type": "string", "format": "date"}]
    fields = {f"field_{n}": kinds[n % 5] for n in range(20)}
    large = Grammar.json_schema(schema(**fields), strict=True)
    made = grammars.Grammars(lambda: vocabulary("byte-level"))
    started = time.process_time()
    first = made.get(large).result()
    made.wait()
    assert time.process_time() - started < 2.5
    assert isinstance(first, StepByStep)
    tables = made.get(large).result()
    assert isinstance(tables, Automaton)
    assert made.get(large).result() is tables


def test_no_token_leads_to_where_the_vocabulary_cannot_go_on() -> None:
    few = automaton.TokenBytes([b"a", b"c", b"ac", b""], [3], drops_first_space=False)
    made = automaton.build("abc|acc|a", few)
    allowed = made.next_state[automaton.START, made.class_of_token] != automaton.NONE
    assert allowed.tolist() == [True, False, True, False]
    preamble = made.next_state[automaton.START, made.class_of_token[0]]
    allowed = made.next_state[preamble, made.class_of_token] != automaton.NONE
    assert allowed.tolist() == [False, True, False, True]
    with pytest.raises(InvalidRequest, match="can write"):
        automaton.build("ab", few)


def test_tokens_that_are_banned_or_not_allowed_never_come() -> None:
    known, dice = vocabulary("sentencepiece"), random.Random(1)
    for _ in range(40):
        banned = [dice.choices(range(4), k=dice.randint(1, 4)) for _ in range(dice.randint(0, 3))]
        allowed = dice.choice([None, [0, 1, 2, 3, 5]])
        made = automaton.of_tokens(allowed, banned, known)
        for _ in range(30):
            state, ids = automaton.START, dice.choices(range(6), k=12)
            for place, id in enumerate(ids):
                text, state = ids[: place + 1], int(made.next_state[state, made.class_of_token[id]])
                is_banned = any(text[-len(each) :] == each for each in banned)
                is_refused = is_banned or (allowed is not None and id not in allowed)
                assert (state == automaton.NONE) == is_refused, (banned, allowed, text)
                if is_refused:
                    break


@pytest.mark.parametrize(
    ("allowed", "banned", "said"),
    [
        ([5], [[5, 5]], "no token is allowed"),
        ([10**6], [], "token ids are from 0 to"),
        (None, [[1] * 600], "may have 500 tokens"),
    ],
)
def test_tokens_that_leave_no_text_are_refused(
    allowed: list[int] | None, banned: list[list[int]], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        automaton.of_tokens(allowed, banned, vocabulary("sentencepiece"))
