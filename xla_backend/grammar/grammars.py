"""`Grammars`: the automata of one model, each made once.

Knows which grammar is asked for, and what is in memory. Must not know what a row does with it.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from xla_backend.grammar import automaton, json_schema, json_text, tool_calls
from xla_backend.grammar.automaton import Automaton, Vocabulary
from xla_backend.grammar.pattern import Pattern
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.grammar import Grammar

MAX_BYTES = 2**28
"""Of automata in memory; the latest one stays in any case."""
_WRONG_TYPES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, re.error)
"""What a keyword with a value of another type raises, wherever it is read."""


def regex(grammar: Grammar) -> str:
    """Matches the texts that a grammar allows.

    Raises:
        InvalidRequest: there are none, it is no schema, or an automaton cannot hold it.
    """
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
    return "|".join(map(json_text.literal, json.loads(grammar.text)))


class Grammars:
    """Makes automata in a thread of its own."""

    def __init__(self, vocabulary: Callable[[], Vocabulary]) -> None:
        """Makes nothing yet; `vocabulary` reads the model's when it is first needed."""
        self._read = vocabulary
        self._vocabulary: Vocabulary | None = None
        self._made: OrderedDict[Grammar, Automaton] = OrderedDict()
        self._lock = threading.Lock()
        self._beside = ThreadPoolExecutor(1, "grammars")

    def get(self, grammar: Grammar) -> Future[Automaton]:
        """The automaton of a grammar; its error is an `InvalidRequest`, see `regex`."""
        with self._lock:
            if (known := self._made.get(grammar)) is not None:
                self._made.move_to_end(grammar)
                at_once: Future[Automaton] = Future()
                at_once.set_result(known)
                return at_once
        return self._beside.submit(self._make, grammar)

    def _make(self, grammar: Grammar) -> Automaton:
        if (known := self._made.get(grammar)) is not None:
            return known
        if self._vocabulary is None:
            self._vocabulary = self._read()
        made = automaton.build(regex(grammar), self._vocabulary)
        with self._lock:
            self._made[grammar] = made
            while len(self._made) > 1 and self._bytes() > MAX_BYTES:
                self._made.popitem(last=False)
        return made

    def _bytes(self) -> int:
        return sum(each.bytes for each in self._made.values())
