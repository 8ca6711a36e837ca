"""The commands, their voices, the rows that train on them, and the shipped model's transcripts."""

import json
import random
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tf_keras

from demo_models import speech, train_whisper
from demo_models.speech import (
    ACCENTS,
    HELD_OUT_ACCENT,
    HELD_OUT_VOICE,
    RATE,
    VARIANTS,
    WINDOW_S,
    Clip,
    Speaker,
    SpeechUnavailable,
    Voice,
    degrade,
    held_out_clips,
    is_held_out,
    phrases,
    random_voice,
)
from demo_models.train_whisper import (
    FOLDER,
    LENGTH,
    POSITIONS,
    log_mel,
    row,
    train_tokenizer,
    word_errors,
)


@pytest.fixture(scope="session")
def say():
    """Speaks a phrase; a machine without espeak-ng skips what needs it."""
    try:
        return speech.speaker().say
    except SpeechUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer()


# --- phrases --------------------------------------------------------------------------------------


def test_the_grammar_has_many_thousand_phrases():
    assert len(set(islice(phrases(0, held_out=False), 40_000))) > 15_000


def test_training_and_held_out_phrases_have_nothing_in_common():
    training = set(islice(phrases(0, held_out=False), 20_000))
    held_out = set(islice(phrases(0, held_out=True), 5_000))
    assert not training & held_out
    assert not {f"please {phrase}" for phrase in training} & held_out


def test_please_does_not_make_another_phrase_of_it():
    for phrase in islice(phrases(3, held_out=True), 200):
        core = phrase.replace("please ", "").replace(" please", "")
        assert is_held_out(f"please {core}")
        assert is_held_out(f"{core} please")


def test_every_held_out_word_occurs_in_training():
    words = {word for phrase in islice(phrases(0, False), 20_000) for word in phrase.split()}
    assert {word for phrase in islice(phrases(0, True), 5_000) for word in phrase.split()} <= words


def test_phrases_are_plain_words():
    for phrase in islice(phrases(1, held_out=False), 5_000):
        assert phrase == " ".join(phrase.split())
        assert set(phrase) <= set("abcdefghijklmnopqrstuvwxyz' "), phrase
        assert " for one minutes" not in phrase


def test_numbers_in_words():
    assert [speech.number(n) for n in (1, 10, 19, 20, 42, 99)] == [
        "one", "ten", "nineteen", "twenty", "forty two", "ninety nine",
    ]  # fmt: skip


def test_a_seed_gives_the_same_phrases_again():
    assert list(islice(phrases(5, False), 50)) == list(islice(phrases(5, False), 50))
    assert list(islice(phrases(5, False), 50)) != list(islice(phrases(6, False), 50))


def test_no_training_voice_is_held_out():
    assert HELD_OUT_VOICE.variant not in VARIANTS
    assert HELD_OUT_ACCENT.variant not in VARIANTS
    assert HELD_OUT_ACCENT.accent not in ACCENTS
    rng = random.Random(0)
    assert all(random_voice(rng).variant in VARIANTS for _ in range(100))


# --- synthesis ------------------------------------------------------------------------------------


def test_a_machine_without_espeak_says_so_in_one_sentence(monkeypatch):
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(speech.ctypes, "CDLL", absent)
    with pytest.raises(SpeechUnavailable, match="espeak-ng is not installed") as raised:
        Speaker()
    assert "\n" not in str(raised.value)


def test_a_voice_that_is_not_there_is_named(say):
    with pytest.raises(SpeechUnavailable, match="no voice 'en-mars'"):
        say("hello", Voice("en-mars", ""))


def test_every_voice_speaks(say):
    for voice in [*(Voice("en", v) for v in VARIANTS), *(Voice(a, "m1") for a in ACCENTS)]:
        clip = say("lock the front door", voice)
        assert 0.5 < clip.seconds < 3.5, voice
        assert np.abs(clip.samples).max() > 2000, voice


def test_words_follow_one_another_to_the_end(say):
    clip = say("set a timer for seventeen minutes", HELD_OUT_VOICE)
    begins, ends = clip.word_times.T
    assert len(begins) == 6
    assert (np.diff(begins) > 0).all()
    assert np.allclose(begins[1:], ends[:-1])
    assert 0 <= begins[0] < 0.1
    assert ends[-1] == pytest.approx(clip.seconds)
    assert (np.diff(clip.phone_times) >= 0).all()
    assert len(clip.phones) == len(clip.phone_times) > 15


