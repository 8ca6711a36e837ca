"""MaskBench: which of its schemas are followed, how strictly, and how soon.

The files are those of guidance-ai/jsonschemabench (MIT), `maskbench/data`: `--data` names the
folder. Each has a schema and documents, valid ones and others, which are read token by token with
the packaged model's vocabulary, and then its end. A file passes if its schema is taken, each valid
document can be written, and no other. Documents name members in any order, and a grammar names
them in the schema's: of valid ones that are refused, the second number are those that are taken
once their members are in the order of the schema's. "llguidance alone" is that library's own
reading of the schema. `--files 0` takes all. First masks, and `--limit` in seconds, are
processor time, which other programs do not change.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.checkpoints import packaged_file
from benchmarks.harness import MeasureFailed, Row, note
from xla_backend import Grammar, InvalidRequest
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.grammar.automaton import NONE, START, Automaton, TokenBytes
from xla_backend.grammar.grammars import Grammars, schema_step_by_step
from xla_backend.grammar.step_by_step import StepByStep

OPTIONS = {"data": "", "files": 300, "seed": 1, "limit": 20, "alone": 1, "tables": 0}
SIZE, END = 49_152, 2
"""V of the packaged model, and its token that ends a text."""
PUBLISHED = (
    "Published by MaskBench's authors, of 11,306 files: llguidance 0.7 passes 8,909, XGrammar "
    "8,122, Outlines 7,050, llama.cpp 6,505."
)
Followed = Automaton | StepByStep


class _OutOfTime(Exception):
    """A file took longer than `--limit` seconds."""


class _Reader:
    """Follows documents, and keeps how long each mask took."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.load(packaged_file())
        texts = self._tokenizer.vocabulary_bytes(SIZE)
        self.vocabulary = TokenBytes(texts, [END], self._tokenizer.drops_first_space())
        self.masks: list[float] = []

    def can_write(self, made: Followed, document: Any) -> bool:
        """Whether a grammar allows a document; False where it allows nothing more."""
        made, state = made.for_row(), START
        text = json.dumps(document, ensure_ascii=False)
        for token in [*self._tokenizer.encode(text, special=False), END]:
            started = time.perf_counter()
            state = int(made.next_state[state, made.class_of_token[token]])
            if state == NONE:
                return False
            if isinstance(made, StepByStep):
                try:
                    made.follow([token])
                except InvalidRequest:
                    return False
            self.masks.append(time.perf_counter() - started)
        return True


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each way of following schemas, and what was refused."""
    files = sorted(Path(options.data).glob("*.json")) if options.data else []
    if not files:
        raise MeasureFailed("--data names no folder with MaskBench's files")
    if options.files:
        files = random.Random(options.seed).sample(files, min(options.files, len(files)))
    reader = _Reader()
    StepByStep.of('start: "a"', reader.vocabulary)  # reads the vocabulary
    signal.signal(signal.SIGPROF, _stop)
    yield PUBLISHED
    for name in ["here", *(["llguidance alone"] if options.alone else [])]:
        yield from _run(name, files, reader, options)


def _stop(*_: object) -> None:
    raise _OutOfTime


def _run(name: str, files: list[Path], reader: _Reader, options: Namespace) -> Iterator[Row | str]:
    counted: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    first: list[float] = []
    reader.masks.clear()
    for path in files:
        read = json.loads(path.read_text())
        signal.setitimer(signal.ITIMER_PROF, options.limit)
        try:
            started = time.process_time()
            made = _followed(name, read["schema"], reader.vocabulary, bool(options.tables))
            first.append(time.process_time() - started)
            outcome = _outcome(made, read, reader)
        except InvalidRequest as error:
            outcome = "refused"
            reasons[str(error).partition(" at #")[0][:70]] += 1
        except _OutOfTime:
            outcome = "out of time"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        counted[outcome] += 1
        if outcome not in ("pass", "refused"):
            note(f"{name}: {path.name}: {outcome}")
    orders = counted["valid refused for its order"]
    milliseconds, microseconds = 1000 * np.array(first), 1e6 * np.array(reader.masks)
    yield {
        "way": name,
        "files": len(files),
        "pass": counted["pass"],
        "share": f"{counted['pass'] / len(files):.1%}",
        "schema refused": counted["refused"],
        "valid refused (for order)": f"{counted['valid refused'] + orders} ({orders})",
        "invalid taken": counted["invalid taken"],
        "out of time": counted["out of time"],
        "first mask ms, 50%, 95%, most": _percentiles(milliseconds, 50, 95, 100),
        "mask us, 50%, 95%, 99%": _percentiles(microseconds, 50, 95, 99),
    }
    if reasons:
        told = (f"{count} {reason!r}" for reason, count in reasons.most_common(8))
        yield f"{name}, refused: {', '.join(told)}."


def _percentiles(values: np.ndarray, *shares: int) -> str:
    return ", ".join(f"{value:.0f}" for value in np.percentile(values, shares))


def _followed(name: str, schema: Any, vocabulary: TokenBytes, with_tables: bool) -> Followed:
    """What follows a schema; by tables where there are some, if that is asked for."""
    if name != "here":
        return StepByStep.of(f"start: %json {json.dumps(schema)}", vocabulary)
    grammar = Grammar.json_schema(schema)
    if not with_tables:  # which would be made meanwhile, and take the processor
        return schema_step_by_step(grammar, vocabulary)
    grammars = Grammars(lambda: vocabulary)
    row = grammars.get(grammar).result()  # without which no tables are made
    grammars.wait()
    del row
    return grammars.get(grammar).result()


def _outcome(made: Followed, read: dict[str, Any], reader: _Reader) -> str:
    outcome = "pass"
    for test in read["tests"]:
        can = reader.can_write(made, test["data"])
        if can and not test["valid"]:
            return "invalid taken"
        if not can and test["valid"]:
            outcome = "valid refused"
            with contextlib.suppress(RecursionError):
                if reader.can_write(made, _in_order(test["data"], [*_orders(read["schema"])])):
                    outcome = "valid refused for its order"
    return outcome


def _orders(schema: Any) -> Iterator[list[str]]:
    """The names of each object that a schema describes, in its order."""
    if isinstance(schema, dict):
        if isinstance(named := schema.get("properties"), dict):
            yield [*named]
        for each in schema.values():
            yield from _orders(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _orders(each)


def _in_order(document: Any, orders: list[list[str]]) -> Any:
    """A document with the members of each object as in the order that has most of them."""
    if isinstance(document, list):
        return [_in_order(each, orders) for each in document]
    if not isinstance(document, dict):
        return document
    best = max(orders, key=lambda names: len(document.keys() & set(names)), default=[])
    named = [name for name in best if name in document]
    rest = [name for name in document if name not in best]
    return {name: _in_order(document[name], orders) for name in [*named, *rest]}
