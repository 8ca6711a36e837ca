"""`Grammars`: the automata of one model, each made once.

Knows which grammar is asked for, and what is in memory or on disk. Must not know how rows use them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from xla_backend.grammar import (
    automaton,
    channels,
    gbnf,
    json_schema,
    json_text,
    step_by_step,
    tool_calls,
)
from xla_backend.grammar.automaton import Automaton, Vocabulary
from xla_backend.grammar.grammar_store import GrammarStore
from xla_backend.grammar.pattern import Pattern
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.grammar.tool_format import ToolFormat
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.grammar import MAX_CHARACTERS, Behind, Grammar
from xla_backend.interface.prompt import THOUGHTS_END
from xla_backend.interface.tools import Tools

MAX_TOOL_CHARACTERS = 150_000
"""Of a regular expression of calls: some 15,000 states. Longer ones are followed step by step at
once: that an automaton is too large takes long to find out."""
MAX_BYTES = 2**28
"""Of automata in memory; the latest one stays in any case."""
_WRONG_TYPES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, re.error)
"""What a keyword with a value of another type raises, wherever it is read."""


def regex(grammar: Grammar) -> str:
    """Matches the texts that a grammar allows.

    Raises:
        InvalidRequest: there are none, it is no schema, or an automaton cannot hold it.
    """
    if grammar.behind:
        return f"{_BEHIND[grammar.behind]}(?:{regex(dataclasses.replace(grammar, behind=''))})"
    if grammar.kind in ("json_schema", "tool_calls"):
        asked = json.loads(grammar.text)
        try:
            if grammar.kind == "json_schema":
                return json_schema.regex(asked)
            answer = Grammar.of(asked["answer"])
            return tool_calls.regex(asked, regex(answer) if answer else None)
        except InvalidRequest:
            raise
        except _WRONG_TYPES as error:
            raise InvalidRequest(f"the JSON schema is not valid: {error}.") from error
    if grammar.kind == "json_object":
        return json_schema.any_object()
    if grammar.kind == "regex":
        return Pattern(grammar.text).whole()
    if grammar.kind == "gbnf":
        return gbnf.regex(grammar.text)
    return "|".join(map(json_text.literal, json.loads(grammar.text)))


_BEHIND = {
    "thoughts": f"{tool_calls.text_without(THOUGHTS_END)}{THOUGHTS_END}[ \\n]{{0,2}}",
    "channels": channels.messages("analysis") + channels.FINAL,
}
"""Match what a model writes before its text."""


def behind(grammar: Grammar, before: Behind) -> Grammar:
    """The form of a text with what the model writes before it."""
    if before == "channels" and grammar.kind == "tool_calls":  # which has them
        return grammar
    return dataclasses.replace(grammar, behind=before)


def check(grammar: Grammar) -> None:
    """Checks a grammar as far as that is possible without a model.

    Raises:
        InvalidRequest: no text has its form, it is no schema, or it cannot be followed.
    """
    try:
        regex(grammar)
    except InvalidRequest as error:
        try:
            step_by_step.check(grammar)
        except InvalidRequest:
            raise error from None  # which says more


_ANY_OBJECT = {"type": "object"}


def of_tools(form: ToolFormat, tools: Tools, answer: Grammar | None) -> Grammar:
    """The texts of answers that may call tools.

    Args:
        form: how the model writes a call.
        tools: those that may or must be called. Of one that is not `strict` the arguments are any
            JSON object where tables cannot hold its schema, or all together would be too large.
        answer: the form of an answer that calls none; None for any text.

    Raises:
        InvalidRequest: the schema of a tool that is `strict` cannot be followed.
    """
    schemas: dict[str, Any] = {}
    for tool in tools.allowed:
        name = tool["function"]["name"]
        try:
            schemas[name] = tool_calls.without_notes(tool["function"]["parameters"]) | _ANY_OBJECT
            regex(Grammar.json_schema(schemas[name]))
        except (InvalidRequest, RecursionError) as error:
            if not tool["function"].get("strict"):
                schemas[name] = _ANY_OBJECT
                continue
            try:
                _check_apart(form, tools, answer)
                check(Grammar.json_schema(schemas[name]))
            except (InvalidRequest, RecursionError):
                raise InvalidRequest(f"of the tool {name} {error}") from error
    is_strict = [bool(tool["function"].get("strict")) for tool in tools.allowed]
    asked = {
        "format": form[:3],
        "tools": schemas,
        "strict": list(itertools.compress(schemas, is_strict)),
        "is_free": not tools.must_call,
        "several": tools.several and form.can_repeat,
        "answer": answer.to_dict() if answer else None,
    }
    text = json.dumps(asked)
    return Grammar("tool_calls", text if len(text) <= MAX_CHARACTERS else _without_schemas(text))


def _check_apart(form: ToolFormat, tools: Tools, answer: Grammar | None) -> None:
    """Checks that no answer begins as a call: step by step, only one of both can be followed.

    Raises:
        InvalidRequest: one may.
    """
    is_json = answer is None or answer.kind in ("json_schema", "json_object")
    if not tools.must_call and not (is_json and (form.marker or answer is None)):
        raise InvalidRequest("answers of this form may begin as calls of tools.")


def _rules(grammar: Grammar, asked: str | None) -> str:
    """A grammar as `step_by_step` takes it; `asked` is its regular expression, if there is one."""
    if grammar.behind and asked is None:
        inner = _rules(dataclasses.replace(grammar, behind=""), None).removeprefix("start")
        return f"start: {step_by_step.matching(_BEHIND[grammar.behind])} inner\ninner{inner}"
    if grammar.kind != "tool_calls" or asked is not None:
        return step_by_step.rules(grammar, asked)
    told = json.loads(grammar.text)
    arguments = {name: _part(Grammar.json_schema(of)) for name, of in told["tools"].items()}
    answer = Grammar.of(told["answer"])
    return tool_calls.rules(told, arguments, _part(answer) if answer else None)


def _part(grammar: Grammar) -> str:
    try:
        return step_by_step.matching(regex(grammar))
    except InvalidRequest:
        return step_by_step.document(json.loads(grammar.text))


def _smaller(grammar: Grammar) -> Grammar:
    """A grammar without the schemas of tools that are not strict; itself where it has none."""
    if grammar.kind != "tool_calls":
        return grammar
    return dataclasses.replace(grammar, text=_without_schemas(grammar.text))


def _without_schemas(text: str) -> str:
    asked = json.loads(text)
    for name in asked["tools"].keys() - set(asked["strict"]):
        asked["tools"][name] = _ANY_OBJECT
    return json.dumps(asked)


def _follow(grammar: Grammar, vocabulary: Vocabulary) -> Automaton | StepByStep:
    """An automaton where one can hold the grammar, otherwise what follows it step by step."""
    asked, refused = None, None
    try:
        asked = regex(grammar)
        if grammar.kind != "tool_calls" or len(asked) <= MAX_TOOL_CHARACTERS:
            return automaton.build(asked, vocabulary)
    except InvalidRequest as error:
        refused = error
    try:
        return StepByStep.of(_rules(grammar, asked), vocabulary)
    except InvalidRequest as error:
        raise refused or error from None


class Grammars:
    """Makes automata in a thread of its own."""

    def __init__(
        self, vocabulary: Callable[[], Vocabulary], store: GrammarStore | None = None
    ) -> None:
        """`vocabulary` is called when the first automaton is needed; `store` saves automata."""
        self._read = vocabulary
        self._store = store
        self._vocabulary: Vocabulary | None = None
        self._made: OrderedDict[Grammar, Automaton | StepByStep] = OrderedDict()
        self._lock = threading.Lock()
        self._beside = ThreadPoolExecutor(1, "grammars")

    def get(self, grammar: Grammar) -> Future[Automaton | StepByStep]:
        """What follows a grammar in one text; its error is an `InvalidRequest`, see `check`."""
        with self._lock:
            if (known := self._made.get(grammar)) is not None:
                self._made.move_to_end(grammar)
                at_once: Future[Automaton | StepByStep] = Future()
                at_once.set_result(known.for_row())
                return at_once
        return self._beside.submit(self._make, grammar)

    def _make(self, grammar: Grammar) -> Automaton | StepByStep:
        if (known := self._made.get(grammar)) is not None:
            return known.for_row()
        if self._vocabulary is None:
            self._vocabulary = self._read()
        saved = self._store.load(grammar, self._vocabulary) if self._store else None
        made = saved or self._follow(grammar, self._vocabulary)
        with self._lock:
            self._made[grammar] = made
            while len(self._made) > 1 and self._bytes() > MAX_BYTES:
                self._made.popitem(last=False)
        return made.for_row()

    def _follow(self, grammar: Grammar, vocabulary: Vocabulary) -> Automaton | StepByStep:
        try:
            made = _follow(grammar, vocabulary)
        except InvalidRequest:
            if (smaller := _smaller(grammar)) == grammar:
                raise
            made = _follow(smaller, vocabulary)
        if self._store is not None and isinstance(made, Automaton):
            self._store.save(grammar, vocabulary, made)
        return made

    def _bytes(self) -> int:
        return sum(each.bytes for each in self._made.values())