def test_a_part_of_a_clip_has_its_own_words_and_times(say):
    whole = say("turn off the kitchen light", HELD_OUT_VOICE)
    part = whole.between(2, 3)
    assert part.text == "the kitchen"
    assert part.seconds < whole.seconds / 1.5
    assert part.word_times[0, 0] == 0
    assert part.word_times[-1, 1] == pytest.approx(part.seconds, abs=0.001)


def test_two_clips_in_a_row(say):
    first = say("open the window", HELD_OUT_VOICE)
    both = first.followed_by(first, pause_s=0.5)
    assert both.text == "open the window open the window"
    assert both.seconds == pytest.approx(2 * first.seconds + 0.5, abs=0.001)
    assert both.word_times[3, 0] == pytest.approx(first.seconds + 0.5 + first.word_times[0, 0])
    assert len(both.phones) == len(both.phone_times)


def test_clips_survive_their_file(say, tmp_path, monkeypatch):
    made = speech._training_shard(60, seed=9, shard=0)
    assert {not clip.text for clip in made} == {True, False}  # silence is among them
    monkeypatch.setattr(speech, "_training_shard", lambda *_: made)
    speech._save_shard(tmp_path / "clips.npz", 60, seed=9, shard=0)
    kept = speech.load_shard(tmp_path / "clips.npz")
    for a, b in zip(made, kept, strict=True):
        assert (a.text, a.phones) == (b.text, b.phones)
        assert np.array_equal(a.samples, b.samples)
        assert np.array_equal(a.word_times, b.word_times)
        assert np.array_equal(a.phone_times, b.phone_times)
        assert a.seconds <= WINDOW_S


def test_a_seed_gives_the_same_texts_and_voices_again(say):
    """Not the same samples: espeak-ng's flutter goes on from phrase to phrase."""
    first, again = (speech._training_shard(30, seed=4, shard=2) for _ in range(2))
    assert [clip.text for clip in first] == [clip.text for clip in again]
    assert [c.seconds for c in first] == pytest.approx([c.seconds for c in again], abs=0.1)


def test_held_out_clips_are_held_out_and_different(say):
    clips = held_out_clips(30)
    assert len({clip.text for clip in clips}) == 30
    assert all(is_held_out(clip.text) for clip in clips)


@pytest.mark.parametrize("snr_db", [20.0, 0.0])
def test_noise_has_the_power_that_was_asked_for(say, snr_db):
    clip = say("stop the music in the attic", HELD_OUT_VOICE)
    powers = []
    for seed in range(8):
        quiet, at = degrade(clip, np.random.default_rng(seed), None, plain=True)
        loud, same = degrade(clip, np.random.default_rng(seed), snr_db, plain=True)
        assert at == same
        begin = round(at * RATE)
        speech_at = slice(begin, begin + len(clip.samples))
        outside = np.ones(len(loud), bool)
        outside[speech_at] = False
        # Both windows are scaled to their peak: the ratio of powers is inside one window.
        noise = np.mean(np.square(loud[outside]))
        powers.append(np.mean(np.square(loud[speech_at])) / noise)
        assert quiet.shape == loud.shape == (WINDOW_S * RATE,)
        assert np.abs(loud).max() <= 1
    assert 10 * np.log10(np.mean(powers) - 1) == pytest.approx(snr_db, abs=2)


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
    loaded = train_whisper.load(tmp_path)
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


def test_the_folder_is_small_and_complete():
    assert sum(f.stat().st_size for f in FOLDER.rglob("*") if f.is_file()) < 10_000_000
    for name in ("config.json", "generation_config.json", "preprocessor_config.json", "README.md"):
        assert (FOLDER / name).exists()


def test_the_folder_loads_as_the_libraries_load_it():
    from safetensors import safe_open
    from transformers import AutoFeatureExtractor, AutoProcessor, AutoTokenizer

    processor = AutoProcessor.from_pretrained(FOLDER)
    extractor = AutoFeatureExtractor.from_pretrained(FOLDER)
    loaded = AutoTokenizer.from_pretrained(FOLDER)
    assert type(processor).__name__ == "WhisperProcessor"
    assert extractor.nb_max_frames == 2 * POSITIONS
    text = " set a timer for seventeen minutes"
    assert loaded.decode(loaded(text).input_ids, skip_special_tokens=True) == text
    with safe_open(FOLDER / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        assert "model.encoder.conv1.weight" in file.keys()  # noqa: SIM118
        assert file.get_slice("model.encoder.conv1.weight").get_shape() == [128, 80, 3]


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
