"""Trains whisper-commands: `python -m demo_models.training.train_whisper train`.

The other commands are `corpus`, `evaluate` and `examples`.

Knows: the model's shape and schedule, how clips become rows, and how a transcript is scored.
Must not know: the engine or the page; what is said and how it sounds is in `speech`.

The decoder of a Whisper model has to discover where in the sound each word lies, which takes a
large corpus and long training. espeak-ng tells where they lie, so three more losses teach it
directly: linear layers name the phone and the word of each encoder frame, and the last decoder
layer's attention is asked to rest on the word being written. The saved model has none of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import islice, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import WhisperFeatureExtractor

from demo_models.folders import MODELS_FOLDER
from demo_models.speech import (
    HELD_OUT_ACCENT,
    HELD_OUT_VOICE,
    RATE,
    WINDOW_S,
    Clip,
    Voice,
    degrade,
    held_out_clips,
    load_shard,
    phrases,
    training_shards,
)

if TYPE_CHECKING:
    from transformers import TFWhisperForConditionalGeneration

FOLDER = MODELS_FOLDER / "whisper-commands"
WORK = Path(tempfile.gettempdir()) / "whisper-commands-training"

SEED = 1
SHARDS, CLIPS_A_SHARD = 48, 1000
STEPS_PER_EPOCH, EPOCHS, BATCH = 250, 20, 16
PEAK_LEARNING_RATE, WARMUP_STEPS = 2e-3, 200
PHONE_WEIGHT, WORD_WEIGHT, ATTENTION_WEIGHT = 0.5, 0.5, 0.1

# Half as many frames a second as the released checkpoints (their hop is 160): the encoder costs
# less than half, and one frame in 40 ms behind its convolution still tells every phone apart.
HOP, FFT = 320, 512
FRAMES = WINDOW_S * RATE // HOP
POSITIONS = FRAMES // 2
LENGTH = 22  # decoder tokens of a training row, prompt included
TEXT_TOKENS = 920  # at most; merging ends when every word of the grammar is one token
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
PROMPT = ("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")
# espeak-ng's phone names by frequency; a rarer one counts as "other" (0), a pause as 1.
PHONES = """_ t n s I m @ l D E k p d z r f aI 0 a i: 3 w @2 eI I2 i u: a# v O@ ; V 3: oU b tS h A@
g N aU r- S T j O2 aa O: @L t# o@ U dZ @5 I# VR A: aI2 Z aI3 e@ w# aI@ i@""".split()
_PHONE_IDS = {name: i + 1 for i, name in enumerate(PHONES)} | {"_:": 1}


# --- tokenizer, features, rows --------------------------------------------------------------------


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE in which nearly every word of the grammar is one token, as " word"."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    corpus = islice(phrases(SEED, held_out=False), 20_000)
    tokenizer.train_from_iterator((f" {phrase}" for phrase in corpus), trainer)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    # As in the released checkpoints: the prompt before, the end token after.
    names = [*PROMPT, "<|endoftext|>"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{' '.join(PROMPT)} $A <|endoftext|>",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in names],
    )
    return tokenizer


@cache
def feature_extractor() -> WhisperFeatureExtractor:
    """The extractor that the saved folder describes."""
    return WhisperFeatureExtractor(hop_length=HOP, n_fft=FFT, chunk_length=WINDOW_S)


