"""Structured answers: which of 100 schemas are followed, how strictly, and at what cost.

The schemas are random, of five kinds that JSONSchemaBench collects; each comes with a maker of
valid documents. "llguidance alone" is that library's own reading of a schema; "llama.cpp" are the
rules that its converter makes of one, if `--converter` names a program that reads a schema and
prints rules (its `json_schema_to_grammar`, compiled), as they are followed here. Random walks
choose any token that may come, which is harsher than a model, whose answers are at temperature 1.
"""

from __future__ import annotations

import json
import random
import statistics
import string
import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import numpy as np

from benchmarks.checkpoints import packaged_file
from benchmarks.harness import MeasureFailed, Row, in_turn, ratio
from xla_backend import Backend, GenerationOptions, Grammar, InvalidRequest
from xla_backend.checkpoints.models import PACKAGED_MODEL
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.compilation.store import Store
from xla_backend.engine.text import GRAMMAR_DRAFTS
from xla_backend.grammar import step_by_step
from xla_backend.grammar.automaton import NONE, START, Automaton, Vocabulary
from xla_backend.grammar.grammar_store import GrammarStore
from xla_backend.grammar.grammars import Grammars
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.rows.scheduler import MAX_ROWS

OPTIONS = {"each": 20, "strict": 40, "walks": 25, "documents": 200, "answers": 25, "rounds": 9}
OPTIONS |= {"converter": "", "model": PACKAGED_MODEL}
SIZE, END = 49_152, 2
"""V of the packaged model, and its token that ends a text."""

_KEYS = ("name", "address", "quantity", "category", "priority")
_KINDS = ({"type": "string", "maxLength": 12}, {"type": "integer"}, {"enum": ["low", "high"]})
_FIELDS = {f"{key}_{n}": _KINDS[n % 3] for n in range(4) for key in _KEYS}
LARGE = Grammar.json_schema({"type": "object", "properties": _FIELDS, "required": [*_FIELDS]})
"""A schema of 20 fields."""

Dice = random.Random
Made = tuple[Any, Callable[[Dice], Any]]
"""A schema, and a maker of valid documents."""
Followed = Automaton | StepByStep


def _word(dice: Dice, most: int = 9) -> str:
    return "".join(dice.choices(string.ascii_letters + ' é"\\/', k=dice.randint(1, most)))


def _text(dice: Dice) -> Made:
    names = [_word(dice) for _ in range(dice.randint(2, 9))]
    made: list[Made] = [
        ({"type": "string", "description": _word(dice, 40)}, _word),
        ({"type": "string", "minLength": 1, "maxLength": 30}, lambda d: _word(d, 30)),
        ({"enum": names}, lambda d: d.choice(names)),
        (
            {"type": "string", "pattern": "^[a-z]{2,8}(-[0-9]+)?$"},
            lambda d: d.choice(["zz", f"ab-{d.randint(0, 99)}"]),
        ),
        (
            {"type": "string", "format": "date"},
            lambda d: f"20{d.randint(10, 99)}-02-{d.randint(10, 28)}",
        ),
        ({"type": "string", "format": "email"}, lambda d: f"a{d.randint(0, 99)}@b.org"),
    ]
    return dice.choice(made)


def _number(dice: Dice) -> Made:
    made: list[Made] = [
        ({"type": "integer"}, lambda d: d.randint(-999, 999)),
        ({"type": "integer", "minimum": 1, "maximum": 65535}, lambda d: d.randint(1, 65535)),
        ({"type": "number", "exclusiveMinimum": 0}, lambda d: d.randint(1, 999) / 8),
        ({"type": "boolean"}, lambda d: d.random() < 0.5),
    ]
    return dice.choice(made)


def _object(dice: Dice, levels: int, **more: Any) -> Made:
    parts = {f"{_word(dice)}{n}": _value(dice, levels - 1) for n in range(dice.randint(2, 6))}
    required = [name for name in parts if dice.random() < 0.6]
    schema = {"type": "object", "properties": {n: of for n, (of, _) in parts.items()}} | more

    def document(d: Dice) -> Any:
        return {n: make(d) for n, (_, make) in parts.items() if n in required or d.random() < 0.5}

    return schema | {"required": required}, document


