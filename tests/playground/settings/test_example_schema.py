"""Schemas of examples, judged by jsonschema."""

import json

import jsonschema
import pytest

from playground.settings.example_schema import schema_of_example
from xla_backend import InvalidRequest

PERSON = {"name": "Ada", "age": 36, "height": 1.7, "is_here": True, "pet": None, "tags": []}


@pytest.mark.parametrize(
    ("example", "alike", "other"),
    [
        (PERSON, {**PERSON, "name": "Bo", "tags": [1, "a"]}, {**PERSON, "age": "36"}),
        (PERSON, PERSON, {"name": "Ada"}),
        (PERSON, PERSON, {**PERSON, "more": 1}),
        ([{"a": 1}, {"a": 2}], [{"a": 3}] * 5, [{"a": "1"}]),
        ([1, 2.5, "x"], ["y", 3], [None]),
        ([1, 2.5], [7, 0.5], ["1"]),
        ("text", "other", 1),
    ],
)
def test_an_example_is_valid_and_so_is_what_has_its_form(
    example: object, alike: object, other: object
) -> None:
    schema = json.loads(schema_of_example(json.dumps(example)))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(example, schema)
    jsonschema.validate(alike, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(other, schema)


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="Write an example of an answer as JSON"):
        schema_of_example("Ada is 36")
