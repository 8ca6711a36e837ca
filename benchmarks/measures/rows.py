"""Tokens/s of 1, 2, 4, 8 and 16 requests that arrive at `/v1` at the same time.

Prompts differ; each is continued greedily by a fixed number of tokens, with the end token
forbidden. Functions for more rows are compiled at first use, so two rounds do not count; in the
others the numbers of requests alternate.
"""

from __future__ import annotations

import itertools
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmarks import checkpoints
from benchmarks.client import Answer, Client, ask_all
from benchmarks.harness import Row, in_turn, ratio
from benchmarks.measures.crowd import ANY_LENGTH, Wave
from benchmarks.servers import settle, this_app
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {
    "models": [PACKAGED_MODEL],
    "weights": ["auto", "int8"],
    "requests": [1, 2, 4, 8, 16],
    "new_tokens": 64,
    "rounds": 3,
}
UNMEASURED = 2
PROMPTS = ("Once upon a time", "One day in April", "The fox and I am", "Tom and his dogs")


def measure(options: Namespace) -> Iterator[Row]:
    """A row for each model, kind of weights and number of requests."""
    for model, weights in itertools.product(options.models, options.weights):
        name = checkpoints.served_name(model, weights)
        with this_app("--models", name, "--weights", weights) as url:
            more = ANY_LENGTH | {"max_tokens": options.new_tokens}
            asks = [partial(Client(url, name).complete, prompt, **more) for prompt in PROMPTS]
            alone = [ask().text for ask in asks]
            wave = partial(_wave, url, asks)
            waves = {count: partial(wave, count) for count in options.requests}
            in_turn(waves, UNMEASURED)
            measured = in_turn(waves, options.rounds)
        rates = {count: [each.rate for _, each in found] for count, found in measured.items()}
        least = min(options.requests)
        for count, found in measured.items():
            answers = [numbered for given, _ in found for numbered in enumerate(given)]
            yield {
                "model": model,
                "weights": weights,
                "requests": count,
                "tokens/s": statistics.median(rates[count]),
                f"over {least}": ratio(rates[count], rates[least]),
                "TTFT median, s": statistics.median(each.ttft_s for _, each in found),
                "TPOT median, ms": 1000 * statistics.median(each.tpot_s for _, each in found),
                "ran together": max(answer.batch_size for _, answer in answers),
                "other text than alone": sum(
                    answer.text != alone[i % len(PROMPTS)] for i, answer in answers
                ),
            }


def _wave(url: str, asks: Sequence[Callable[[], Answer]], count: int) -> tuple[list[Answer], Wave]:
    answers, wall_s = ask_all([asks[number % len(asks)] for number in range(count)])
    settle(url)
    return answers, Wave.of(answers, wall_s)
