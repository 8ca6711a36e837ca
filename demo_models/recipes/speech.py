"""Trains whisper-commands: `python -m demo_models.recipes.speech FOLDER`.

Knows how a recording and its words become a row.
"""

from __future__ import annotations

import argparse
import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from demo_models.recipes.commands import (
    HELD_OUT_VOICE,
    RATE,
    in_a_room,
    phrase,
    speak,
    training_clip,
)
from demo_models.recipes.training import Batch, processor, train

NAME = "whisper-commands"
ROWS, LENGTH = 16, 24  # of a batch; tokens


def rows(processor: Any, is_held_out: bool, number: int) -> Batch:
    """Clips, each made for this batch alone: three quarters with noise; held-out ones have none."""
    features, labels = [], np.full((ROWS, LENGTH), -100, np.int32)
    for row in range(ROWS):
        rng = random.Random(f"{is_held_out} {number} {row}")
        if is_held_out:
            text = phrase(rng, is_held_out)
            sound = speak(text, rng, HELD_OUT_VOICE)
        else:
            sound, text = training_clip(rng)
        noisy = not is_held_out and rng.random() < 0.75
        seed = np.random.default_rng(rng.getrandbits(64))
        sound = in_a_room(sound, seed, rng.uniform(3, 40) if noisy else None)
        features.append(processor.feature_extractor(sound, sampling_rate=RATE).input_features[0])
        # The decoder begins with the prompt's first token, which therefore is not among the labels.
        tokens = processor.tokenizer(f" {text}" if text else "").input_ids[1:]
        labels[row, : len(tokens)] = tokens
    return {"input_features": np.stack(features), "labels": labels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the trained model goes")
    parser.add_argument("--steps", type=int, default=8000, help="fewer for a quick trial")
    arguments = parser.parse_args()
    if not shutil.which("espeak-ng"):
        parser.error("espeak-ng speaks the clips: install it (apt install espeak-ng)")
    make = partial(rows, processor(NAME))
    phases = [(partial(make, False), arguments.steps)]
    train(NAME, phases, partial(make, True), 1e-3, arguments.folder)


if __name__ == "__main__":
    main()
