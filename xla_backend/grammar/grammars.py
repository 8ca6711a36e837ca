"""`Grammars`: the automata of one model, each made once."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from xla_backend.answers.tool_format import ToolFormat
from xla_backend.grammar import automaton, gbnf, json_text, step_by_step, tool_calls
from xla_backend.grammar.automaton import Automaton, TokenBytes
from xla_backend.grammar.grammar_store import GrammarStore
from xla_backend.grammar.pattern import Pattern
from xla_backend.grammar.schemas import documents
from xla_backend.grammar.schemas.unique_items import UniqueItems
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.grammar import Grammar, Preamble
from xla_backend.interface.prompt import THOUGHTS_END
from xla_backend.interface.tools import Tools

MAX_TOOL_CHARACTERS = 150_000
"""Of a regular expression of calls: some 15,000 states. Longer ones are followed step by step at
once: that an automaton is too large takes long to find out."""
MAX_BYTES = 2**28
"""Of automata in memory; the latest one stays in any case."""
THREADS = 6
"""In which grammars are made, so that none waits behind slow ones."""


def regex(grammar: Grammar) -> str:
    """Matches the texts that a grammar allows; not of rules ("gbnf")."""
    if grammar.preamble:
        return (
            f"{_PREAMBLES[grammar.preamble]}(?:{regex(dataclasses.replace(grammar, preamble=''))})"
        )
    if grammar.kind == "json_schema":
        return documents.read(grammar.text, is_closed=grammar.strict).regex()
    if grammar.kind == "tool_calls":
        rules_text = json.loads(grammar.text)
        answer = Grammar.of(rules_text["answer"])
        return tool_calls.regex(rules_text, regex(answer) if answer else None)
    if grammar.kind == "json_object":
        return json_text.any_object(documents.ANY_LEVELS, 0)
    if grammar.kind == "regex":
        return Pattern(grammar.text).whole()
    return "|".join(map(json_text.literal, json.loads(grammar.text)))


_PREAMBLES = {
    "thoughts": f"{tool_calls.text_without(THOUGHTS_END)}{THOUGHTS_END}[ \\n]{{0,2}}",
    "channels": tool_calls.messages("analysis") + tool_calls.FINAL,
}
"""Match what a model writes before its text."""


def preamble(grammar: Grammar, before: Preamble) -> Grammar:
    """The form of a text with what the model writes before it."""
    if grammar.kind == "tokens" or (before == "channels" and grammar.kind == "tool_calls"):
        return grammar  # of all that is written
    return dataclasses.replace(grammar, preamble=before)


def check(grammar: Grammar) -> None:
    """Checks a grammar as far as that is possible without a model."""
    if grammar.kind in ("json_schema", "gbnf"):
        step_by_step.check(_rules(grammar, None))
        return
    try:
        regex(grammar)
    except InvalidRequest as error:
        try:
            step_by_step.check(_rules(grammar, None))
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
    """
    if answer is not None and answer.kind == "gbnf":
        raise InvalidRequest("rules (GBNF) and tools cannot be combined: leave one of them out.")
    schemas: dict[str, Any] = {}
    strict = []
    for tool in tools.allowed:
        name = tool["function"]["name"]
        is_strict = bool(tool["function"].get("strict"))
        strict += [name] if is_strict else []
        try:
            schemas[name] = tool_calls.without_notes(tool["function"]["parameters"]) | _ANY_OBJECT
            tool_calls.arguments(schemas[name], is_strict).regex(documents.ANY_LEVELS)
        except (InvalidRequest, RecursionError) as error:
            if not is_strict:
                schemas[name] = _ANY_OBJECT
                continue
            try:
                _check_apart(form, tools, answer)
                part = tool_calls.arguments(schemas[name], True).part("arguments_")
                step_by_step.check("start: {}\n{}".format(*part))
            except (InvalidRequest, RecursionError):
                raise InvalidRequest(f"of the tool {name} {error}") from error
    rules_text = {
        "format": form[:3],
        "tools": schemas,
        "strict": strict,
        "is_free": not tools.must_call,
        "several": tools.several and form.can_repeat,
        "answer": answer.to_dict() if answer else None,
    }
    text = json.dumps(rules_text)
    return Grammar("tool_calls", text)


