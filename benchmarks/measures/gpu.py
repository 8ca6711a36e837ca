"""A GPU beside the processor: the guide's example, four families, and a crowd; ten minutes.

`make gpu` runs it in an environment with CUDA. `--device cpu` runs through without a GPU, by XLA
alone. The guide's example is that of TensorFlow's post on generation with XLA: three prompts padded
to 8, two beams, GPT-2 (here its shape, with random weights), on a Tesla T4 30.8 s, then 79 ms.
Families must write what machine code of our own writes on the processor. Of the crowd, the times
of a token are those of one client alone.
"""

from __future__ import annotations

import os
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks import checkpoints
from benchmarks.client import Client, ask_all
from benchmarks.harness import ROOT, MeasureFailed, Row
from benchmarks.measures.crowd import ANY_LENGTH, story
from benchmarks.servers import settle, this_app
from xla_backend import BackendProcess, BucketRules, GenerationOptions
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry
from xla_backend.compilation import device

OPTIONS = {"device": "gpu:0", "clients": 16, "new_tokens": 100}
GUIDE = ("TensorFlow is", "TensorFlow is a", "TFLite is a")
GUIDE_RULES = BucketRules(padded_lengths=(8,), max_new_tokens=(20,))
GUIDE_OPTIONS = GenerationOptions(max_new_tokens=20, num_beams=2)
CACHED_CALLS, NEW_TOKENS, GAP_S = 5, 24, 0.15
FAMILIES = ("gpt2-stories", "opt-stories", "t5-stories", "whisper-commands")


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each prompt, family and crowd."""
    with _device(options.device):
        yield f"Device: {device.chosen()}; kernels: xla."
        yield from _guide()
        written, of_crowd = _written("xla"), _crowd(options)
    with _device(device.CPU):
        expected = _written("own")
    for family, (text, first_s, cached_s) in written.items():
        if text != expected[family][0]:
            raise MeasureFailed(f"{family}: {text!r} instead of {expected[family][0]!r}")
        yield _row(family, first_s, cached_s, "the CPU's text")
    yield of_crowd


def _row(what: str, first_s: float, cached_s: float, result: str) -> Row:
    return {"what": what, "first, s": first_s, "cached, ms": 1000 * cached_s, "result": result}


@contextmanager
def _device(name: str) -> Iterator[None]:
    """What engines that start meanwhile compile for."""
    before = os.environ.get(device.VARIABLE)
    os.environ[device.VARIABLE] = device.check(name)
    try:
        yield
    finally:
        os.environ.pop(device.VARIABLE)
        if before is not None:
            os.environ[device.VARIABLE] = before


@contextmanager
def _engine(kernels: str, rules: BucketRules) -> Iterator[BackendProcess]:
    registry = Registry(kernels=kernels)
    engine = BackendProcess(registry, rules, default_model=None, store="off", warm_up=None)
    try:
        engine.wait_ready()
        yield engine
    finally:
        engine.close()


def _guide() -> Iterator[Row]:
    model = str(checkpoints.folder(checkpoints.GPT2_124M))
    with _engine("xla", GUIDE_RULES) as engine:
        engine.load(model)
        for prompt in GUIDE:
            generate = partial(engine.generate, model, prompt, GUIDE_OPTIONS)
            first_s, cached_s, result = _timed(generate)
            yield _row(f"guide: {prompt}", first_s, cached_s, result.cache)


def _written(kernels: str) -> dict[str, tuple[str, float, float]]:
    """Of each family a text, seconds of the first call, and of further ones."""
    recording = str(next((ROOT / "demo_models" / FAMILIES[-1] / "examples").glob("*.flac")))
    options, found = GenerationOptions(max_new_tokens=NEW_TOKENS), {}
    with _engine(kernels, BucketRules()) as engine:
        for family in FAMILIES:
            if engine.load(family).family == "speech":
                run: Callable[[], Any] = partial(engine.transcribe, family, recording)
            else:
                run = partial(engine.generate, family, "Once upon a time", options)
            first_s, cached_s, result = _timed(run)
            found[family] = result.text, first_s, cached_s
    return found


def _timed(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of the first call, median of further ones, and the result of the first."""
    results, seconds = [], []
    for _ in range(1 + CACHED_CALLS):
        start = time.perf_counter()
        results.append(run())
        seconds.append(time.perf_counter() - start)
    return seconds[0], statistics.median(seconds[1:]), results[0]


def _crowd(options: Namespace) -> Row:
    with this_app("--models", PACKAGED_MODEL, "--kernels=xla") as url:
        settle(url)
        client = Client(url, PACKAGED_MODEL)
        more = ANY_LENGTH | {"max_tokens": options.new_tokens}
        requests = [
            partial(client.chat, story(number), **more) for number in range(options.clients)
        ]
        (alone,), _ = ask_all(requests[:1])
        answers, wall_s = ask_all(requests, GAP_S)
    longest = max(answer.ttft_s for answer in answers)
    rate = sum(answer.tokens for answer in answers) / wall_s
    result = f"{rate:.0f} tokens/s, first tokens within {longest:.2f} s"
    return _row(f"{options.clients} clients", alone.ttft_s, alone.tpot_s, result)
