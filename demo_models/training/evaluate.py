"""Score a story model on held-out stories: `python -m demo_models.training.evaluate MODEL`.

Knows: what each model should be able to do, and how to measure it from its folder alone.
Must not know: how it was trained; nor the engine: text comes from Transformers' own eager
`generate`, so that a fault of the engine cannot hide in these numbers.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from transformers import PreTrainedTokenizerFast, TFPreTrainedModel

from demo_models.card import EVALUATION_FILE, write_card
from demo_models.folders import MODELS_FOLDER, load_tokenizer
from demo_models.reading import contradictions, unknown_words
from demo_models.stories import Story, question_text, summary_text, tell
from demo_models.training.checkpoint import load_model

BATCH = 50
TEMPERATURE = 0.7
NEW_TOKENS = 64
QUESTIONS_PER_STORY = 3
EXAMPLES_IN_CARD = 5


@dataclass(frozen=True)
class StorytellerScore:
    """How well a decoder-only model goes on with held-out stories.

    Fields:
        stories: held-out stories scored.
        perplexity: per token, over whole held-out stories with their end token.
        known_words: share of sampled continuations made of training words only.
        consistent: share of them without a contradiction that `reading` can find.
        samples: openings and how they went on.
    """

    stories: int
    perplexity: float
    known_words: float
    consistent: float
    samples: list[tuple[str, str]]


@dataclass(frozen=True)
class ReaderScore:
    """How well a text-to-text model answers about held-out stories (shares of exact matches).

    Fields:
        stories: held-out stories scored, each with QUESTIONS_PER_STORY questions and one summary.
        answers: exact answers.
        answers_by_fact: the same for each kind of fact.
        summaries: summaries equal to one of the equivalent forms.
        misses: what was wanted and what came instead, for a look at the mistakes.
        samples: questions with their stories, and what was answered.
    """

    stories: int
    answers: float
    answers_by_fact: dict[str, float]
    summaries: float
    misses: list[tuple[str, str]]
    samples: list[tuple[str, str]]


def batches(items: list, size: int = BATCH) -> Iterator[list]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def generate(
    model: TFPreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    texts: list[str],
    new_tokens: int,
    temperature: float | None = None,
) -> list[str]:
    """What the model writes after (or for) each text; greedy where no temperature is given."""
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {}
    found = []
    for part in batches(texts):
        inputs = tokenizer(part, return_tensors="tf", padding=True, return_token_type_ids=False)
        output = model.generate(
            **inputs,
            max_new_tokens=new_tokens,
            pad_token_id=tokenizer.pad_token_id,
            **sampling,
        )
        if not model.config.is_encoder_decoder:
            output = output[:, inputs["input_ids"].shape[1] :]
        found += tokenizer.batch_decode(output, skip_special_tokens=True)
    return found


def perplexity(
    model: TFPreTrainedModel, tokenizer: PreTrainedTokenizerFast, stories: list[Story]
) -> float:
    """Perplexity per token over whole stories and their end token, the first token given."""
    total, count = 0.0, 0
    for part in batches(stories):
        rows = [[*tokenizer.encode(story.text), tokenizer.eos_token_id] for story in part]
        longest = max(map(len, rows))
        ids = np.full((len(rows), longest), tokenizer.pad_token_id, np.int32)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        logits = model(input_ids=tf.constant(ids), attention_mask=tf.constant(mask)).logits
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids[:, 1:], logits[:, :-1])
        total += float(tf.reduce_sum(losses * mask[:, 1:]))
        count += int(mask[:, 1:].sum())
    return math.exp(total / count)


def score_storyteller(folder: Path, stories: int = 200) -> StorytellerScore:
    """Perplexity, and what a reader finds in sampled continuations of held-out openings."""
    tf.random.set_seed(1)
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    told = [tell(seed, "held-out") for seed in range(stories)]
    openings = [story.opening for story in told]
    endings = generate(model, tokenizer, openings, NEW_TOKENS, TEMPERATURE)
    known = [not unknown_words(ending, is_cut=True) for ending in endings]
    sound = [
        not contradictions(opening + ending)
        for opening, ending in zip(openings, endings, strict=True)
    ]
    return StorytellerScore(
        stories=stories,
        perplexity=round(perplexity(model, tokenizer, told), 3),
        known_words=sum(known) / stories,
        consistent=sum(sound) / stories,
        samples=list(zip(openings, endings, strict=True)),
    )


def score_reader(folder: Path, stories: int = 300) -> ReaderScore:
    """Exact matches of answers and summaries on held-out stories."""
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    rng = random.Random(1)
    told = [tell(seed, "held-out") for seed in range(stories)]
    asked = [
        (story, question)
        for story in told
        for question in rng.sample(story.questions, QUESTIONS_PER_STORY)
    ]
    texts = [question_text(rng.choice(question.forms), story.text) for story, question in asked]
    answers = generate(model, tokenizer, texts, 20)
    by_fact: dict[str, list[bool]] = {}
    misses = []
    for text, (_, question), answer in zip(texts, asked, answers, strict=True):
        by_fact.setdefault(question.fact, []).append(answer == question.answer)
        if answer != question.answer:
            misses.append((f"{text.split(' context: ')[0]} -> {question.answer}", answer))
    summaries = generate(model, tokenizer, [summary_text(story.text) for story in told], 48)
    right = [found in story.summaries for found, story in zip(summaries, told, strict=True)]
    misses += [
        (story.summaries[0], found)
        for story, found in zip(told, summaries, strict=True)
        if found not in story.summaries
    ]
    return ReaderScore(
        stories=stories,
        answers=round(1 - sum(not ok for oks in by_fact.values() for ok in oks) / len(asked), 4),
        answers_by_fact={fact: round(sum(ok) / len(ok), 3) for fact, ok in sorted(by_fact.items())},
        summaries=sum(right) / stories,
        misses=misses,
        samples=list(zip(texts, answers, strict=True)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder, or the name of a model that ships")
    parser.add_argument("--stories", type=int, help="held-out stories to score")
    parser.add_argument("--show", type=int, default=5, help="samples or mistakes to print")
    parser.add_argument("--save", action="store_true", help="write evaluation.json and the card")
    arguments = parser.parse_args()
    folder = Path(arguments.model)
    folder = folder if folder.is_dir() else MODELS_FOLDER / arguments.model
    config = json.loads((folder / "config.json").read_text())
    score = score_reader if config.get("is_encoder_decoder") else score_storyteller
    numbers = asdict(score(folder, **({"stories": arguments.stories} if arguments.stories else {})))
    examples = numbers.pop("samples")
    for first, second in numbers.pop("misses", examples)[: arguments.show]:
        print(f"  {first}\n    => {second}\n")
    print(json.dumps(numbers, indent=2))
    if arguments.save:
        saved = numbers | {"examples": examples[:EXAMPLES_IN_CARD]}
        text = json.dumps(saved, indent=2, ensure_ascii=False)
        (folder / EVALUATION_FILE).write_text(text + "\n")
        write_card(folder.name, folder)


if __name__ == "__main__":
    main()
