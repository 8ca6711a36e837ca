"""The rows that train whisper-commands, its losses, and the shipped model's transcripts."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tf_keras

from demo_models.speech import (
    HELD_OUT_VOICE,
    RATE,
    WINDOW_S,
    Clip,
    degrade,
    held_out_clips,
    is_held_out,
    phrases,
)
from demo_models.training import train_whisper
from demo_models.training.checkpoint import load_model
from demo_models.training.train_whisper import (
    FOLDER,
    LENGTH,
    POSITIONS,
    log_mel,
    row,
    train_tokenizer,
    word_errors,
)


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer()


# --- rows -----------------------------------------------------------------------------------------


def test_features_are_the_extractors(say):
    clip = say("play jazz in the garden", HELD_OUT_VOICE)
    sound, _ = degrade(clip, np.random.default_rng(0), 15.0)
    exact = train_whisper.feature_extractor()(sound, sampling_rate=RATE, return_tensors="np")
    assert np.abs(log_mel(sound[None]) - exact.input_features).max() < 1e-4
    silent = np.zeros((1, WINDOW_S * RATE), np.float32)
    exact = train_whisper.feature_extractor()(silent[0], sampling_rate=RATE, return_tensors="np")
    assert np.abs(log_mel(silent) - exact.input_features).max() < 1e-4


def test_nearly_every_word_is_one_token(tokenizer):
    words = {word for phrase in islice(phrases(1, False), 5_000) for word in phrase.split()}
    split = {w for w in words if len(tokenizer.encode(f" {w}", add_special_tokens=False).ids) > 1}
    assert split <= {"o'clock"}


def test_a_row_points_at_the_words(say, tokenizer):
    clip = say("unlock the garage door at noon", HELD_OUT_VOICE)
    made = row(tokenizer, clip, offset_s=0.5)
    tokens = made["tokens"].tolist()
    assert tokenizer.decode(tokens) == " unlock the garage door at noon"
    assert [tokenizer.id_to_token(t) for t in tokens[:4]] == list(train_whisper.PROMPT)
    assert tokenizer.id_to_token(tokens[made["length"] - 1]) == "<|endoftext|>"
    # The token after the prompt is the first word; its span begins where the clip does.
    begins, ends = made["spans"].T
    assert not begins[:3].any()
    assert begins[3] == pytest.approx(0.5 * POSITIONS / WINDOW_S, abs=3)
    assert (np.diff(begins[3:9]) > 0).all()
    assert (ends[3:9] > begins[3:9]).all()
    assert not ends[9:].any()
    assert (made["phones"][:10] == 1).all()
    assert (made["phones"][15:30] > 1).any()


def test_silence_is_a_row_without_words(tokenizer):
    nothing = np.zeros((0, 2), np.float32)
    clip = Clip(np.zeros(0, np.int16), "", nothing, (), np.zeros(0, np.float32))
    sound, offset_s = degrade(clip, np.random.default_rng(0), 10.0)
    made = row(tokenizer, clip, offset_s)
    assert made["length"] == 5
    assert not made["spans"].any()
    assert np.isfinite(log_mel(sound[None])).all()


def test_no_phrase_is_too_long_for_a_row(tokenizer):
    longest = max(len(tokenizer.encode(f" {p}").ids) for p in islice(phrases(2, False), 20_000))
    assert longest <= LENGTH


@pytest.mark.parametrize(
    ("truth", "heard", "errors"),
    [
        ("", "", 0),
        ("", "a b", 2),
        ("a b c", "a b c", 0),
        ("a b c", "", 3),
        ("a b c", "a c", 1),
        ("a b c", "a x c", 1),
        ("a b c", "x a b c", 1),
        ("thirty minutes", "thirteen minutes", 1),
    ],
)
def test_word_errors(truth, heard, errors):
    assert word_errors(truth, heard) == errors


# --- the model ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fresh(tokenizer):
    tf_keras.utils.set_random_seed(3)
    return train_whisper.build_model(tokenizer)


def test_a_saved_folder_gives_the_trained_models_logits(fresh, tokenizer, tmp_path):
    train_whisper.save(fresh, tokenizer, tmp_path)
    loaded = load_model(tmp_path)
    rng = np.random.default_rng(0)
    features = rng.standard_normal((2, 80, 2 * POSITIONS)).astype("f4")
    ids = np.array([[tokenizer.token_to_id(name) for name in train_whisper.PROMPT]] * 2)
    mine, theirs = (
        model(input_features=features, decoder_input_ids=ids).logits.numpy()
        for model in (fresh, loaded)
    )
    assert np.abs(mine - theirs).max() < 1e-5
    assert np.abs(mine).max() > 1e-3
    settings = loaded.generation_config
    assert settings.lang_to_id == {"<|en|>": tokenizer.token_to_id("<|en|>")}
    assert [i for _, i in settings.forced_decoder_ids] == ids[0, 1:].tolist()


def test_the_losses_fall_where_the_model_is_right(fresh, say, tokenizer):
    """The attention's loss sees the words' places: spread evenly it is what the spans leave out."""
    clip = say("lower the curtains in the office", HELD_OUT_VOICE)
    sound, offset_s = degrade(clip, np.random.default_rng(0), None)
    made = row(tokenizer, clip, offset_s)
    batch = {name: np.asarray(value)[None] for name, value in made.items()}
    batch["features"] = log_mel(sound[None]).astype(np.float16)
    values = train_whisper.training_model(fresh)(batch)
    begins, ends = made["spans"][made["spans"][:, 1] > 0].T.astype(float)
    even = -np.log((ends - begins + 1) / POSITIONS).mean()
    assert float(values["attention_loss"]) == pytest.approx(even, rel=0.2)
    assert float(values["text_loss"]) == pytest.approx(np.log(tokenizer.get_vocab_size()), rel=0.1)
    assert 0 <= float(values["correct"]) <= 1


# --- the shipped model ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def transcribe():
    return train_whisper.transcriber(FOLDER)


def test_held_out_phrases_in_the_held_out_voice_are_understood(say, transcribe):
    """The card says 0.17 % on 500 phrases; a small sample scatters around it."""
    rate, wrong = train_whisper.word_error_rate(transcribe, held_out_clips(60, seed=11))
    assert rate <= 0.02, wrong


def test_the_examples_are_heard_as_their_texts_say(transcribe):
    texts = json.loads((FOLDER / "examples" / "texts.json").read_text())
    files = sorted(Path(FOLDER, "examples").glob("*.flac"))
    assert [file.name for file in files] == sorted(texts)
    extractor = train_whisper.feature_extractor()
    errors = 0
    for file in files:
        sound, rate = soundfile.read(file, dtype="float32")
        assert rate == RATE
        assert is_held_out(texts[file.name])
        window = np.zeros((1, extractor.n_samples), np.float32)
        window[0, : len(sound)] = sound
        errors += word_errors(texts[file.name], transcribe(window)[0])
    assert errors <= 1


def test_silence_has_no_words(transcribe):
    rng = np.random.default_rng(0)
    silence = np.zeros(WINDOW_S * RATE, np.float32)
    hiss = 0.01 * rng.standard_normal(WINDOW_S * RATE).astype("f4")
    assert transcribe(np.stack([silence, hiss])) == ["", ""]
