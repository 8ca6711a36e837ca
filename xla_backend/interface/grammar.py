"""`Grammar`: the form that a request demands of its answer.

Knows the kinds: a JSON schema, any JSON object, a regular expression, choices, rules, tokens. Must
not know how a grammar is followed, nor TensorFlow: the page's process imports this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from xla_backend.interface.errors import InvalidRequest

KINDS = ("json_schema", "json_object", "regex", "choice", "gbnf")
MAX_CHARACTERS = 100_000
"""Of rules and regular expressions; schemas are bounded by what becomes of them."""
Preamble = Literal["", "thoughts", "channels"]
"""What a model writes before its text: thoughts that the prompt has opened, or messages in other
channels."""


@dataclass(frozen=True)
class Grammar:
    """The form of an answer; made by one of its class methods.

    Example:
        >>> Grammar.choice(["yes", "no"])
        Grammar(kind='choice', text='["yes", "no"]')

    Attributes:
        kind: one of `KINDS`, "tokens", or "tool_calls", which `grammar.grammars` makes.
        text: the schema as JSON, the regular expression, the list of choices as JSON, or the rules;
            of tokens, the arguments as JSON.
        strict: of a schema, whether it is read as OpenAI's `strict`: objects that name properties
            have no others where `additionalProperties` is left out, and keywords and formats that
            cannot be followed are refused. Otherwise as JSON Schema says: other properties may
            follow, and unknown keywords and formats are notes.
        behind: what the model writes before it; only the engine knows.

    Raises:
        InvalidRequest: it is too long.
    """

    kind: str
    text: str = ""
    preamble: Preamble = ""
    strict: bool = False

    def __post_init__(self) -> None:
        if self.kind in ("regex", "gbnf", "choice") and len(self.text) > MAX_CHARACTERS:
            raise InvalidRequest(
                f"a grammar can have {MAX_CHARACTERS:,} characters, not {len(self.text):,}."
            )

    @classmethod
    def json_schema(cls, schema: Any, *, strict: bool = False) -> Grammar:
        """Valid documents of a schema: an object, JSON text, or a Pydantic model.

        Args:
            schema: see above.
            strict: see the attributes.

        Raises:
            InvalidRequest: it is none of these.
        """
        if hasattr(schema, "model_json_schema"):
            schema = schema.model_json_schema()
        if isinstance(schema, str | bytes):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError) as error:
                raise InvalidRequest(f"the JSON schema is not JSON: {error}.") from error
        if not isinstance(schema, Mapping | bool):
            raise InvalidRequest(
                f"a JSON schema must be an object, not {type(schema).__name__}: send it as JSON."
            )
        return cls("json_schema", _as_json(schema), strict=strict)

    @classmethod
    def json_object(cls) -> Grammar:
        return cls("json_object")

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """Texts that a regular expression matches as a whole."""
        if not isinstance(pattern, str) or not pattern:
            raise InvalidRequest("a regular expression must be text, and not empty.")
        return cls("regex", pattern)

    @classmethod
    def gbnf(cls, rules: str) -> Grammar:
        """Texts that the rule `root` allows, in llama.cpp's notation."""
        if not isinstance(rules, str) or not rules.strip():
            raise InvalidRequest("a grammar must be rules as text, as root ::= [0-9]+.")
        return cls("gbnf", rules)

    @classmethod
    def choice(cls, choices: Iterable[str]) -> Grammar:
        """One of some texts."""
        is_list = isinstance(choices, Iterable) and not isinstance(choices, str | bytes | Mapping)
        texts = list(choices) if is_list else []
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise InvalidRequest("choices must be a list of texts: at least one, and none empty.")
        return cls("choice", json.dumps([*dict.fromkeys(texts)]))

    @classmethod
    def tokens(cls, allowed: Iterable[int] | None, banned: Iterable[Iterable[int]]) -> Grammar:
        """Texts of some tokens alone (None: of all), without some sequences of them."""
        ids = None if allowed is None else sorted(set(allowed))
        return cls("tokens", json.dumps({"allowed": ids, "banned": [*map(list, banned)]}))

    @classmethod
    def of(cls, value: Any) -> Grammar | None:
        """From a grammar, None, or its JSON form by kind, as `{"regex": "[0-9]+"}`; beside
        "json_schema" there may be "strict".

        Raises:
            InvalidRequest: it is none of these.
        """
        if value is None or isinstance(value, Grammar):
            return value
        if isinstance(value, Mapping) and value.keys() == {"json_schema", "strict"}:
            return cls.json_schema(value["json_schema"], strict=bool(value["strict"]))
        if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in KINDS:
            raise InvalidRequest(
                f"grammar must be an object with one of {', '.join(KINDS)}, as "
                '{"choice": ["yes", "no"]}.'
            )
        ((kind, of),) = value.items()
        if kind != "json_object":
            return getattr(cls, kind)(of)
        if of is not True:
            raise InvalidRequest("json_object must be true: leave the grammar out for any text.")
        return cls.json_object()

    def to_dict(self) -> dict[str, Any]:
        """Its JSON form; the inverse of `of`."""
        if self.kind == "json_object":
            return {self.kind: True}
        is_text = self.kind in ("regex", "gbnf")
        strict = {"strict": True} if self.strict else {}
        return {self.kind: self.text if is_text else json.loads(self.text), **strict}


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the JSON schema is not JSON: {error}.") from error