def _check_apart(form: ToolFormat, tools: Tools, answer: Grammar | None) -> None:
    """Checks that no answer begins as a call: step by step, only one of both can be followed."""
    is_json = answer is None or answer.kind in ("json_schema", "json_object")
    if not tools.must_call and not (is_json and (form.marker or answer is None)):
        raise InvalidRequest("answers of this form may begin as calls of tools.")


def _rules(grammar: Grammar, rules_text: str | None) -> str:
    """A grammar as `step_by_step` takes it; `asked` is its regular expression, if there is one."""
    if grammar.preamble and (rules_text is None or grammar.kind == "json_schema"):
        before = step_by_step.matching(_PREAMBLES[grammar.preamble])
        if grammar.kind == "json_schema":
            rules = documents.read(grammar.text, is_closed=grammar.strict)
            return "start: {} {}\n{}".format(before, *rules.part("inner_"))
        inner = _rules(dataclasses.replace(grammar, preamble=""), None).removeprefix("start")
        return f"start: {before} inner\ninner{inner}"
    if grammar.kind == "json_schema":
        return documents.read(grammar.text, is_closed=grammar.strict).rules()
    if rules_text is not None:
        return f"start: {step_by_step.matching(rules_text)}"
    if grammar.kind == "gbnf":
        return gbnf.rules(grammar.text)
    if grammar.kind != "tool_calls":
        raise InvalidRequest("the grammar cannot be followed.")
    sent = json.loads(grammar.text)
    parts: dict[str, str] = {}
    others: list[str] = []
    for name, of in sent["tools"].items():
        rules = tool_calls.arguments(of, name in sent["strict"])
        if (whole := _or_none(rules.regex, documents.ANY_LEVELS)) is not None:
            parts[name] = step_by_step.matching(whole)
        else:
            parts[name], more = rules.part(f"a{len(parts)}_")
            others.append(more)
    answer = Grammar.of(sent["answer"])
    part = None
    if answer is not None and (whole := _or_none(regex, answer)) is not None:
        part = step_by_step.matching(whole)
    elif answer is not None:
        part, more = documents.read(answer.text, is_closed=answer.strict).part("answer_")
        others.append(more)
    return "\n".join([tool_calls.rules(sent, parts, part), *others])


def _or_none(make: Callable[..., str], *arguments: Any) -> str | None:
    with contextlib.suppress(InvalidRequest):
        return make(*arguments)
    return None


def _smaller(grammar: Grammar) -> Grammar:
    """A grammar without the schemas of tools that are not strict; itself where it has none."""
    if grammar.kind != "tool_calls":
        return grammar
    rules_text = json.loads(grammar.text)
    for name in rules_text["tools"].keys() - set(rules_text["strict"]):
        rules_text["tools"][name] = _ANY_OBJECT
    return dataclasses.replace(grammar, text=json.dumps(rules_text))


def _in_tables(grammar: Grammar, vocabulary: TokenBytes) -> Automaton | StepByStep:
    """An automaton where one can hold the grammar, otherwise what follows it step by step."""
    if grammar.kind == "tokens":
        return automaton.of_tokens(**json.loads(grammar.text), vocabulary=vocabulary)
    if grammar.kind == "gbnf":
        return StepByStep.of(_rules(grammar, None), vocabulary)
    rules_text, refused = None, None
    try:
        rules_text = regex(grammar)
        if grammar.kind != "tool_calls" or len(rules_text) <= MAX_TOOL_CHARACTERS:
            return automaton.build(rules_text, vocabulary)
    except InvalidRequest as error:
        refused = error
    try:
        return StepByStep.of(_rules(grammar, rules_text), vocabulary)
    except InvalidRequest as error:
        raise refused or error from None


