"""What rounding weights loses: perplexity of held-out text, and which tokens are most likely.

Knows the engine's models, whose logits it takes of whole texts. Must not know how weights are laid
out. Run as

    python -m benchmarks.weights_loss [--models gpt2-stories ...] [--windows 32]

Held out are stories whose combinations the bundled models' training never had, and, for other
models, this project's own documents. Of a text 128 tokens are read at a time; each is predicted
from those before it. `bfloat16` and `int8` are rounded from float32
copies, also where the checkpoint itself is narrower, so that the loss is that of the rounding.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from demo_models.recipes.stories import tell
from xla_backend.checkpoints.models import PACKAGED_MODEL, ModelFiles, Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.checkpoints.weights import read_stored, read_weights
from xla_backend.products import kinds

if TYPE_CHECKING:
    from xla_backend.products.grouped import Weights

WINDOW = 128
"""Tokens of a text that are read at once."""
DOCUMENTS = ("docs/page.md", "docs/OPERATIONS.md", "docs/SECURITY.md")


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = ["gpt2-stories", "opt-stories", PACKAGED_MODEL]
    parser.add_argument("--models", nargs="+", default=default)
    parser.add_argument("--windows", type=int, default=32, help="how many texts of 128 tokens")
    arguments = parser.parse_args()
    print(f"\npython -m benchmarks.weights_loss {' '.join(sys.argv[1:])}\n")
    print("| model | weights | in memory | perplexity | over float32 | same most likely token |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in arguments.models:
        files = Registry().locate(name)
        windows = held_out(files, arguments.windows)
        wide, wide_best = 0.0, np.zeros(0)
        for kind in (kinds.FLOAT32, kinds.AUTO, kinds.BFLOAT16, kinds.INT8):
            losses, best, size = predictions(files, kind, windows)
            if kind == kinds.FLOAT32:
                wide, wide_best = float(losses.mean()), best
            loss = float(losses.mean())
            print(
                f"| {name} | {kind} | {size / 1e6:.1f} MB | {math.exp(loss):.4f} | "
                f"{math.expm1(loss - wide):+.3%} | {(best == wide_best).mean():.2%} |",
                flush=True,
            )


def held_out(files: ModelFiles, count: int) -> list[list[int]]:
    """So many texts of `WINDOW` tokens that the model was not trained on."""
    tokenizer = Tokenizer.load(files.folder)
    if files.info.name.endswith("-stories"):
        stories = (tokenizer.encode(tell(seed, "held-out").text) for seed in itertools.count())
        whole = (ids[:WINDOW] for ids in stories if len(ids) >= WINDOW)
        return list(itertools.islice(whole, count))
    root = Path(__file__).resolve().parents[1]
    texts = [(root / name).read_text(encoding="utf-8") for name in DOCUMENTS]
    ids = [token for text in texts for token in tokenizer.encode(text)]
    return [ids[start : start + WINDOW] for start in range(0, count * WINDOW, WINDOW)]


def predictions(
    files: ModelFiles, kind: str, windows: Sequence[list[int]]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Of each token but a window's first: its loss in nats, and which token was most likely.

    Returns:
        Both, `[tokens]`, and the bytes of the weights.
    """
    import tensorflow as tf

    from xla_backend.model import families
    from xla_backend.model.families.blocks import KeysValues, WeightReader
    from xla_backend.model.families.model import GrowingModel

    read = read_stored if kind == kinds.AUTO else read_weights
    arrays: dict[str, Weights] = {**read(files.folder)}
    reader = WeightReader(arrays, kind)
    model = families.build(files.config, reader)
    assert isinstance(model, GrowingModel)

    @tf.function(jit_compile=True, autograph=False)
    def score(
        tokens: tf.Tensor, nothing: tf.Tensor, cache: list[KeysValues]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        begun = model.prefill(tokens[:1], nothing)
        later, _ = model.verify(tokens[1:-1], nothing, begun.context, cache)
        logits = tf.nn.log_softmax(tf.concat([begun.logits, later], axis=0))
        return -tf.gather(logits, tokens[1:], batch_dims=1), tf.argmax(logits, axis=1)

    # As arguments: XLA would take minutes to compute ahead what follows from zeros.
    zeros = tf.constant(0), model.empty_kv_cache(1, 1, 1)
    scored = [score(tf.constant(window, tf.int32), *zeros) for window in windows]
    losses, best = (np.concatenate(part) for part in zip(*scored, strict=True))
    return losses.astype(np.float64), best, reader.bytes


if __name__ == "__main__":
    main()
