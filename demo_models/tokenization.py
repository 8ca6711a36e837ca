"""The tokenizers of the demo models: byte-level BPE, learned from stories.

Knows: which text the merges come from, and each architecture's special tokens.
Must not know: models or training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from demo_models.stories import summary_text, tell

VOCABULARY_SIZE = 2048
CORPUS_STORIES = 20_000
POSITIONS = 512

# Model -> special tokens by role; their order is their id.
SPECIAL_TOKENS: dict[str, dict[str, str]] = {
    "gpt2-stories": {"eos_token": "<|endoftext|>"},
    "opt-stories": {"pad_token": "<pad>", "eos_token": "</s>"},
    "t5-stories": {"pad_token": "<pad>", "eos_token": "</s>"},
}


def corpus() -> Iterator[str]:
    """The text whose words the merges are learned from: training stories and their questions."""
    for seed in range(CORPUS_STORIES):
        story = tell(seed)
        yield story.text
        yield summary_text(story.summaries[0])
        if seed % 4 == 0:
            yield from (f"question: {q.forms[0]} context:" for q in story.questions)


def train_tokenizer(name: str) -> Tokenizer:
    """A byte-level BPE tokenizer with the special tokens of the named model.

    Every byte is in the vocabulary, so any text is encoded without loss. T5 alone reads its text
    as if a space came first (as the original does), so that an answer's first word is the same
    token as in the middle of a story, and it appends its end token by itself.
    """
    special = SPECIAL_TOKENS[name]
    is_t5 = name.startswith("t5")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=is_t5)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(special.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    if is_t5:
        end = special["eos_token"]
        tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {end}",
            pair=f"$A {end} $B {end}",
            special_tokens=[(end, tokenizer.token_to_id(end))],
        )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, name: str, folder: Path) -> None:
    """Write `tokenizer.json` and the settings that Transformers reads beside it."""
    special = SPECIAL_TOKENS[name]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    # Without a pad token of its own, GPT-2 pads with its end token. Transformers takes a leading
    # space away again unless it is told here.
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": POSITIONS,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": name.startswith("t5"),
        "padding_side": "right" if name.startswith("t5") else "left",
        "pad_token": special["eos_token"],
        **special,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