def schema_step_by_step(grammar: Grammar, vocabulary: TokenBytes) -> StepByStep:
    """Follows a JSON schema; raises as `check`."""
    rules = documents.read(grammar.text, is_closed=grammar.strict)
    unique = UniqueItems(rules.algebra, vocabulary) if rules.has_unique else None
    return StepByStep.of(_rules(grammar, None), vocabulary, unique)


class Grammars:
    """Makes automata in threads of its own.

    JSON schemas are followed step by step until there are tables for them, which are made in the
    background where a schema has some; both allow the same texts.
    """

    def __init__(
        self, vocabulary: Callable[[], TokenBytes], store: GrammarStore | None = None
    ) -> None:
        """`vocabulary` is called when the first automaton is needed; `store` saves automata."""
        self._read = vocabulary
        self._store = store
        self._vocabulary: TokenBytes | None = None
        self._made: OrderedDict[Grammar, Automaton | StepByStep] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self.in_front = ThreadPoolExecutor(THREADS, "grammars")
        self._in_background = ThreadPoolExecutor(1, "tables")

    def get(self, grammar: Grammar) -> Future[Automaton | StepByStep]:
        """What follows a grammar in one text; its error is an `InvalidRequest`, see `check`.

        Cancel it where nobody waits for it any more: what has not begun is not made.
        """
        with self._lock:
            if (known := self._made.get(grammar)) is not None:
                self._made.move_to_end(grammar)
                at_once: Future[Automaton | StepByStep] = Future()
                at_once.set_result(known.for_row())
                return at_once
        return self.in_front.submit(self._make, grammar)

    def known(self) -> list[Grammar]:
        return list(self._made)

    def wait(self) -> None:
        """Waits until the tables are there that are being made."""
        self._in_background.submit(lambda: None).result()

    def _make(self, grammar: Grammar) -> Automaton | StepByStep:
        if (known := self._made.get(grammar)) is not None:
            return known.for_row()
        with self._reading:
            if self._vocabulary is None:
                self._vocabulary = self._read()
        saved = self._store.load(grammar, self._vocabulary) if self._store else None
        if saved is not None:
            return self._add(grammar, saved).for_row()
        if grammar.kind != "json_schema":
            return self._add(grammar, self._follow(grammar, self._vocabulary)).for_row()
        row = self._add(grammar, schema_step_by_step(grammar, self._vocabulary)).for_row()
        if documents.read(grammar.text, is_closed=grammar.strict).regular is not None:
            self._in_background.submit(self._improve, grammar, self._vocabulary, weakref.ref(row))
        return row

    def _improve(
        self, grammar: Grammar, vocabulary: TokenBytes, used: weakref.ref[Automaton | StepByStep]
    ) -> None:
        """Makes tables, unless nobody follows the grammar step by step any more, or they exist."""
        known = self._made.get(grammar)
        if used() is None or isinstance(known, Automaton):
            if used() is None and isinstance(known, StepByStep):
                self._made.pop(grammar, None)  # the next one begins anew
            return
        with contextlib.suppress(InvalidRequest):
            self._save(grammar, vocabulary, made := automaton.build(regex(grammar), vocabulary))
            self._add(grammar, made)

    def _add(self, grammar: Grammar, made: Automaton | StepByStep) -> Automaton | StepByStep:
        with self._lock:
            self._made[grammar] = made
            while len(self._made) > 1 and self._bytes() > MAX_BYTES:
                self._made.popitem(last=False)
        return made

    def _follow(self, grammar: Grammar, vocabulary: TokenBytes) -> Automaton | StepByStep:
        try:
            made = _in_tables(grammar, vocabulary)
        except InvalidRequest:
            if (smaller := _smaller(grammar)) == grammar:
                raise
            made = _in_tables(smaller, vocabulary)
        self._save(grammar, vocabulary, made)
        return made

    def _save(self, grammar: Grammar, vocabulary: TokenBytes, made: Automaton | StepByStep) -> None:
        if self._store is not None and isinstance(made, Automaton):
            self._store.save(grammar, vocabulary, made)

    def _bytes(self) -> int:
        return sum(each.bytes for each in self._made.values())
