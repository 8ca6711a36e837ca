"""Tokens/s of 1, 2, 4, 8 and 16 requests at once, compared with llama.cpp with as many slots.

Prompts differ; each is continued greedily by a fixed number of tokens at `/v1`, whatever ends a
text. *Decoding* counts a request's tokens after its first. Functions for more rows are compiled at
first use, so two rounds do not count; in the others the servers and numbers of requests alternate.
llama.cpp reads the same file, where the weights are one ("Q8_0", or "auto" of a GGUF file).
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
from benchmarks.measures.crowd import ENGINE, PEER, Wave
from benchmarks.servers import LLAMA_CPP_MISSING, llama_cpp, settle, this_app
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {
    "models": [PACKAGED_MODEL],
    "weights": ["Q4_1", "int8"],
    "activations": ["exact"],
    "requests": [1, 2, 4, 8, 16],
    "new_tokens": 64,
    "rounds": 3,
}
UNMEASURED, CONTEXT = 2, 256
PROMPTS = ("Once upon a time", "One day in April", "The fox and I am", "Tom and his dogs")


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each model, kind of weights and of activations, server and number of requests."""
    kinds = itertools.product(options.models, options.weights, options.activations)
    slots, is_missing = max(options.requests), False
    for model, weights, activations in kinds:
        name, registry_weights = checkpoints.model_and_weights(model, weights)
        flags = ("--models", name, "--weights", registry_weights, "--activations", activations)
        file = checkpoints.gguf_file(model, weights)
        with this_app(*flags) as url, llama_cpp(file, slots, CONTEXT) as peer_url:
            is_missing |= bool(file and not peer_url)
            more = {
                "temperature": 0.0,
                "max_tokens": options.new_tokens,
                "extra_body": {"ignore_eos": True},
            }
            waves: dict[tuple[str, int], Callable[[], tuple[list[Answer], Wave, int]]] = {}
            for server, address in ((ENGINE, url), (PEER, peer_url)):
                if not address:
                    continue
                requests = [partial(Client(address, name).complete, x, **more) for x in PROMPTS]
                alone = [ask().text for ask in requests]
                wave = partial(_wave, url, requests, alone)
                waves |= {(server, count): partial(wave, count) for count in options.requests}
            in_turn(waves, UNMEASURED)
            measured = in_turn(waves, options.rounds)
        decoding = {
            way: [sum(1 / x.tpot_s for x in one[0]) for one in found]
            for way, found in measured.items()
        }
        least = min(options.requests)
        for (server, count), found in measured.items():
            rates, base = decoding[server, count], decoding[server, least]
            yield {
                "model": model,
                "weights": weights,
                "activations": activations,
                "server": server,
                "requests": count,
                "tokens/s": statistics.median(wave.rate for _, wave, _ in found),
                "decoding": statistics.median(rates),
                f"over {least}": ratio(rates, base),
                "over llama.cpp": ratio(rates, decoding[PEER, count])
                if server == ENGINE and peer_url
                else "",
                "TTFT median, s": statistics.median(wave.ttft_s for _, wave, _ in found),
                "ran together": max(x.batch_size for answers, _, _ in found for x in answers),
                "other text than alone": sum(others for _, _, others in found),
            }
    if is_missing:
        yield LLAMA_CPP_MISSING


def _wave(
    url: str, requests: Sequence[Callable[[], Answer]], alone: Sequence[str], count: int
) -> tuple[list[Answer], Wave, int]:
    """The answers, what they show, and how many have another text than alone."""
    answers, wall_s = ask_all([requests[number % len(requests)] for number in range(count)])
    settle(url)
    others = sum(answer.text != alone[i % len(requests)] for i, answer in enumerate(answers))
    return answers, Wave.of(answers, wall_s), others
