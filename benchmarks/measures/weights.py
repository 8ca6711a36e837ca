"""Formats of weights, at the real sizes of small models: memory, speed, and changed tokens.

Each format runs in its own engine process: its first call, a prompt of 400 tokens, and a token,
greedy and sampled, in turn with reading as many bytes of weights as a token needs. With real
weights the perplexity of the token that follows at 128 places of a text is measured, and compared
with the first format: the most likely token at these places, its log-probability if it is the
same, and how much of greedy continuations is the same up to their first difference. Published
sizes such as "Qwen3-0.6B" have random weights; "Qwen3-0.6B-Q4_K" is a GGUF file of random blocks.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import checkpoints
from benchmarks.contenders.memory_reader import Reader
from benchmarks.harness import ROOT, Cell, Row, note, peak_memory, ratio
from xla_backend import BackendProcess, GenerationOptions, TokenIds
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.results import TopLogprob

OPTIONS = {
    "models": [PACKAGED_MODEL, "Qwen2.5-0.5B"],
    "weights": ["float32", "auto", "bfloat16", "int8"],
    "activations": ["exact"],
    "new_tokens": 32,
    "rounds": 5,
}
PROMPT_TOKENS = 400
TEXT = ROOT / "docs" / "tried.md"
PLACES, LENGTH, STEP = 128, 64, 32
"""Places of the text, and tokens before each and between them."""
TEXTS, FOLLOWING = 16, 32
"""Greedy continuations, at the first places, and their tokens."""


@dataclass(frozen=True)
class Predictions:
    """What a format says at the places: the most likely tokens, the log-probabilities of those that
    follow in the text, and the ids of continuations."""

    tokens: list[TopLogprob]
    following: list[float]
    continued: list[list[int]]


def measure(options: Namespace) -> Iterator[Row]:
    """A row for each model, kind, and kind of activations."""
    for model in options.models:
        first: Predictions | None = None
        for kind, activations in itertools.product(options.weights, options.activations):
            name, weights = checkpoints.model_and_weights(model, kind)
            engine = BackendProcess(
                Registry(weights=weights, activations=activations),
                default_model=None,
                store="off",
                warm_up=None,
            )
            try:
                row = _times(engine, name, model, options.new_tokens, options.rounds)
                predictions = None if checkpoints.is_random(model) else _predict(engine, name)
            finally:
                engine.close()
            first = first or predictions
            about = {"model": model, "weights": kind, "activations": activations}
            yield about | row | (changes(predictions, first) if predictions and first else {})


def _times(
    engine: BackendProcess, name: str, model: str, new_tokens: int, rounds: int
) -> dict[str, Cell]:
    size = engine.load(name).weights_bytes or 0
    prompt = TokenIds(checkpoints.prompt(checkpoints.folder(model), PROMPT_TOKENS))
    greedy = GenerationOptions(max_new_tokens=new_tokens)
    sampled = greedy.replace(temperature=0.8, top_k=50, top_p=0.95, seed=1)
    first_s = engine.generate(name, prompt, greedy).timing.total_s
    reader, prefill, reading = Reader(int(size * checkpoints.share_read(model))), [], []
    token: dict[GenerationOptions, list[float]] = {greedy: [], sampled: []}
    for _ in range(rounds):
        for options, seconds in token.items():
            result = engine.generate(name, prompt, options)
            prefill.append(result.timing.prefill_s)
            seconds.append(result.tpot_s or 0.0)
        start = time.perf_counter()
        reader.read()
        reading.append(time.perf_counter() - start)
    note(f"  {name}: {rounds} rounds")
    return {
        "weights, MB": size / 1e6,
        "peak, MB": peak_memory(engine.pid) / 1e6,
        "first call, s": first_s,
        f"prompt of {PROMPT_TOKENS}, ms": 1000 * statistics.median(prefill),
        "a token, ms": 1000 * statistics.median(token[greedy]),
        "over reading": ratio(token[greedy], reading),
        "sampled over greedy": ratio(token[sampled], token[greedy]),
    }


def _predict(engine: BackendProcess, name: str) -> Predictions:
    text = TEXT.read_text(encoding="utf-8")
    tokenizer = Tokenizer.load(Registry().locate(name).folder)
    ids, begin = tokenizer.encode(text), tokenizer.encode("")
    predictions = Predictions([], [], [])
    for place in range(LENGTH, LENGTH + PLACES * STEP, STEP):
        before = TokenIds((*begin, *ids[place - LENGTH : place]))
        # A bias changes which token is chosen, but not its probability.
        forced = GenerationOptions(max_new_tokens=1, logit_bias=((ids[place], 100.0),))
        [token] = engine.generate(name, before, forced).tokens
        predictions.following.append(token.logprob)
        predictions.tokens.append(token.top_logprobs[0])
        if len(predictions.continued) < TEXTS:
            greedy = GenerationOptions(max_new_tokens=FOLLOWING, ignore_eos=True)
            predictions.continued.append(
                [t.id for t in engine.generate(name, before, greedy).tokens]
            )
    return predictions


def changes(predictions: Predictions, first: Predictions) -> dict[str, Cell]:
    """The perplexity, and what differs from the first format."""
    pairs = list(zip(predictions.tokens, first.tokens, strict=True))
    same = [(one.logprob, other.logprob) for one, other in pairs if one.id == other.id]
    texts = list(zip(predictions.continued, first.continued, strict=True))
    equal = sum(
        len(list(itertools.takewhile(lambda two: two[0] == two[1], zip(*both, strict=True))))
        for both in texts
    )
    return {
        "perplexity": math.exp(-statistics.fmean(predictions.following)),
        "same token": f"{len(same)} of {len(pairs)}",
        "log-probability, off by": statistics.fmean(abs(a - b) for a, b in same) if same else "",
        "greedy, same": f"{equal} of {sum(len(one) for one, _ in texts)}",
    }
