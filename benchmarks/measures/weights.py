"""Formats of weights, at the real sizes of small models: memory, speed, and changed tokens.

Each format runs in its own engine process: its first call, a prompt of 400 tokens, and a token,
greedy and sampled, in turn with reading as many bytes as the weights take. With real weights the
most likely next token at 128 places of a text is compared with that of the first format, and its
log-probability if the token is the same. "Qwen2.5-0.5B", "Qwen3-0.6B", "gemma-3-270m" and
"Llama-3.2-1B" are those shapes with random weights.
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence

import psutil

from benchmarks import checkpoints
from benchmarks.contenders.memory_reader import Reader
from benchmarks.harness import ROOT, Cell, Row, note, ratio
from xla_backend import BackendProcess, GenerationOptions, Token, TokenIds
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry

OPTIONS = {
    "models": [PACKAGED_MODEL, "Qwen2.5-0.5B"],
    "weights": ["float32", "auto", "bfloat16", "int8"],
    "new_tokens": 32,
    "rounds": 5,
}
PROMPT_TOKENS = 400
TEXT = ROOT / "docs" / "tried.md"
PLACES, LENGTH, STEP = 128, 200, 50
"""Places of the text, and characters before each and between them."""


def measure(options: Namespace) -> Iterator[Row]:
    """A row for each model and kind."""
    for model in options.models:
        first: list[Token] = []
        for kind in options.weights:
            engine = BackendProcess(
                Registry(weights=kind), default_model=None, store="off", warm_up=None
            )
            name = checkpoints.served_name(model, kind)
            try:
                row = _times(engine, name, model, options.new_tokens, options.rounds)
                tokens = [] if checkpoints.is_random(model) else _next_tokens(engine, name)
            finally:
                engine.close()
            first = first or tokens
            yield {"model": model, "weights": kind} | row | changes(tokens, first)


def _times(
    engine: BackendProcess, name: str, model: str, new_tokens: int, rounds: int
) -> dict[str, Cell]:
    size = engine.load(name).weights_bytes or 0
    prompt = TokenIds(checkpoints.prompt(checkpoints.folder(model), PROMPT_TOKENS))
    greedy = GenerationOptions(max_new_tokens=new_tokens)
    sampled = greedy.replace(temperature=0.8, top_k=50, top_p=0.95, seed=1)
    first_s = engine.generate(name, prompt, greedy).timing.total_s
    reader, prefill, reading = Reader(size), [], []
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
        "process, MB": psutil.Process(engine.pid).memory_info().rss / 1e6,
        "first call, s": first_s,
        f"prompt of {PROMPT_TOKENS}, ms": 1000 * statistics.median(prefill),
        "a token, ms": 1000 * statistics.median(token[greedy]),
        "over reading": ratio(token[greedy], reading),
        "sampled over greedy": ratio(token[sampled], token[greedy]),
    }


def _next_tokens(engine: BackendProcess, name: str) -> list[Token]:
    """The most likely next token at each place of the text."""
    text, one = TEXT.read_text(encoding="utf-8"), GenerationOptions(max_new_tokens=1)
    starts = range(0, PLACES * STEP, STEP)
    return [engine.generate(name, text[i : i + LENGTH], one).tokens[0] for i in starts]


def changes(tokens: Sequence[Token], first: Sequence[Token]) -> dict[str, Cell]:
    """The number of equal tokens, and the mean difference of their log-probabilities."""
    pairs = list(zip(tokens, first, strict=True))
    same = [(one.logprob, other.logprob) for one, other in pairs if one.id == other.id]
    return {
        "same token": f"{len(same)} of {len(pairs)}" if pairs else "",
        "log-probability, off by": statistics.fmean(abs(a - b) for a, b in same) if same else "",
    }
