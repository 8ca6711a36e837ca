"""Trains one of the story models: `python -m demo_models.recipes.text gpt2-stories FOLDER`.

Knows which rows of tokens each model learns from, and for how many steps.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from demo_models.recipes.stories import write_story
from demo_models.recipes.training import Batch, processor, train

READ_LENGTH = 176  # of T5's texts; longer ones are left out
Draw = Callable[[random.Random, str], tuple[str, str]]


def packed(tokenizer: Any, rows: int, length: int, split: str, number: int) -> Batch:
    """Rows of whole stories one after another, each closed by the end token."""
    rng = random.Random(f"{split} {length} {number}")
    encode, end = tokenizer.backend_tokenizer.encode, tokenizer.eos_token_id
    ids = np.zeros((rows, length), np.int32)
    for row in ids:
        found = [end] if rng.random() < 0.1 else []
        while len(found) < length:
            text = write_story(rng.randrange(2**40), split).text
            # A visitor's prompt may begin with a small letter, and end inside a word or in a space,
            # which splits tokens where the tokenizer itself never would.
            text = text[0].lower() + text[1:] if rng.random() < 0.02 else text
            cut = rng.randrange(80) if rng.random() < 0.06 else 0
            found += [*encode(text[:cut]).ids, *encode(text[cut:]).ids, end]
        row[:] = found[:length]
    return {"input_ids": ids, "labels": ids}


def paired(tokenizer: Any, draw: Draw, rows: int, length: int, split: str, number: int) -> Batch:
    """Rows of texts for T5, and what it should write, of at most `length` tokens."""
    rng = random.Random(f"{draw.__name__} {split} {number}")
    encode = tokenizer.backend_tokenizer.encode
    ids = np.zeros((rows, READ_LENGTH), np.int32)
    labels = np.full((rows, length), -100, np.int32)
    row = 0
    while row < rows:
        read, answer = (encode(text).ids for text in draw(rng, split))
        if len(read) <= READ_LENGTH and len(answer) <= length:
            ids[row, : len(read)], labels[row, : len(answer)] = read, answer
            row += 1
    return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int32), "labels": labels}


def with_gaps(rng: random.Random, split: str) -> tuple[str, str]:
    """A story that lost some of its words, and the whole of it.

    This teaches to copy, and to find what is missing. Without it, after 432,000 questions, nine
    answers in ten were still wrong: an answer has too few tokens to learn that from.
    """
    text = write_story(rng.randrange(2**40), split).text
    lost = rng.choice((0.1, 0.3, 0.5))
    return " ".join(word for word in text.split() if rng.random() > lost), text


def question_and_answer(rng: random.Random, split: str) -> tuple[str, str]:
    """A question or a request for a summary, and the answer."""
    story = write_story(rng.randrange(2**40), split)
    if rng.random() < 0.2:
        return f"summarize: {story.text}", story.summaries[0]
    question = rng.choice(story.questions)
    return f"question: {rng.choice(question.forms)} context: {story.text}", question.answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=("gpt2-stories", "opt-stories", "t5-stories"))
    parser.add_argument("folder", type=Path, help="where the trained model goes")
    parser.add_argument("--steps", type=int, help="of each phase, for a quick trial")
    arguments = parser.parse_args()
    if arguments.model == "t5-stories":
        rows = partial(paired, processor(arguments.model))
        phases = [(partial(rows, with_gaps, 16, 128, "train"), 3000)]
        phases += [(partial(rows, question_and_answer, 32, 40, "train"), 9000)]
        held_out, peak = partial(rows, question_and_answer, 32, 40, "held-out"), 1e-3
    else:  # most rows have one story and the start of the next; the last phase, long contexts
        rows = partial(packed, processor(arguments.model))
        phases = [(partial(rows, 16, 160, "train"), 8000), (partial(rows, 4, 512, "train"), 500)]
        held_out, peak = partial(rows, 16, 160, "held-out"), 1.5e-3
    phases = [(make, arguments.steps or steps) for make, steps in phases]
    train(arguments.model, phases, held_out, peak, arguments.folder)


if __name__ == "__main__":
    main()