def _array(dice: Dice, levels: int) -> Made:
    items, make = _value(dice, levels - 1)
    schema = {"type": "array", "items": items, "minItems": 1, "maxItems": 4}
    return schema, lambda d: [make(d) for _ in range(d.randint(1, 4))]


def _map(dice: Dice, levels: int) -> Made:
    of, make = _value(dice, levels - 1)
    schema = {"type": "object", "additionalProperties": of}
    return schema, lambda d: {f"k{n}": make(d) for n in range(d.randint(0, 3))}


def _either(dice: Dice, levels: int) -> Made:
    ways = [_value(dice, levels - 1), ({"type": "null"}, lambda d: None)]
    return {"anyOf": [of for of, _ in ways]}, lambda d: d.choice(ways)[1](d)


def _value(dice: Dice, levels: int) -> Made:
    if levels <= 0 or dice.random() < 0.5:
        return dice.choice([_text, _number])(dice)
    return dice.choice([_object, _array, _map, _either])(dice, levels)


def _function(dice: Dice) -> Made:
    return _object(dice, 1, additionalProperties=False)


def _resource(dice: Dice) -> Made:
    """As in Kubernetes: deep, with shared definitions."""
    (shared, of_shared), (rest, of_rest) = _object(dice, 1), _object(dice, 3)
    ref = {"$ref": "#/$defs/meta"}
    properties = {"meta": ref, "items": {"type": "array", "items": ref}, "spec": rest}
    schema = {"type": "object", "properties": properties, "required": ["meta", "spec"]}

    def document(d: Dice) -> Any:
        items = [of_shared(d) for _ in range(d.randint(0, 2))]
        return {"meta": of_shared(d), "items": items, "spec": of_rest(d)}

    return schema | {"$defs": {"meta": shared}}, document


def _settings(dice: Dice) -> Made:
    """As in the JSON Schema Store: a closed object of many optional settings."""
    return _object(dice, 3, additionalProperties=False)


def _easy(dice: Dice) -> Made:
    return _object(dice, 2)


def _hard(dice: Dice) -> Made:
    """Recursion, and keywords that few engines support."""
    (of, make), (text, word) = _number(dice), _text(dice)
    node = {"type": "object", "properties": {"v": of, "next": {"$ref": "#"}}, "required": ["v"]}

    def nodes(d: Dice, levels: int = 3) -> Any:
        below = {"next": nodes(d, levels - 1)} if levels and d.random() < 0.7 else {}
        return {"v": make(d)} | below

    made: list[Made] = [
        (node, nodes),
        ({"type": "array", "items": text, "uniqueItems": True}, lambda d: [word(d)]),
        ({"type": "number", "multipleOf": 0.5}, lambda d: d.randint(0, 99) / 2),
        ({"type": "string", "maxLength": 10_000}, lambda d: _word(d, 500)),
        ({"allOf": [node, {"not": {"required": ["x"]}}]}, nodes),
        (
            {"type": "object", "properties": {"a": text}, "patternProperties": {"^x-": of}},
            lambda d: {"a": word(d), "x-b": make(d)},
        ),
        ({"oneOf": [text, {"type": "object", "required": ["a"]}]}, word),
    ]
    return dice.choice(made)


KINDS = {
    "function signatures": _function,
    "easy": _easy,
    "deep, with definitions": _resource,
    "settings": _settings,
    "hard": _hard,
}


