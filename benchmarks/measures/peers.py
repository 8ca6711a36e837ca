"""A token, the first token and memory of this engine and of its peers.

Contenders are long-lived processes with two threads each, called in turn, A B C A B C, from tokens
to tokens (this engine: to text). Calls for 2 and for N tokens give two times: *a token* is their
difference over N - 2, so it does not include the prompt; *first token* is the call for 2, less a
token. (Compiled `model.generate` cannot generate a single token.) A ratio is a peer's time over
this engine's with the same weights, else in float32: above 1, this engine is faster. *Reading the
weights* reads as many bytes as a token needs in float32. *With int8* this engine also rounds
activations. `--contenders` takes prefixes of names, such as "llama.cpp"; `--models` also GGUF
files.
"""

from __future__ import annotations

import contextlib
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import checkpoints
from benchmarks.contenders import THREADS, Request
from benchmarks.contenders.running import (
    CONTENDERS,
    ENGINE,
    FLOAT32,
    LIMIT,
    Contender,
    ContenderFailed,
    Running,
    with_file,
)
from benchmarks.harness import MeasureFailed, Row, in_turn, note, ratio
from xla_backend.checkpoints.kinds import EXACT
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {
    "models": [checkpoints.GPT2_124M, PACKAGED_MODEL],
    "contenders": [""],
    "prompt_tokens": [16, 400],
    "num_beams": [1, 4],
    "new_tokens": 64,
    "rounds": 5,
}
FEW = 2
LEAST_S = 10.0
"""Five calls of 25 ms would only measure the machine's momentary state."""


@dataclass(frozen=True)
class Times:
    """A contender's calls: seconds of the first and of each further token by round, the tokens."""

    first: list[float]
    token: list[float]
    tokens: list[int]

    @classmethod
    def of(
        cls, few: Sequence[float], many: Sequence[float], new_tokens: int, tokens: list[int]
    ) -> Times:
        """From the seconds of calls for `FEW` and for `new_tokens`."""
        token = [(b - a) / (new_tokens - FEW) for a, b in zip(few, many, strict=True)]
        return cls([a - b for a, b in zip(few, token, strict=True)], token, tokens)


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each model, number of beams, prompt and contender."""
    versions: dict[str, str] = {}
    for model in options.models:
        folder = checkpoints.folder(model)
        chosen = _chosen(model, options.contenders)
        with contextlib.ExitStack() as ends:
            start = partial(_start, folder, ends, versions)
            with ThreadPoolExecutor(THREADS) as pool:
                alive = [running for running in pool.map(start, chosen) if running]
            if not alive:
                raise MeasureFailed(f"none of the contenders can run {model}; above is why")
            for beams in options.num_beams:
                for tokens in options.prompt_tokens:
                    ids = checkpoints.prompt(folder, tokens)
                    for row in _rows(alive, ids, beams, options.new_tokens, options.rounds):
                        yield {"model": model, "beams": beams, "prompt": tokens} | row
    yield ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def _chosen(model: str, names: Sequence[str]) -> list[Contender]:
    """The contenders of these names; for a GGUF file those that read its format.

    Raises:
        MeasureFailed: there are none.
    """
    every = CONTENDERS
    if model.endswith(".gguf"):
        every = with_file(checkpoints.format_of_file(model))
    chosen = [one for one in every if one.name.startswith(tuple(names))]
    if not chosen:
        known = "; ".join(dict.fromkeys(one.name for one in every))
        raise MeasureFailed(f"--contenders takes beginnings of these names for {model}: {known}")
    return chosen


def _start(
    folder: Path, ends: contextlib.ExitStack, versions: dict[str, str], contender: Contender
) -> Running | None:
    try:
        running = Running(contender, folder)
        ends.callback(running.end)
        versions |= running.wait_until_ready()
    except ContenderFailed as error:
        note(f"  without {contender.name}: {error}")
        return None
    return running


def _rows(
    alive: Iterable[Running], ids: tuple[int, ...], num_beams: int, new_tokens: int, rounds: int
) -> Iterator[Row]:
    calls: dict[tuple[Running, int], Callable[[], tuple[float, list[int]]]] = {}
    for running in alive:
        own = {
            (running, n): partial(running.generate, Request(ids, n, num_beams))
            for n in (FEW, new_tokens)
        }
        try:
            for call in own.values():
                call()  # compiles
            calls |= own
        except ContenderFailed as error:
            note(f"  without {running.contender.name}: {error}")
    if not calls:
        raise MeasureFailed("none of the contenders can run this request; above is why")
    results = in_turn(calls, rounds, LEAST_S)
    measured = {
        running.contender: Times.of(
            [seconds for seconds, _ in results[running, FEW]],
            [seconds for seconds, _ in results[running, new_tokens]],
            new_tokens,
            results[running, new_tokens][0][1],
        )
        for running, n in calls
        if n == FEW
    }
    held = {running.contender: running.memory() / 1e6 for running, _ in calls}
    for contender, times in measured.items():
        base = base_of(contender, measured)
        is_base = base == contender or contender.program == LIMIT
        over = None if base is None or is_base else measured[base]
        yield {
            "contender": contender.name,
            "first token, ms": 1000 * statistics.median(times.first),
            "ratio": ratio(times.first, over.first) if over else "",
            "a token, ms": 1000 * statistics.median(times.token),
            "its ratio": ratio(times.token, over.token) if over else "",
            "peak, MB": held[contender],
            "tokens": remark(contender, times.tokens, new_tokens, over),
        }


def base_of(contender: Contender, measured: Iterable[Contender]) -> Contender | None:
    """This engine, exact, with a contender's weights or else in float32; None if not measured."""
    engines = {
        one.weights: one for one in measured if one.program == ENGINE and one.activations == EXACT
    }
    return engines.get(contender.weights) or engines.get(FLOAT32)


def remark(contender: Contender, tokens: list[int], expected: int, over: Times | None) -> str:
    """Whether the text is long enough and, in float32, has the tokens that this engine writes."""
    if contender.program == LIMIT:
        return ""
    if len(tokens) != expected:
        return f"only {len(tokens)}: its time does not compare"
    if over is None or contender.weights != FLOAT32:
        return ""
    differing = [a != b for a, b in zip(tokens, over.tokens, strict=True)]
    return f"others from {differing.index(True) + 1} on" if any(differing) else "the same"
