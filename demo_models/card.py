"""Model cards: what a folder's README.md says, put together from its measured numbers.

Knows: the layout of a card, and the files that training and evaluation leave beside the weights.
Must not know: how the numbers came about. A number that was not measured is not in a card.
"""

from __future__ import annotations

import json
from pathlib import Path

TRAINING_FILE = "training.json"
EVALUATION_FILE = "evaluation.json"

PIPELINES = {
    "gpt2-stories": "text-generation",
    "opt-stories": "text-generation",
    "t5-stories": "text2text-generation",
}
ABOUT = {
    "gpt2-stories": """A small GPT-2 that goes on with a children's story. Where the heads of its
first attention layer look was set by hand (`first_weights`), so that names and things are found
again; that layer's query, key and value weights stayed as set, all others were trained. This one
was trained in two sittings: its first ten epochs followed a learning rate meant for fourteen, the
other ten the recipe's.""",
    "opt-stories": """A small OPT that goes on with a children's story. It started as
`gpt2-stories`, whose weights the OPT architecture can hold (`transplant`), and was then trained
on, to get used to OPT's ReLU. Its tokenizer adds no beginning-of-text token, and training used
none. The first three epochs ran with a schedule that was to end there.""",
    "t5-stories": """A small T5 that reads a children's story: `summarize: STORY` gives one
sentence, `question: QUESTION context: STORY` a short answer in the story's words. Where some heads
look was set by hand (`first_weights`), and one head of the decoder was also taught where in the
story the wanted words stand (`pointing`); all other weights were trained from scratch. The first 48
epochs ran with a schedule that was to end there, the other 16 are the recipe's.""",
}
STORYTELLER_LIMITS = """It knows one kind of story and about 1,200 words of English. Any prompt is
accepted; one that is not the beginning of such a story soon becomes one, or nonsense. It knows
nothing about the world. Contexts of up to 512 tokens were trained, most of them far shorter."""
LIMITS = {
    "gpt2-stories": STORYTELLER_LIMITS,
    "opt-stories": STORYTELLER_LIMITS,
    "t5-stories": """It understands the questions of the generator (`tell(7).questions` in
`demo_models.stories`) and little else, about stories of the generator's kind. Text of any other
kind gives a fluent wrong answer.""",
}


def write_card(name: str, folder: Path) -> None:
    """Write README.md of the named model's folder from training.json and evaluation.json."""
    training = json.loads((folder / TRAINING_FILE).read_text())
    evaluation = json.loads((folder / EVALUATION_FILE).read_text())
    size = (folder / "model.safetensors").stat().st_size
    is_reader = "answers" in evaluation
    tokens, seconds = training["tokens"], training["seconds"]
    numbers = {
        "parameters": f"{training['parameters']:,}",
        "weights": f"{size / 1e6:.1f} MB, float32",
        "training data": f"invented stories (`demo_models.stories`), {tokens:,} tokens of rows",
        "training": f"{training['steps']:,} steps of AdamW, {seconds / 60:.0f} minutes",
        "training speed": f"{tokens / seconds:,.0f} tokens/s on two CPU cores in shared use",
        **(_reader_numbers(evaluation) if is_reader else _storyteller_numbers(evaluation)),
    }
    table = "\n".join(f"| {label} | {value} |" for label, value in numbers.items())
    examples = "\n\n".join(
        f"> {first} **{second}**" if is_reader else f"> **{first}**{second}"
        for first, second in evaluation["examples"]
    )
    heading = "What it answers" if is_reader else "Samples (the bold part was given)"
    (folder / "README.md").write_text(
        f"""---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: {PIPELINES[name]}
tags: [children-stories, tiny, xla]
---

# {name}

{ABOUT[name]}

| | |
| --- | --- |
{table}

Held-out stories use combinations of (kind of hero, topic, place) that no training story has.

## {heading}

{examples}

## Limits

{LIMITS[name]}

## Again

```bash
python -m xla_backend baseline  # once: Transformers' TensorFlow models
python -m demo_models.training.train {name} --restart
python -m demo_models.training.evaluate {name} --save
```
"""
    )


def _storyteller_numbers(evaluation: dict) -> dict[str, str]:
    stories = evaluation["stories"]
    return {
        "held-out perplexity": f"{evaluation['perplexity']:.3f} per token, {stories} stories",
        "known words only": f"{evaluation['known_words']:.1%} of {stories} continuations of "
        "held-out openings (64 tokens, temperature 0.7)",
        "no contradiction found": f"{evaluation['consistent']:.1%} of them (`reading`: names, "
        "kinds, pronouns, objects)",
    }


def _reader_numbers(evaluation: dict) -> dict[str, str]:
    stories, shares = evaluation["stories"], evaluation["answers_by_fact"]
    return {
        "exact answers": f"{evaluation['answers']:.1%}, three questions on each of {stories} "
        "held-out stories",
        "by fact": ", ".join(f"{fact} {share:.0%}" for fact, share in shares.items()),
        "exact summaries": f"{evaluation['summaries']:.1%} of {stories}",
    }