class _Texts:
    """Texts under a grammar, token by token."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.load(packaged_file())
        self.bytes = self._tokenizer.vocabulary_bytes(SIZE)
        self.vocabulary = Vocabulary(self.bytes, [END], self._tokenizer.drops_first_space())
        self._is_short = np.array([len(text) < 2 for text in self.bytes])

    def can_write(self, made: Followed, text: str) -> bool:
        made, state = made.for_row(), START
        for token in [*self._tokenizer.encode(text, special=False), END]:
            state = int(made.next_state[state, made.class_of_token[token]])
            if state == NONE:
                return False
            if isinstance(made, StepByStep):
                made.follow([token])
        return True

    def walk(self, made: Followed, dice: Dice, most: int = 400) -> str | None:
        """A text of random tokens; None if it does not end."""
        made, state, text = made.for_row(), START, b""
        for _ in range(most):
            allowed = made.next_state[state][made.class_of_token] != NONE
            if allowed[END] and dice.random() < 0.5:
                return text.decode(errors="replace")
            allowed[END] = False
            short = np.flatnonzero(allowed & self._is_short)
            ids = short if len(short) and dice.random() < 0.8 else np.flatnonzero(allowed)
            if not len(ids):
                return text.decode(errors="replace")
            token = int(dice.choice(ids))
            text += self.bytes[token]
            state = int(made.next_state[state, made.class_of_token[token]])
            if isinstance(made, StepByStep):
                made.follow([token])
        return None


def _alone(schema: Any, vocabulary: Vocabulary) -> StepByStep | None:
    """llguidance with its own interpretation of a schema."""
    try:
        return StepByStep.of(step_by_step.rules(Grammar.json_schema(schema)), vocabulary)
    except InvalidRequest:
        return None


def _here(grammar: Grammar, grammars: Grammars) -> Followed | None:
    try:
        return grammars.get(grammar).result()
    except InvalidRequest:
        return None


def _converted(schema: Any, converter: str) -> Grammar | None:
    done = subprocess.run(
        [converter], input=json.dumps(schema), capture_output=True, text=True, check=False
    )
    return Grammar.gbnf(done.stdout) if done.returncode == 0 else None


def _is_valid(schema: Any, text: str) -> bool:
    checker = jsonschema.FormatChecker()
    try:
        document = json.loads(text)
    except ValueError:
        return False
    return jsonschema.Draft202012Validator(schema, format_checker=checker).is_valid(document)


class _Case(NamedTuple):
    """A schema, what makes valid documents, and what follows it in each way that can."""

    schema: Any
    document: Callable[[Dice], Any]
    ways: dict[str, Followed]


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each kind of schema, then sentences about strictness and cost."""
    texts, dice = _Texts(), random.Random(5)
    grammars, cases = Grammars(lambda: texts.vocabulary), list[_Case]()
    _alone({}, texts.vocabulary)  # reads the vocabulary
    for kind, make in KINDS.items():
        times: list[float] = []
        found: list[Followed | None] = []
        converted = alone = 0
        for _ in range(options.each):
            schema, document = make(dice)
            started = time.perf_counter()
            found.append(_here(Grammar.json_schema(schema), grammars))
            times.append(time.perf_counter() - started)
            other = _alone(schema, texts.vocabulary)
            alone += other is not None
            ways = {"Here": found[-1], "llguidance alone": other}
            if options.converter:
                rules = _converted(schema, options.converter)
                converted += rules is not None
                ways["llama.cpp"] = _here(rules, grammars) if rules else None
            cases.append(_Case(schema, document, {name: of for name, of in ways.items() if of}))
        yield {
            "schemas": kind,
            "number": options.each,
            "tables": sum(isinstance(each, Automaton) for each in found),
            "step by step": sum(isinstance(each, StepByStep) for each in found),
            "refused": found.count(None),
            "llguidance alone": alone,
            "llama.cpp": converted if options.converter else "not run",
            "first time, median ms": 1000 * statistics.median(times),
            "longest ms": 1000 * max(times),
        }
    yield from _first_and_again(texts)
    yield from _strictness(options, texts, cases)
    yield from _with_model(options, [case.schema for case in cases if "Here" in case.ways])


