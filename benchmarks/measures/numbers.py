"""How far a format's probabilities are from PyTorch's, in float32 over the same numbers.

Each GGUF file (`--models`: SmolLM2 in one of its forms, or a path that ends in the form, such as
`gemma-3-270m-Q4_K_M.gguf`) is dequantized and run by PyTorch; this engine (exact, and with 8-bit
activations) and llama.cpp run the file itself, over the same windows of a text. `--text` is a file:
WikiText-2's test file (Creative Commons BY-SA; `word_language_model/data/wikitext-2/test.txt` of
the public repository pytorch/examples) is what others measure. All report the 20 most likely tokens
of a position; the divergence is that of PyTorch's over these tokens and the rest together, which
is at most the divergence over all tokens. *Same token* counts the positions whose most likely
token is PyTorch's, *greedy* the texts of 32 tokens, one from the beginning of each window.
"""

from __future__ import annotations

import math
import statistics
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from benchmarks import checkpoints
from benchmarks.contenders import Request
from benchmarks.contenders.running import (
    CONTENDERS,
    Contender,
    ContenderFailed,
    Running,
    with_file,
)
from benchmarks.harness import MeasureFailed, Row
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.checkpoints.weights import read_weights

OPTIONS = {
    "text": "",
    "models": [f"{PACKAGED_MODEL}-{form}" for form in ("Q4_1", "Q8_0", "Q4_0")],
    "tokens": 8000,
    "window": 200,
    "greedy": 40,
}
GREEDY_TOKENS = 32
REFERENCE, PEER = "PyTorch", "llama.cpp"


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each form and program."""
    if not options.text:
        raise MeasureFailed("name a text: --text wikitext-2/test.txt")
    text = Path(options.text).read_text(encoding="utf-8")
    for model in options.models:
        size, _, form = model.rpartition("-")
        if model.endswith(".gguf"):
            size, form = Path(model).stem, checkpoints.format_of_file(model)
        is_packaged = size == PACKAGED_MODEL
        folder = checkpoints.folder(PACKAGED_MODEL if is_packaged else model)
        file = folder / "gguf" / f"{form}.gguf"
        ids = Tokenizer.load(file).encode(text[: 12 * options.tokens])[: options.tokens]
        windows = [ids[at : at + options.window] for at in range(0, len(ids), options.window)]
        for row in _of_file(file, windows, options.greedy):
            yield row if isinstance(row, str) else {"model": Path(size).name, **row}
    yield (
        f"{options.tokens:,} tokens in windows of {options.window}; divergences in nats, over the "
        "20 most likely tokens and the rest."
    )


def _of_file(file: Path, windows: Sequence[Sequence[int]], greedy: int) -> Iterator[Row | str]:
    form, folder = file.stem, file.parent.parent
    with ExitStack() as processes:
        reference = Running(_named(REFERENCE), dequantized(file))
        processes.callback(reference.end)
        reference.wait_until_ready()
        expected = [place for window in windows for place in reference.likely(window)]
        requests = [Request(tuple(window[:16]), GREEDY_TOKENS) for window in windows[:greedy]]
        texts = [reference.generate(request)[1] for request in requests]
    for contender in with_file(form):
        name, program = contender.name, Running(contender, folder)
        try:
            program.wait_until_ready()
            found = [place for window in windows for place in program.likely(window)]
            # llama.cpp's server returns no ids.
            written = (
                []
                if name.startswith(PEER)
                else [program.generate(request)[1] for request in requests]
            )
        except ContenderFailed as error:
            yield f"{name} could not be asked: {error}."
            continue
        finally:
            program.end()
        divergences = [divergence(dict(p), dict(q)) for p, q in zip(expected, found, strict=True)]
        same = sum(p[0][0] == q[0][0] for p, q in zip(expected, found, strict=True))
        equal = sum(one == other for one, other in zip(texts, written, strict=False))
        yield {
            "program": name,
            "divergence, mean": f"{statistics.fmean(divergences):.2e}",
            "at 99.9%": f"{np.quantile(divergences, 0.999):.2e}",
            "same token": f"{same / len(found):.2%}",
            "greedy, equal": f"{equal} of {len(written)}" if written else "",
        }


def divergence(expected: Mapping[int, float], found: Mapping[int, float]) -> float:
    """The Kullback-Leibler divergence, in nats, of two distributions of which some tokens' natural
    logarithms are known; the tokens that are not known of both count as one."""
    both = expected.keys() & found.keys()
    total = sum(math.exp(expected[token]) * (expected[token] - found[token]) for token in both)
    rest, other = (
        max(1e-12, 1 - math.fsum(math.exp(known[token]) for token in both))
        for known in (expected, found)
    )
    return max(0.0, total + rest * math.log(rest / other))


def dequantized(file: Path) -> Path:
    """A folder with a GGUF file's numbers in float32, in the Hub's layout."""
    made = file.parent / f"{file.stem}-float32"
    if not (made / "model.safetensors").exists():
        made.mkdir(parents=True, exist_ok=True)
        checkpoints.save_config(Registry().locate(str(file)).config, made)
        numbers = read_weights(file).items()
        tensors = {name: np.ascontiguousarray(x, np.float32) for name, x in numbers}
        save_file(tensors, made / "model.new", {"format": "pt"})
        (made / "model.new").rename(made / "model.safetensors")
    return made


def _named(name: str) -> Contender:
    return next(contender for contender in CONTENDERS if contender.name == name)
