"""Structured answers: what tables cost, and what a token under a grammar costs.

Which schemas are followed, and how strictly, is the measure `maskbench`.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from benchmarks.checkpoints import packaged_file
from benchmarks.harness import MeasureFailed, Row, in_turn, ratio
from xla_backend import Backend, GenerationOptions, Grammar
from xla_backend.checkpoints.models import PACKAGED_MODEL
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.compilation.store import Store
from xla_backend.engine.text import GRAMMAR_DRAFTS
from xla_backend.grammar.automaton import TokenBytes
from xla_backend.grammar.grammar_store import GrammarStore
from xla_backend.grammar.grammars import Grammars

OPTIONS = {"rounds": 9, "model": PACKAGED_MODEL}
SIZE, END = 49_152, 2
"""V of the packaged model, and its token that ends a text."""

_KEYS = ("name", "address", "quantity", "category", "priority")
_KINDS = ({"type": "string", "maxLength": 12}, {"type": "integer"}, {"enum": ["low", "high"]})
_FIELDS = {f"{key}_{n}": _KINDS[n % 3] for n in range(4) for key in _KEYS}
LARGE = Grammar.json_schema(
    {"type": "object", "properties": _FIELDS, "required": [*_FIELDS]}, strict=True
)
"""A schema of 20 fields."""


def measure(options: Namespace) -> Iterator[Row | str]:
    """Sentences about cost."""
    yield from _first_and_again()
    yield from _with_model(options)


def _first_and_again() -> Iterator[str]:
    """Times of the tables of a schema, also for 262,144 words, most of them pairs of others."""
    tokenizer, dice = Tokenizer.load(packaged_file()), random.Random(9)
    texts = tokenizer.vocabulary_bytes(SIZE)
    small = TokenBytes(texts, [END], tokenizer.drops_first_space())
    pairs = (dice.choice(texts) + dice.choice(texts) for _ in range(262_144 - SIZE))
    large = TokenBytes([*texts, *pairs], [END], drops_first_space=False)
    for vocabulary in (small, large):
        with tempfile.TemporaryDirectory() as folder:
            store = GrammarStore(Store(Path(folder)))
            first, again = (Grammars(lambda of=vocabulary: of, store) for _ in range(2))
            times, steps = list[float](), 0.0
            for grammars in (first, again, again):
                started = time.perf_counter()
                row = grammars.get(LARGE).result()
                begun = time.perf_counter()
                grammars.wait()
                del row
                times.append(1000 * (time.perf_counter() - started))
                steps = 1000 * (begun - started) if grammars is first else steps
        yield (
            f"A schema of 20 fields for {vocabulary.size:,} words, the first of all: followed step "
            f"by step after {steps:.0f} ms, by tables after {times[0]:.0f} ms, {times[1]:.1f} ms "
            f"from disk, {times[2]:.2f} ms from memory."
        )


def _with_model(options: Namespace) -> Iterator[str]:
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
    compiled = len({entry.key for entry in backend.cached_functions()} - before)
    backend.close()
    yield (
        f"A token of a 20-field schema takes {ratio(found['bound'], found['free']):.2f} of a free "
        f"one ({1000 * statistics.median(found['free']):.1f} ms); it compiled {compiled} functions."
    )
