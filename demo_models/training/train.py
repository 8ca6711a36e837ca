"""Train one of the demo models from scratch: `python -m demo_models.training.train gpt2-stories`.

Knows: each model's shape and schedule, and how stories become rows of tokens.
Must not know: the engine or the page; how a finished model is scored is in `evaluate`.

Everything is seeded and nothing is downloaded. A run that was stopped goes on from its last
checkpoint when started again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from transformers import (
    GPT2Config,
    OPTConfig,
    T5Config,
    TFGPT2LMHeadModel,
    TFOPTForCausalLM,
    TFPreTrainedModel,
    TFT5ForConditionalGeneration,
)

from demo_models.card import TRAINING_FILE
from demo_models.folders import MODELS_FOLDER
from demo_models.stories import question_text, summary_text, tell
from demo_models.tokenization import (
    POSITIONS,
    SPECIAL_TOKENS,
    VOCABULARY_SIZE,
    save_tokenizer,
    train_tokenizer,
)
from demo_models.training.checkpoint import load_model, load_weights, save_weights
from demo_models.training.first_weights import CONTEXT_TOKEN, start_reader, start_storyteller
from demo_models.training.fitting import Fitting, WarmupCosine
from demo_models.training.pointing import PointingReader
from demo_models.training.transplant import opt_from_gpt2

STEPS_PER_EPOCH = 250
WARMUP_STEPS = 150
T5_SHORT_LENGTH = 136  # T5's input is padded to this where it fits, else to the phase's length
T5_ANSWER_LENGTH, T5_WANTED_LENGTH = 16, 40  # and its output to one of these
T5_ROUND = 5  # batches: four of questions, one of summaries
Batch = dict[str, np.ndarray]


@dataclass(frozen=True)
class Phase:
    """A stretch of training with rows of one shape: `epochs` of STEPS_PER_EPOCH steps."""

    batch_size: int
    length: int
    epochs: int


@dataclass(frozen=True)
class Recipe:
    """What is particular to one model."""

    phases: tuple[Phase, ...]
    learning_rate: float
    starts_as: str | None = None  # the finished model whose weights it starts with


RECIPES = {
    # Most rows hold one story and the start of the next; the last phase trains long contexts.
    "gpt2-stories": Recipe(
        (Phase(8, 160, 19), Phase(2, 512, 1)),
        learning_rate=1.5e-3,
    ),
    "t5-stories": Recipe(
        (Phase(8, 176, 64),),
        learning_rate=1.5e-3,
    ),
    # OPT can hold GPT-2's weights: it starts there and gets used to its own activation.
    "opt-stories": Recipe(
        (Phase(8, 160, 3), Phase(2, 512, 1)),
        learning_rate=1e-3,
        starts_as="gpt2-stories",
    ),
}


def build_model(name: str) -> TFPreTrainedModel:
    """A fresh model of the named architecture, sized to stay under 10 MB in float32."""
    ids = {token: i for i, token in enumerate(SPECIAL_TOKENS[name].values())}
    eos = ids[SPECIAL_TOKENS[name]["eos_token"]]
    if name == "gpt2-stories":
        model = TFGPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCABULARY_SIZE,
                n_positions=POSITIONS,
                n_embd=160,
                n_layer=6,
                n_head=5,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                initializer_range=0.06,  # the usual 0.02 is for wider models
                bos_token_id=eos,
                eos_token_id=eos,
                pad_token_id=eos,
                architectures=["GPT2LMHeadModel"],
            )
        )
    elif name == "opt-stories":
        model = TFOPTForCausalLM(
            OPTConfig(
                vocab_size=VOCABULARY_SIZE,
                max_position_embeddings=POSITIONS,
                hidden_size=160,
                word_embed_proj_dim=160,
                ffn_dim=640,
                num_hidden_layers=6,
                num_attention_heads=5,
                dropout=0.0,
                attention_dropout=0.0,
                layerdrop=0.0,
                bos_token_id=eos,
                eos_token_id=eos,
                pad_token_id=ids["<pad>"],
                architectures=["OPTForCausalLM"],
            )
        )
    else:
        model = TFT5ForConditionalGeneration(
            T5Config(
                vocab_size=VOCABULARY_SIZE,
                d_model=128,
                d_kv=32,
                d_ff=512,
                num_layers=5,
                num_decoder_layers=4,
                num_heads=4,
                dropout_rate=0.0,
                n_positions=POSITIONS,
                pad_token_id=ids["<pad>"],
                decoder_start_token_id=ids["<pad>"],
                eos_token_id=eos,
                architectures=["T5ForConditionalGeneration"],
            )
        )
    model.build_in_name_scope()
    return model


# --- rows ---------------------------------------------------------------------------------------


def encode_story(tokenizer: Tokenizer, text: str, rng: random.Random) -> list[int]:
    """The story's tokens, now and then cut or cased as a visitor's prompt may be.

    A prompt may end in a space or inside a word ("Once upon a ti"), which splits tokens where the
    tokenizer itself never would, and it may start without a capital letter.
    """
    if rng.random() < 0.02:
        text = text[0].lower() + text[1:]
    if rng.random() < 0.06:
        cut = rng.randrange(1, 80)
        return tokenizer.encode(text[:cut]).ids + tokenizer.encode(text[cut:]).ids
    return tokenizer.encode(text).ids


def packed_row(tokenizer: Tokenizer, row: int, length: int, eos: int) -> list[int]:
    """Row number `row`: whole stories one after another, each closed by the end token."""
    rng = random.Random(f"row:{length}:{row}")
    ids = [eos] if rng.random() < 0.1 else []
    while len(ids) < length:
        ids += [*encode_story(tokenizer, tell(rng.randrange(2**40)).text, rng), eos]
    return ids[:length]


class StoryRows(tf_keras.utils.Sequence):
    """Batches of packed rows for a decoder-only model, made from their index alone."""

    def __init__(self, name: str, tokenizer: Tokenizer, phase: Phase, epoch: int = 0):
        self.phase, self.tokenizer, self.epoch = phase, tokenizer, epoch
        self.eos = tokenizer.token_to_id(SPECIAL_TOKENS[name]["eos_token"])
        self.takes_positions = name.startswith("gpt2")

    def __len__(self) -> int:
        return STEPS_PER_EPOCH

    def on_epoch_end(self) -> None:
        self.epoch += 1

    def __getitem__(self, step: int) -> Batch:
        size, length = self.phase.batch_size, self.phase.length
        first = (self.epoch * STEPS_PER_EPOCH + step) * size
        rows = range(first, first + size)
        ids = np.array([packed_row(self.tokenizer, r, length, self.eos) for r in rows], np.int32)
        batch = {"input_ids": ids, "labels": ids}
        if self.takes_positions:
            # Half of the rows start at a random position: a short row trains every position.
            rng = random.Random(f"offset:{length}:{first}")
            room = POSITIONS - length
            offsets = [rng.randint(0, room) if rng.random() < 0.5 else 0 for _ in rows]
            batch["position_ids"] = np.array(offsets, np.int32)[:, None] + np.arange(
                length, dtype=np.int32
            )
        return batch


class QuestionRows(tf_keras.utils.Sequence):
    """Batches of (text, wanted text) for T5: four of questions, then one of summaries.

    The questions of one round are sorted by length over its four batches, so that little of a
    batch is padding; there are only two padded lengths on each side, because XLA compiles for each.
    """

    def __init__(self, name: str, tokenizer: Tokenizer, phase: Phase, epoch: int = 0):
        self.phase, self.tokenizer, self.epoch = phase, tokenizer, epoch
        self.pad = tokenizer.token_to_id(SPECIAL_TOKENS[name]["pad_token"])
        self.round: tuple[int, list[Batch]] = (-1, [])

    def __len__(self) -> int:
        return STEPS_PER_EPOCH

    def on_epoch_end(self) -> None:
        self.epoch += 1

    def __getitem__(self, step: int) -> Batch:
        number, part = divmod(self.epoch * STEPS_PER_EPOCH + step, T5_ROUND)
        if self.round[0] != number:
            self.round = (number, self.make_round(number))
        return self.round[1][part]

    def make_round(self, number: int) -> list[Batch]:
        rng = random.Random(f"round:{number}")
        size = self.phase.batch_size
        questions: list[tuple[list[int], list[int]]] = []
        summaries: list[tuple[list[int], list[int]]] = []
        while len(questions) < size * (T5_ROUND - 1):
            story = tell(rng.randrange(2**40))
            # Two rows about one story teach that the question matters.
            for _ in range(2):
                asked = rng.choice(story.questions)
                text = question_text(rng.choice(asked.forms), story.text)
                row = self.encode(text, asked.answer)
                if self.fits(row):
                    questions.append(row)
            row = self.encode(summary_text(story.text), story.summaries[0])
            if len(summaries) < size and self.fits(row):
                summaries.append(row)
        questions = questions[: size * (T5_ROUND - 1)]
        questions.sort(key=lambda row: len(row[0]))
        parts = [questions[i : i + size] for i in range(0, len(questions), size)]
        return [self.batch(part) for part in (*parts, summaries)]

    def encode(self, text: str, wanted: str) -> tuple[list[int], list[int]]:
        return self.tokenizer.encode(text).ids, self.tokenizer.encode(wanted).ids

    def fits(self, row: tuple[list[int], list[int]]) -> bool:
        return len(row[0]) <= self.phase.length and len(row[1]) <= T5_WANTED_LENGTH

    def batch(self, rows: list[tuple[list[int], list[int]]]) -> Batch:
        longest, longest_wanted = (max(map(len, part)) for part in zip(*rows, strict=True))
        length = T5_SHORT_LENGTH if longest <= T5_SHORT_LENGTH else self.phase.length
        is_answer = longest_wanted <= T5_ANSWER_LENGTH
        wanted_length = T5_ANSWER_LENGTH if is_answer else T5_WANTED_LENGTH
        ids = np.full((len(rows), length), self.pad, np.int32)
        labels = np.full((len(rows), wanted_length), -100, np.int32)
        for i, (text_ids, label_ids) in enumerate(rows):
            ids[i, : len(text_ids)] = text_ids
            labels[i, : len(label_ids)] = label_ids
        mask = (ids != self.pad).astype(np.int32)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


# --- training -----------------------------------------------------------------------------------


def train(name: str, folder: Path, work: Path) -> None:
    """Train the named model and write its folder.

    Args:
        name: a key of RECIPES.
        folder: where the finished model goes.
        work: checkpoints and the training log; deleting it starts the training afresh.
    """
    recipe = RECIPES[name]
    tf_keras.utils.set_random_seed(1)
    tokenizer = train_tokenizer(name)
    model = build_model(name)
    print(f"{name}: {model.count_params():,} parameters", flush=True)
    if name == "gpt2-stories":
        start_storyteller(model, tokenizer)
    elif name == "t5-stories":
        start_reader(model, tokenizer)
    if recipe.starts_as:
        gpt2 = MODELS_FOLDER / recipe.starts_as
        gpt2_ids = Tokenizer.from_file(str(gpt2 / "tokenizer.json")).get_vocab()
        gpt2_end = SPECIAL_TOKENS[recipe.starts_as]["eos_token"]
        gpt2_ids[SPECIAL_TOKENS[name]["eos_token"]] = gpt2_ids[gpt2_end]
        weights = load_file(gpt2 / "model.safetensors")
        load_weights(model, opt_from_gpt2(weights, gpt2_ids, tokenizer.get_vocab()))

    steps = sum(phase.epochs for phase in recipe.phases) * STEPS_PER_EPOCH
    trained: tf_keras.Model = model
    if name == "t5-stories":
        trained = PointingReader(model, tokenizer.token_to_id(CONTEXT_TOKEN))
    log = work / "log.json"
    schedule = WarmupCosine(recipe.learning_rate, steps, WARMUP_STEPS, 0.02)
    fitting = Fitting(trained, model, schedule, work, log, is_told_by_keras=True)
    done = fitting.steps // STEPS_PER_EPOCH

    first = 0
    for phase in recipe.phases:
        last = first + phase.epochs
        if done < last:
            start = max(done, first)
            rows_of = QuestionRows if name.startswith("t5") else StoryRows
            rows = rows_of(name, tokenizer, phase, epoch=start)
            tokens = STEPS_PER_EPOCH * phase.batch_size * phase.length
            fitting.fit(rows, start, last, "tokens", tokens)
        first = last

    save_tokenizer(tokenizer, name, folder)
    save_weights(model, folder)
    epochs = json.loads(log.read_text())
    told = {
        "parameters": model.count_params(),
        "steps": fitting.steps,
        "tokens": sum(epoch["tokens"] for epoch in epochs),
        "seconds": round(sum(epoch["seconds"] for epoch in epochs), 1),
        "loss": epochs[-1]["loss"],
    }
    (folder / TRAINING_FILE).write_text(json.dumps(told, indent=2) + "\n")
    print(f"saved; largest difference after loading: {reload_difference(model, folder)}")


def reload_difference(model: TFPreTrainedModel, folder: Path) -> float:
    """How far the logits of the saved folder are from those of the trained model."""
    ids = tf.constant(np.random.default_rng(1).integers(3, VOCABULARY_SIZE, (2, 50)), tf.int32)
    inputs = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids[:, :9]
    mine, saved = model(inputs).logits, load_model(folder)(inputs).logits
    return float(tf.reduce_max(tf.abs(mine - saved)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=RECIPES)
    parser.add_argument("--folder", type=Path, help="where the finished model goes")
    parser.add_argument("--work", type=Path, help="where checkpoints are kept during training")
    parser.add_argument("--restart", action="store_true", help="forget an unfinished training")
    arguments = parser.parse_args()
    folder = arguments.folder or MODELS_FOLDER / arguments.model
    work = arguments.work or MODELS_FOLDER / ".training" / arguments.model
    if arguments.restart:
        shutil.rmtree(work, ignore_errors=True)
    train(arguments.model, folder, work)


if __name__ == "__main__":
    main()
