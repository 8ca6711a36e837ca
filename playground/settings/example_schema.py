"""A JSON schema that an example document suggests.

Knows JSON Schema. Must not know components.
"""

import json
from typing import Any

from xla_backend import InvalidRequest

_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def schema_of_example(text: str) -> str:
    """The schema of a document: the same members and kinds, of arrays any number.

    Raises:
        InvalidRequest: the text is no JSON.
    """
    try:
        schema = _schema(json.loads(text))
    except (ValueError, RecursionError):
        raise InvalidRequest(
            "Write an example of an answer as JSON into the field first, such as "
            '{"name": "Ada", "age": 36}.'
        ) from None
    return json.dumps(schema, indent=2, ensure_ascii=False)


def _schema(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            "type": "object",
            "properties": {name: _schema(each) for name, each in value.items()},
            "required": [*value],
            "additionalProperties": False,
        }
    if isinstance(value, list):
        kinds = {json.dumps(each): each for each in map(_schema, value)}
        items = [*kinds.values()]
        if {"type": "number"} in items and {"type": "integer"} in items:
            items.remove({"type": "integer"})  # every integer is a number
        if not items:
            return {"type": "array"}
        return {"type": "array", "items": items[0] if len(items) == 1 else {"anyOf": items}}
    return {"type": _KINDS[type(value)]}