def log_mel(sound: np.ndarray) -> np.ndarray:
    """(B, WINDOW_S * RATE) float32 to (B, 80, FRAMES): what the extractor gives, 20 times sooner.

    The extractor walks frame by frame in Python, which for a corpus takes longer than training.
    """
    extractor = feature_extractor()
    padded = np.pad(sound, ((0, 0), (extractor.n_fft // 2,) * 2), mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, extractor.n_fft, axis=1)
    frames = frames[:, :: extractor.hop_length][:, :FRAMES]
    hann = np.hanning(extractor.n_fft + 1)[:-1].astype(np.float32)
    power = np.square(np.abs(np.fft.rfft(frames * hann)))  # (B, FRAMES, n_fft // 2 + 1)
    mel = power @ extractor.mel_filters.astype(np.float32)
    log = np.log10(np.maximum(mel, 1e-10)).transpose(0, 2, 1)
    log = np.maximum(log, log.max(axis=(1, 2), keepdims=True) - 8.0)
    return ((log + 4.0) / 4.0).astype(np.float32)


Rows = dict[str, np.ndarray]


def row(tokenizer: Tokenizer, clip: Clip, offset_s: float) -> Rows:
    """One clip's tokens and where its sounds lie, in encoder frames of 40 ms.

    tokens: (LENGTH + 1,) prompt, text, end, padded with the end token. length: how many count.
    spans: (LENGTH, 2) first and last frame of the word that each *next* token belongs to, or 0, 0.
    phones: (POSITIONS,) the phone that sounds in each frame.
    """
    rate = POSITIONS / WINDOW_S
    encoded = tokenizer.encode(f" {clip.text}" if clip.text else "")
    end = tokenizer.token_to_id("<|endoftext|>")
    tokens = np.full(LENGTH + 1, end, np.int32)
    if len(encoded.ids) > LENGTH + 1:
        raise ValueError(f"{clip.text!r} has {len(encoded.ids)} tokens; LENGTH is {LENGTH}")
    tokens[: len(encoded.ids)] = encoded.ids

    spans = np.zeros((LENGTH, 2), np.int16)
    words = np.cumsum([char == " " for char in f" {clip.text}"]) - 1  # char -> word
    for i, (first, last) in enumerate(encoded.offsets[1:]):
        if last > first:
            begin = clip.word_times[words[first], 0] + offset_s
            until = clip.word_times[words[last - 1], 1] + offset_s
            spans[i] = [max(0, int(begin * rate) - 1), min(POSITIONS - 1, int(until * rate) + 1)]

    phones = np.full(POSITIONS, 1, np.uint8)
    begins = np.append(clip.phone_times + offset_s, clip.seconds + offset_s)
    for name, begin, until in zip(clip.phones, begins[:-1], begins[1:], strict=True):
        phones[round(begin * rate) : round(until * rate)] = _PHONE_IDS.get(name, 0)
    return {"tokens": tokens, "length": len(encoded.ids), "spans": spans, "phones": phones}


def _make_rows(clips_path: Path, rows_path: Path, shard: int, tokenizer_json: str) -> None:
    """A shard of clips as a file of rows, each in a room of its own."""
    if rows_path.exists():
        return
    tokenizer = Tokenizer.from_str(tokenizer_json)
    rng = np.random.default_rng([SEED, shard])
    rows, features = [], []
    for clip in load_shard(clips_path):
        noisy = rng.random() < 0.75 or not clip.text
        sound, offset_s = degrade(clip, rng, rng.uniform(3, 40) if noisy else None)
        rows.append(row(tokenizer, clip, offset_s))
        features.append(log_mel(sound[None])[0].astype(np.float16))
    aside = rows_path.with_suffix(".part.npz")
    np.savez(
        aside,
        features=np.stack(features),
        **{name: np.stack([r[name] for r in rows]) for name in rows[0]},
    )
    aside.rename(rows_path)


def make_rows(work: Path, tokenizer: Tokenizer, shards: int, processes: int) -> list[Path]:
    """The files of the corpus's rows, made where they are missing; features as float16."""
    clips = training_shards(work / "clips", shards, CLIPS_A_SHARD, SEED, processes)
    folder = work / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rows-{shard:03d}.npz" for shard in range(shards)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        made = pool.map(_make_rows, clips, paths, range(shards), repeat(tokenizer.to_str()))
        for done, _ in enumerate(made, 1):
            print(f"rows: {done * CLIPS_A_SHARD:,} of {shards * CLIPS_A_SHARD:,}", flush=True)
    return paths


def load_rows(paths: Sequence[Path]) -> Rows:
    """All rows in memory."""
    total = len(paths) * CLIPS_A_SHARD
    rows: Rows = {}
    for shard, path in enumerate(paths):  # filled in place: the features alone are gigabytes
        with np.load(path) as stored:
            for name in stored.files:
                part = stored[name]
                if name not in rows:
                    rows[name] = np.empty((total, *part.shape[1:]), part.dtype)
                rows[name][shard * CLIPS_A_SHARD : (shard + 1) * CLIPS_A_SHARD] = part
    return rows


# --- the model and its training -------------------------------------------------------------------


def build_model(tokenizer: Tokenizer) -> TFWhisperForConditionalGeneration:
    """A fresh model of 1.3 million parameters, its generation settings as released ones have."""
    from transformers import (
        GenerationConfig,
        TFWhisperForConditionalGeneration,
        WhisperConfig,
    )

    ids = {name: tokenizer.token_to_id(name) for name in SPECIAL_TOKENS}
    end = ids["<|endoftext|>"]
    space = tokenizer.token_to_id("Ġ")
    symbols = [tokenizer.token_to_id(char) for char in '"#()*+/:;<=>@[\\]^_`{|}~']
    settings = {
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "suppress_tokens": sorted([*symbols, *(i for name, i in ids.items() if i != end)]),
        # Released checkpoints also forbid an empty transcript; here silence has one.
        "begin_suppress_tokens": [space],
    }
    config = WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(),
        num_mel_bins=80,
        d_model=128,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        max_source_positions=POSITIONS,
        max_target_positions=64,
        dropout=0.0,
        architectures=["WhisperForConditionalGeneration"],
        **settings,
    )
    model = TFWhisperForConditionalGeneration(config)
    model.build_in_name_scope()
    model.generation_config = GenerationConfig(
        **settings,
        max_length=64,
        is_multilingual=True,
        lang_to_id={"<|en|>": ids["<|en|>"]},
        task_to_id={"transcribe": ids["<|transcribe|>"], "translate": ids["<|translate|>"]},
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        forced_decoder_ids=[[i, ids[name]] for i, name in enumerate(PROMPT) if i > 0],
        return_timestamps=False,
    )
    # What decides about generation belongs in one file.
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        setattr(config, name, None)
    return model


def training_model(model: TFWhisperForConditionalGeneration):
    """The model with its four losses, as a Keras model to `compile` and `fit`.

    TensorFlow is imported here: the processes that make rows import this module and need none.
    """
    import tensorflow as tf
    import tf_keras

    class Training(tf_keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.whisper = model
            self.phone_head = tf_keras.layers.Dense(len(PHONES) + 1, name="phone_head")
            self.phone_head.build([None, None, model.config.d_model])
            self.word_head = tf_keras.layers.Dense(model.config.vocab_size, name="word_head")
            self.word_head.build([None, None, model.config.d_model])
            names = ("text_loss", "phone_loss", "word_loss", "attention_loss", "correct")
            self.means = [tf_keras.metrics.Mean(name) for name in names]

        @property
        def metrics(self) -> list[tf_keras.metrics.Metric]:
            return self.means  # Keras sets them back at the start of each epoch

        def call(self, batch: dict[str, tf.Tensor], training: bool = False) -> dict:
            tokens = batch["tokens"]
            output = self.whisper(
                input_features=tf.cast(batch["features"], tf.float32),
                decoder_input_ids=tokens[:, :-1],
                output_attentions=True,
                use_cache=False,
                training=training,
            )
            inside = self.losses_of(batch, output)
            return {"correct": self.correct(batch, output.logits), **inside}

        def losses_of(self, batch: dict[str, tf.Tensor], output) -> dict[str, tf.Tensor]:
            targets = batch["tokens"][:, 1:]
            counted = tf.sequence_mask(batch["length"] - 1, LENGTH, tf.float32)  # (B, L)
            text = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, output.logits)

            heard = output.encoder_last_hidden_state  # (B, T, d)
            phone = tf.nn.sparse_softmax_cross_entropy_with_logits(
                tf.cast(batch["phones"], tf.int32), self.phone_head(heard)
            )

            frames = tf.range(POSITIONS)[None, None, :]
            spans = tf.cast(batch["spans"], tf.int32)
            spoken = tf.cast(spans[..., 1] > 0, tf.float32)  # (B, L)
            in_span = (frames >= spans[..., :1]) & (frames <= spans[..., 1:])
            attention = tf.reduce_mean(output.cross_attentions[-1], axis=1)  # (B, L, T)
            mass = tf.reduce_sum(attention * tf.cast(in_span, tf.float32), axis=-1)
            on_word = -tf.math.log(mass + 1e-4) * spoken

            # A frame's word is the token in whose span, less its margins, the frame lies; a pause
            # counts as the end token.
            inner = (frames > spans[..., :1]) & (frames < spans[..., 1:])
            place = tf.argmax(tf.cast(inner, tf.int32), axis=1, output_type=tf.int32)  # (B, T)
            word_ids = tf.where(
                tf.reduce_any(inner, axis=1),
                tf.gather(targets, place, batch_dims=1),
                model.config.eos_token_id,
            )
            word = tf.nn.sparse_softmax_cross_entropy_with_logits(word_ids, self.word_head(heard))
            return {
                "text_loss": tf.reduce_sum(text * counted) / tf.reduce_sum(counted),
                "phone_loss": tf.reduce_mean(phone),
                "word_loss": tf.reduce_mean(word),
                "attention_loss": tf.reduce_sum(on_word) / (tf.reduce_sum(spoken) + 1e-6),
            }

        def correct(self, batch: dict[str, tf.Tensor], logits: tf.Tensor) -> tf.Tensor:
            """The share of next tokens that the model puts first, the fixed prompt left out."""
            counted = tf.sequence_mask(batch["length"] - 1, LENGTH, tf.float32)
            counted *= tf.cast(tf.range(LENGTH) >= len(PROMPT) - 1, tf.float32)
            hits = tf.argmax(logits, -1, tf.int32) == batch["tokens"][:, 1:]
            return tf.reduce_sum(tf.cast(hits, tf.float32) * counted) / tf.reduce_sum(counted)

        def train_step(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            batch = {**batch, "features": self.masked(batch["features"])}
            with tf.GradientTape() as tape:
                values = self(batch, training=True)
                loss = (
                    values["text_loss"]
                    + PHONE_WEIGHT * values["phone_loss"]
                    + WORD_WEIGHT * values["word_loss"]
                    + ATTENTION_WEIGHT * values["attention_loss"]
                )
            variables = self.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables, strict=True)
            )
            for mean in self.means:
                mean.update_state(values[mean.name])
            return {mean.name: mean.result() for mean in self.means}

        def masked(self, features: tf.Tensor) -> tf.Tensor:
            """SpecAugment: a band of frequencies and two short stretches of time are blanked."""
            features = tf.cast(features, tf.float32)
            rows = tf.shape(features)[0]
            # Stateless numbers from the step: a resumed run draws what it would have drawn.
            step = tf.cast(self.optimizer.iterations, tf.int32)
            draw = tf.random.stateless_uniform([rows, 3, 2], seed=tf.stack([step, SEED]))
            keep = tf.ones_like(features)
            for i, (size, widest) in enumerate([(80, 12), (FRAMES, 7), (FRAMES, 7)]):
                width = draw[:, i, 0] * widest
                first = draw[:, i, 1] * (size - width)
                at = tf.range(size, dtype=tf.float32)[None]
                hole = (at >= first[:, None]) & (at < (first + width)[:, None])
                hole = hole[:, :, None] if i == 0 else hole[:, None, :]
                keep *= 1.0 - tf.cast(hole, tf.float32)
            return features * keep

    return Training()


def train(folder: Path, work: Path, shards: int, epochs: int, processes: int) -> None:
    """Trains the model and writes its folder; a stopped run goes on from its last epoch.

    Args:
        folder: where the finished model goes.
        work: clips, rows and checkpoints, some gigabytes; deleting it starts afresh.
        shards: thousands of clips.
        epochs: of STEPS_PER_EPOCH steps each.
        processes: how many make the corpus at the same time.
    """
    tokenizer = train_tokenizer()
    rows = load_rows(make_rows(work, tokenizer, shards, processes))

    import tf_keras

    from demo_models.training.fitting import Fitting, WarmupCosine

    tf_keras.utils.set_random_seed(SEED)
    model = build_model(tokenizer)
    whole = training_model(model)
    print(f"{model.count_params():,} parameters", flush=True)
    schedule = WarmupCosine(PEAK_LEARNING_RATE, epochs * STEPS_PER_EPOCH, WARMUP_STEPS, 0.01)
    fitting = Fitting(whole, whole, schedule, work / "checkpoints", work / "log.json")

    class Batches(tf_keras.utils.Sequence):
        """A new order of the rows for each pass over them, known from the step alone."""

        epoch = fitting.steps // STEPS_PER_EPOCH

        def __len__(self) -> int:
            return STEPS_PER_EPOCH

        def on_epoch_end(self) -> None:
            self.epoch += 1

        def __getitem__(self, step: int) -> Rows:
            count = len(rows["tokens"])
            per_pass = count // BATCH
            turn, batch = divmod(self.epoch * STEPS_PER_EPOCH + step, per_pass)
            order = _order(turn, count)[batch * BATCH : (batch + 1) * BATCH]
            return {name: rows[name][order] for name in rows}

    fitting.fit(Batches(), Batches.epoch, epochs, "clips", STEPS_PER_EPOCH * BATCH)
    save(model, tokenizer, folder)


@cache
def _order(turn: int, count: int) -> np.ndarray:
    return np.random.default_rng([SEED, turn]).permutation(count)


# --- the folder -----------------------------------------------------------------------------------


def save(model: TFWhisperForConditionalGeneration, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes a Hugging Face model folder: weights under PyTorch's names, processor, settings."""
    from demo_models.training.checkpoint import save_weights

    save_weights(model, folder)
    feature_extractor().save_pretrained(folder)
    _save_tokenizer(tokenizer, folder)


def _save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    from transformers import WhisperTokenizerFast

    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "tokenizer.json")
        tokenizer.save(str(path))
        end = "<|endoftext|>"
        fast = WhisperTokenizerFast(
            tokenizer_file=str(path),
            unk_token=end,
            bos_token=end,
            eos_token=end,
            pad_token=end,
            additional_special_tokens=list(SPECIAL_TOKENS[1:]),
            model_max_length=64,
            language="en",
            task="transcribe",
            predict_timestamps=False,
        )
        fast.save_pretrained(folder)


# --- scoring --------------------------------------------------------------------------------------


def word_errors(truth: str, heard: str) -> int:
    """Words to insert, delete or replace to make one text the other."""
    a, b = truth.split(), heard.split()
    costs = list(range(len(b) + 1))
    for i, word in enumerate(a, 1):
        above, costs[0] = costs[0], i
        for j, other in enumerate(b, 1):
            best = min(above + (word != other), costs[j] + 1, costs[j - 1] + 1)
            above, costs[j] = costs[j], best
    return costs[-1]


Transcribe = Callable[[np.ndarray], list[str]]


def transcriber(folder: Path) -> Transcribe:
    """A function from (B, WINDOW_S * RATE) float32 to B texts, by the library's own `generate`."""
    from transformers import AutoProcessor

    from demo_models.training.checkpoint import load_model

    model, processor = load_model(folder), AutoProcessor.from_pretrained(folder)

    def transcribe(sound: np.ndarray) -> list[str]:
        # max_length bounds a model that has not learned to stop; the grammar needs less.
        tokens = model.generate(log_mel(sound), max_length=LENGTH + 8).numpy()
        return [t.strip() for t in processor.batch_decode(tokens, skip_special_tokens=True)]

    return transcribe


def word_error_rate(
    transcribe: Transcribe, clips: Sequence[Clip], snr_db: float | None = None, seed: int = 0
) -> tuple[float, list[tuple[str, str]]]:
    """Errors over words, and the (truth, heard) pairs that differ."""
    rng = np.random.default_rng(seed)
    errors = words = 0
    wrong = []
    for first in range(0, len(clips), 50):
        batch = clips[first : first + 50]
        sound = np.stack([degrade(clip, rng, snr_db, plain=True)[0] for clip in batch])
        for clip, heard in zip(batch, transcribe(sound), strict=True):
            errors += (count := word_errors(clip.text, heard))
            words += len(clip.text.split())
            if count:
                wrong.append((clip.text, heard))
    return errors / words, wrong


def evaluate(folder: Path, count: int, show: int = 10) -> dict[str, float]:
    """Prints and returns word error rates on `count` held-out phrases, by voice and by noise."""
    transcribe = transcriber(folder)
    seen = Voice("en-us", "m3")
    conditions: Iterable[tuple[str, Voice, float | None]] = [
        ("held-out voice", HELD_OUT_VOICE, None),
        *(
            (f"held-out voice, noise at {snr} dB", HELD_OUT_VOICE, snr)
            for snr in (30, 20, 10, 5, 0)
        ),
        ("held-out voice with a held-out accent", HELD_OUT_ACCENT, None),
        ("a voice of the training set", seen, None),
    ]
    rates = {}
    for name, voice, snr in conditions:
        clips = held_out_clips(count, voice=voice)
        rates[name], wrong = word_error_rate(transcribe, clips, snr)
        print(f"{100 * rates[name]:6.2f} %  {name} ({len(clips)} phrases)", flush=True)
        if not snr:
            for truth, heard in wrong[:show]:
                print(f"          {truth!r} heard as {heard!r}")
    return rates


def write_examples(folder: Path, count: int = 6) -> None:
    """Held-out phrases in the held-out voice as small files, with their texts in a JSON."""
    import soundfile

    target = folder / "examples"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    rng = np.random.default_rng(SEED)
    # Long phrases of different openings: a visitor sees more than "stop the oven".
    chosen: dict[str, Clip] = {}
    for clip in held_out_clips(400, seed=2):
        words = clip.text.split()
        if 6 <= len(words) <= 9 and "please" not in words:
            chosen.setdefault(words[0], clip)
    texts = {}
    for i, clip in enumerate(list(chosen.values())[:count], 1):
        sound, offset_s = degrade(clip, rng, 25.0 if i % 2 == 0 else None, plain=True)
        end = round((offset_s + clip.seconds + 0.2) * RATE)
        name = f"command-{i}.flac"
        soundfile.write(target / name, sound[:end], RATE, subtype="PCM_16")
        texts[name] = clip.text
    (target / "texts.json").write_text(json.dumps(texts, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    corpus = commands.add_parser("corpus", help="only make the clips and rows that train needs")
    training = commands.add_parser("train", help="train the model and write its folder")
    for command in (corpus, training):
        command.add_argument("--work", type=Path, default=WORK, help="clips, rows, checkpoints")
        command.add_argument("--shards", type=int, default=SHARDS, help="thousands of clips")
        command.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    training.add_argument("--epochs", type=int, default=EPOCHS)
    training.add_argument("--restart", action="store_true", help="forget the checkpoints")
    scoring = commands.add_parser("evaluate", help="print word error rates")
    scoring.add_argument("--count", type=int, default=500, help="held-out phrases")
    examples = commands.add_parser("examples", help="write a few held-out recordings")
    for command in (training, scoring, examples):
        command.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    match arguments.command:
        case "corpus":
            make_rows(arguments.work, train_tokenizer(), arguments.shards, arguments.processes)
        case "train":
            if arguments.restart:
                shutil.rmtree(arguments.work / "checkpoints", ignore_errors=True)
            train(
                arguments.folder,
                arguments.work,
                arguments.shards,
                arguments.epochs,
                arguments.processes,
            )
        case "evaluate":
            evaluate(arguments.folder, arguments.count)
        case "examples":
            write_examples(arguments.folder)


if __name__ == "__main__":
    main()