def _first_and_again(texts: _Texts) -> Iterator[str]:
    """Times of the tables of a schema, also for 262,144 words, most of them pairs of others."""
    dice = random.Random(9)
    pairs = (dice.choice(texts.bytes) + dice.choice(texts.bytes) for _ in range(262_144 - SIZE))
    large = Vocabulary([*texts.bytes, *pairs], [END], drops_first_space=False)
    for vocabulary in (texts.vocabulary, large):
        with tempfile.TemporaryDirectory() as folder:
            store = GrammarStore(Store(Path(folder)))
            first, again = (Grammars(lambda of=vocabulary: of, store) for _ in range(2))
            times = []
            for grammars in (first, again, again):
                started = time.perf_counter()
                grammars.get(LARGE).result()
                times.append(1000 * (time.perf_counter() - started))
        yield (
            f"Tables of a schema of 20 fields for {vocabulary.size:,} words: {times[0]:.0f} ms the "
            f"first time, {times[1]:.1f} ms from disk, {times[2]:.2f} ms from memory."
        )


def _strictness(options: Namespace, texts: _Texts, cases: list[_Case]) -> Iterator[str]:
    names = ["Here", "llguidance alone", *(["llama.cpp"] if options.converter else [])]
    both = [case for case in cases if len(case.ways) == len(names)]
    chosen = random.Random(6).sample(both, min(options.strict, len(both)))
    for name in names:
        dice, ended, invalid, refused = random.Random(7), 0, 0, 0
        for schema, document, ways in chosen:
            for _ in range(options.walks):
                if (text := texts.walk(ways[name], dice)) is not None:
                    ended += 1
                    invalid += not _is_valid(schema, text)
            for _ in range(options.documents):
                form = dice.choice([{}, {"indent": 2}, {"separators": (",", ":")}])
                refused += not texts.can_write(ways[name], json.dumps(document(dice), **form))
        number = options.documents * len(chosen)
        yield (
            f"{name}: of {len(chosen)} schemas {ended:,} random walks ended, {invalid} of them "
            f"invalid; {refused} of {number:,} valid documents were refused."
        )


def _with_model(options: Namespace, schemas: list[Any]) -> Iterator[str]:
    backend = Backend()
    free = GenerationOptions(max_new_tokens=160, ignore_eos=True)
    bound = GenerationOptions(max_new_tokens=160, grammar=LARGE)

    def tpot(case: GenerationOptions) -> float:
        prompt = "Describe an order as JSON."
        result = backend.generate(options.model, prompt, case, cache_salt="grammar")
        if result.tpot_s is None:
            raise MeasureFailed("an answer has one token")
        return result.tpot_s

    # Compiles what verifies drafts at once, not when the engine is idle.
    drafts = GenerationOptions(max_new_tokens=2, prompt_lookup_num_tokens=GRAMMAR_DRAFTS)
    backend.generate(options.model, "Write JSON.", drafts)
    ways = {"free": lambda: tpot(free), "bound": lambda: tpot(bound)}
    in_turn(ways, 2)
    # Their keys: next to others a row has the function for more rows.
    before = {entry.key for entry in backend.cached_functions()}
    found = in_turn(ways, options.rounds)
    chosen = random.Random(8).sample(schemas, min(options.strict, len(schemas)))

    def answer(case: tuple[Any, int]) -> bool | None:
        """Whether an answer is valid; None where it has no end."""
        schema, seed = case
        grammar = Grammar.json_schema(schema)
        sampled = GenerationOptions(max_new_tokens=300, temperature=1.0, seed=seed, grammar=grammar)
        result = backend.generate(options.model, "Write JSON.", sampled, cache_salt="grammar")
        return _is_valid(schema, result.text) if result.finish == "eos" else None

    with ThreadPoolExecutor(MAX_ROWS) as clients:
        pairs = [(schema, seed) for schema in chosen for seed in range(options.answers)]
        valid = list(clients.map(answer, pairs))
    number, invalid, cut = len(valid), valid.count(False), valid.count(None)
    compiled = len({entry.key for entry in backend.cached_functions()} - before)
    backend.close()
    yield (
        f"A token of a 20-field schema takes {ratio(found['bound'], found['free']):.2f} of a free "
        f"one ({1000 * statistics.median(found['free']):.1f} ms). Of {number} answers of the model "
        f"{invalid} are invalid and {cut} reached 300 tokens; new schemas compiled {compiled} "
        "functions."
    )
