"""Tests of recordings: windows, languages, bad audio, the engine's process, the command line.

What the model writes is nonsense, being random; that it is the right nonsense is for
`test_parity_speech`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests import checkpoints
from tests.oracle import load_oracle
from xla_backend import (
    Backend,
    BackendProcess,
    BucketRules,
    GenerationOptions,
    InvalidRequest,
    Transcription,
)
from xla_backend.engine.transcription import SILENCE

RATE = 16_000
WINDOW_S = 2.0
RULES = BucketRules(max_new_tokens=(8, 64))
SHORT = GenerationOptions(max_new_tokens=8)
ROOT = Path(__file__).resolve().parents[3]


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    """A rising tone, (n,) float32."""
    time = np.arange(round(seconds * rate)) / rate
    return np.float32(0.3 * np.sin(2 * np.pi * time * (200 + 200 * time)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoints.whisper(tmp_path_factory.mktemp("models") / "speech", seed=3))


@pytest.fixture(scope="module")
def engine(folder: str) -> Iterator[Backend]:
    backend = Backend(rules=RULES)
    backend.transcribe(folder, (RATE, tone(1.0)), SHORT)  # the one compilation
    yield backend
    backend.close()


# --- windows --------------------------------------------------------------------------------------


def test_the_first_window_misses_and_all_others_hit(folder: str) -> None:
    backend = Backend(rules=RULES)
    result = backend.transcribe(folder, (RATE, tone(7.0)), SHORT)

    later = len(result.windows) - 1
    assert later >= 3
    assert [window.cache.value for window in result.windows] == ["miss"] + ["hit"] * later
    assert result.cache.value == "miss"
    assert len(backend.cached_functions()) == 1
    assert backend.cached_functions()[0].hits == later
    assert str(result.key) == "padded 200 · beams 1 · new 8"

    assert result.audio_s == 7.0
    assert result.real_time_factor == result.timing.total_s / 7.0
    assert result.text == " ".join(window.text for window in result.windows)
    assert result.new_tokens == sum(window.new_tokens for window in result.windows)
    assert result.prompt_tokens == pytest.approx(700, abs=later + 1), "frames of 10 ms"
    assert result.windows[0].start_s == 0
    assert result.windows[-1].end_s == 7.0
    for one, next_one in zip(result.windows, result.windows[1:], strict=False):
        assert 0 < one.end_s - one.start_s <= WINDOW_S
        assert one.end_s == next_one.start_s

    for timing in (result.timing, *(window.timing for window in result.windows)):
        seconds = timing.to_dict()
        total = seconds.pop("total_s")
        assert sum(seconds.values()) == pytest.approx(total, rel=1e-6)
    shares = [window.timing.total_s for window in result.windows]
    assert sum(shares) == pytest.approx(result.timing.total_s, rel=0.02)
    assert result.windows[0].timing.compile_s > 0
    assert all(window.timing.compile_s == 0 for window in result.windows[1:])
    assert result.speedup is None

    again = backend.transcribe(folder, (RATE, tone(7.0)), SHORT)
    assert [window.cache.value for window in again.windows] == ["hit"] * (later + 1)
    assert again.text == result.text
    assert again.timing.total_s < result.timing.total_s / 5
    a_window_s = again.timing.run_s / (later + 1)
    assert again.speedup == pytest.approx(again.first_call.total_s / a_window_s)
    assert pickle.loads(pickle.dumps(again)) == again


def test_the_last_of_equal_windows_hears_what_a_recording_of_its_own_would(
    engine: Backend, folder: str
) -> None:
    sound = tone(1.5)
    both = np.concatenate([sound, np.zeros(RATE // 2, np.float32), sound])
    windows = engine.transcribe(folder, (RATE, both), SHORT).windows
    alone = engine.transcribe(folder, (RATE, sound), SHORT)
    assert len(windows) == 2
    start = round(windows[1].start_s * RATE)
    assert windows[1].text == engine.transcribe(folder, (RATE, both[start:]), SHORT).text
    assert alone.windows[0].text


def test_silent_windows_are_not_run(engine: Backend, folder: str) -> None:
    sound = np.concatenate([tone(1.8), np.zeros(4 * RATE, np.float32), tone(1.8)])
    result = engine.transcribe(folder, (RATE, sound), SHORT)
    outcomes = [window.cache and window.cache.value for window in result.windows]
    assert outcomes[0] == outcomes[-1] == "hit"
    assert None in outcomes
    silent = result.windows[outcomes.index(None)]
    assert (silent.text, silent.new_tokens, silent.timing.run_s) == ("", 0, 0)
    assert result.audio_s == pytest.approx(7.6)


def test_windows_come_one_by_one_and_can_be_stopped(engine: Backend, folder: str) -> None:
    whole = engine.transcribe(folder, (RATE, tone(7.0)), SHORT)
    stream = engine.transcribe_windows(folder, (RATE, tone(7.0)), SHORT)
    first = next(stream)
    assert first.text == whole.windows[0].text
    assert stream.result is None
    assert next(stream).text == whole.windows[1].text
    stream.stop()
    assert list(stream) == []
    assert stream.result.finish == "stopped"
    assert len(stream.result.windows) == 2
    assert stream.result.audio_s == whole.windows[1].end_s
    assert whole.finish == "length"


def test_a_larger_function_serves_a_smaller_request(folder: str) -> None:
    backend = Backend(rules=RULES)
    sound = (RATE, tone(3.0))
    full = backend.transcribe(folder, sound)
    assert full.options.max_new_tokens == 60, "64 positions less 4 of the decoder prompt"
    assert full.key.max_new_tokens == 64
    short = backend.transcribe(folder, sound, SHORT)
    assert [window.cache.value for window in short.windows] == ["reused"] * 2
    assert (short.key.max_new_tokens, short.requested_key.max_new_tokens) == (64, 8)
    assert [window.new_tokens for window in short.windows] == [8, 8]
    backend.close()


def test_more_tokens_than_the_model_can_write_are_as_many_as_it_can(
    engine: Backend, folder: str
) -> None:
    result = engine.transcribe(folder, (RATE, tone(1.0)), GenerationOptions(max_new_tokens=1000))
    assert result.options.max_new_tokens == 60
    assert result.new_tokens <= 60


# --- languages ------------------------------------------------------------------------------------


def test_options_of_texts_alone_are_refused(engine: Backend, folder: str) -> None:
    for changes, sentence in (
        ({"stop": "a"}, "written down to its end: leave it out"),
        ({"logit_bias": {10**6: 1}}, "logit_bias names token 1000000"),
    ):
        with pytest.raises(InvalidRequest, match=sentence):
            engine.transcribe(folder, (RATE, tone(1.0)), SHORT.replace(**changes))


@pytest.mark.parametrize(
    ("language", "code"),
    [("de", "de"), ("German", "de"), ("<|DE|>", "de"), (" english ", "en")],
)
def test_languages_by_any_name(engine: Backend, folder: str, language: str, code: str) -> None:
    result = engine.transcribe(folder, (RATE, tone(1.0)), SHORT, language=language)
    assert result.language == code


def test_an_unknown_language_is_named(engine: Backend, folder: str) -> None:
    with pytest.raises(InvalidRequest, match=r"the language 'Klingon'. It knows: "):
        engine.transcribe(folder, (RATE, tone(1.0)), SHORT, language="Klingon")
    with pytest.raises(InvalidRequest, match="must be text, not int"):
        engine.transcribe(folder, (RATE, tone(1.0)), SHORT, language=5)


def test_the_language_is_heard_in_the_first_window(tmp_path: Path) -> None:
    from transformers import WhisperFeatureExtractor

    name = checkpoints.whisper(tmp_path / "polyglot", seed=3)
    oracle = load_oracle(name)
    extractor = WhisperFeatureExtractor.from_pretrained(name)
    path = name / "generation_config.json"
    settings = json.loads(path.read_text())
    start = np.int32([[settings["decoder_start_token_id"]]])
    sounds = [tone(1.5), np.float32(0.1 * np.random.default_rng(0).standard_normal(RATE))]
    logits = []
    for sound in sounds:
        features = extractor(sound, sampling_rate=RATE, return_tensors="np")
        logits.append(oracle.logits({**features, "decoder_input_ids": start})[0, -1])
    # A random model hears one language everywhere, unless it is told which tokens stand for them.
    preference = logits[0] - logits[1]
    tokens = {"<|de|>": int(preference.argmax()), "<|en|>": int(preference.argmin())}
    path.write_text(json.dumps(settings | {"lang_to_id": tokens}))
    expected = [max(tokens, key=lambda code: some[tokens[code]]).strip("<|>") for some in logits]

    backend = Backend(rules=RULES)
    for sound, language in zip(sounds, expected, strict=True):
        heard = backend.transcribe(str(name), (RATE, sound), SHORT)
        assert heard.language == language
        reported = backend.transcribe(str(name), (RATE, sound), SHORT, language=language)
        assert heard.text == reported.text
    assert set(expected) == {"de", "en"}
    backend.close()


def test_an_english_only_model_knows_english(tmp_path: Path) -> None:
    name = str(checkpoints.whisper(tmp_path / "english", multilingual=False, seed=4))
    backend = Backend(rules=RULES)
    sound = (RATE, tone(1.0))
    result = backend.transcribe(name, sound, SHORT)
    assert result.language is None
    assert backend.transcribe(name, sound, SHORT, language="English").text == result.text
    with pytest.raises(InvalidRequest, match="It knows: en"):
        backend.transcribe(name, sound, SHORT, language="de")
    backend.close()


# --- recordings of every kind ---------------------------------------------------------------------


def test_every_rate_and_format_says_the_same(engine: Backend, folder: str, tmp_path: Path) -> None:
    """Through a 440 Hz tone, which survives 8 bits and any rate."""
    for name, rate, channels, subtype in (
        ("plain.wav", 16_000, 1, "PCM_16"),
        ("eight-bit.wav", 16_000, 1, "PCM_U8"),
        ("fast-stereo.wav", 96_000, 2, "PCM_24"),
        ("packed.flac", 44_100, 1, "PCM_16"),
        ("slow.wav", 8_000, 1, "FLOAT"),
    ):
        time = np.arange(rate) / rate
        mono = 0.4 * np.sin(2 * np.pi * 440 * time)
        soundfile.write(tmp_path / name, np.stack([mono] * channels, axis=1), rate, subtype)
        result = engine.transcribe(folder, tmp_path / name, SHORT, language="en")
        assert result.audio_s == pytest.approx(1.0, abs=0.001), name
        assert result.new_tokens > 0, name
        assert result.cache.value == "hit", name


def text_named_wav(path: Path) -> Path:
    path.write_text("This is no sound.")
    return path


def empty_file(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def long_file(path: Path) -> Path:
    soundfile.write(path, np.zeros(2 * 3600 * 100, np.int16), 100 * 10)
    return path


NAN = tone(1.0)
NAN[100:200] = np.nan

BAD: dict[str, tuple[Any, str]] = {
    "no samples": ((RATE, np.zeros(0)), "recording is empty"),
    "digital silence": ((RATE, np.zeros(RATE)), "recording is silent"),
    "an offset alone": ((RATE, np.full(RATE, 0.2)), "recording is silent"),
    "below hearing": ((RATE, tone(1.0) * SILENCE), "recording is silent"),
    "0.05 s": ((RATE, tone(0.05)), r"only 0\.05 s long: at least 0\.1 s"),
    "one sample": ((96_000, np.ones(1)), "s long: at least"),
    "2 hours": ((1000, np.ones(2 * 3600 * 1000, np.int8)), r"7,200 s long; at most 600 s"),
    "not a number": ((RATE, NAN), "100 of 16,000 samples are not finite"),
    "no rate": ((0, tone(1.0)), "sample rate"),
    "no audio at all": (12, "file's path or a pair"),
    "no such file": ("missing.wav", "There is no audio file 'missing.wav': choose another file.$"),
    "a text file": (text_named_wav, "cannot be read as audio"),
    "an empty file": (empty_file, "is empty"),
    "a file of 2 hours": (long_file, "s long; at most 600 s"),
    "a folder": (lambda path: path.parent, "There is no audio file"),
    "a NUL in the name": ("a\0b.wav", "There is no audio file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_audio_is_told_in_a_sentence(
    engine: Backend, folder: str, tmp_path: Path, name: str
) -> None:
    recording, sentence = BAD[name]
    if callable(recording):
        recording = recording(tmp_path / "recording.wav")
    with pytest.raises(InvalidRequest, match=sentence):
        engine.transcribe(folder, recording, SHORT)
    assert engine.status.state == "ready"


def test_the_longest_recording_can_be_chosen(engine: Backend, folder: str) -> None:
    with pytest.raises(InvalidRequest, match=r"3 s long; at most 2 s"):
        engine.transcribe(folder, (RATE, tone(3.0)), SHORT, max_seconds=2.0)


# --- the wrong kind of model ----------------------------------------------------------------------


def test_speech_models_take_no_prompts_and_others_no_recordings(
    engine: Backend, folder: str, small_gpt2: Path
) -> None:
    for ask in (engine.generate, engine.predict):
        with pytest.raises(InvalidRequest, match="writes down speech: give it a recording"):
            ask(folder, "Once upon a time")
    with pytest.raises(InvalidRequest, match="works on text: choose a speech model"):
        engine.transcribe(str(small_gpt2), (RATE, tone(1.0)))


def test_files_that_do_not_fit_together_are_told(tmp_path: Path) -> None:
    from xla_backend import ModelUnavailable

    name = checkpoints.whisper(tmp_path / "odd")
    path = name / "preprocessor_config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"chunk_length": 3, "n_samples": 48_000}))
    with pytest.raises(ModelUnavailable, match="300 frames of 80 bands, and the model wants 200"):
        Backend().load(str(name))
    path.write_text(json.dumps(values | {"hop_length": "many"}))
    with pytest.raises(ModelUnavailable, match=r"preprocessor_config\.json in .* cannot be used"):
        Backend().load(str(name))


# --- predictions ----------------------------------------------------------------------------------


def what_came(engine: Backend | BackendProcess, folder: str, options: Any) -> tuple[str, str]:
    """Outcome and text of a recording's first window; the outcome must be the predicted one."""
    predicted = engine.predict_speech(folder, options)
    result = engine.transcribe(folder, (RATE, tone(0.8)), options)
    assert (predicted.outcome, predicted.key, predicted.requested_key) == (
        result.cache,
        result.key,
        result.requested_key,
    )
    return result.cache.value, result.text


@pytest.mark.release
def test_what_a_recording_will_meet_is_known_beforehand(small_gpt2: Path, tmp_path: Path) -> None:
    # Weights of its own: what another engine of this process has compiled is not stored again.
    folder = str(checkpoints.whisper(tmp_path / "speech", seed=17))
    beams = GenerationOptions(max_new_tokens=8, num_beams=2)
    store = tmp_path / "store"
    backend = Backend(rules=RULES, store=store)
    assert backend.predict_speech(folder).expected_s is None
    # The smaller one last: it is served by the larger, and its own is made afterwards.
    came = [what_came(backend, folder, options) for options in (None, None, beams, SHORT)]
    assert [outcome for outcome, _ in came] == ["miss", "hit", "miss", "reused"]
    text, text_of_beams = came[0][1], came[2][1]
    assert text
    assert 0 < backend.predict_speech(folder).expected_s < 5
    with pytest.raises(InvalidRequest, match="works on text: choose a speech model"):
        backend.predict_speech(str(small_gpt2))
    backend.close()

    process = BackendProcess(rules=RULES, default_model=None, store=store)
    try:
        assert what_came(process, folder, None) == ("disk", text)
        assert what_came(process, folder, None) == ("hit", text)
        assert what_came(process, folder, beams) == ("disk", text_of_beams)
        assert what_came(process, folder, beams.replace(num_beams=3))[0] == "miss"
        assert process.predict_speech(folder).prompt_tokens == WINDOW_S * 100
        with pytest.raises(InvalidRequest, match="works on text: choose a speech model"):
            process.predict_speech(str(small_gpt2))
    finally:
        process.close()


# --- the engine's process, the command line -------------------------------------------------------


@pytest.mark.release
def test_through_the_engines_process(engine: Backend, folder: str, tmp_path: Path) -> None:
    backend = BackendProcess(rules=RULES, default_model=None)
    try:
        expected = engine.transcribe(folder, (RATE, tone(5.0)), SHORT, language="de")
        soundfile.write(tmp_path / "tone.wav", tone(5.0), RATE, "FLOAT")
        stream = backend.transcribe_windows(
            folder, str(tmp_path / "tone.wav"), SHORT, language="de"
        )
        windows = list(stream)
        assert [window.cache.value for window in windows] == ["miss", "hit", "hit", "hit"]
        assert isinstance(stream.result, Transcription)
        assert stream.result.windows == tuple(windows)
        assert stream.result.text == expected.text

        again = backend.transcribe(folder, (RATE, tone(5.0)), SHORT, language="de")
        assert (again.text, again.cache.value) == (expected.text, "hit")
        assert backend.transcribe(folder, (RATE, tone(1.0))).options.max_new_tokens == 60
        with pytest.raises(InvalidRequest, match="recording is silent"):
            backend.transcribe(folder, (RATE, np.zeros(RATE)))
        with pytest.raises(InvalidRequest, match="at most 2 s"):
            list(backend.transcribe_windows(folder, (RATE, tone(3.0)), max_seconds=2.0))
        with pytest.raises(InvalidRequest, match="writes down speech"):
            backend.predict(folder, "Once upon a time")
    finally:
        backend.close()


@pytest.mark.release
def test_the_command_line(folder: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "one.wav", tone(3.0), RATE)
    soundfile.write(tmp_path / "two.flac", tone(1.0), RATE)
    files = ["one.wav", str(text_named_wav(tmp_path / "text.wav")), "two.flac"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "xla_backend", "transcribe", "--json", "--model", folder),
            *("--max-new-tokens", "8", "--language", "en", *files),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 2, "one file was at fault"
    assert done.stderr.splitlines() == [
        "error: The file 'text.wav' cannot be read as audio: send WAV, FLAC, OGG or MP3 (was it "
        "renamed, or cut off on its way?)."
    ]
    first, second = map(json.loads, done.stdout.splitlines())
    assert set(first) == {
        *("model", "text", "prompt_tokens", "new_tokens", "key", "cache", "batch_size", "timing"),
        *("finish_reason", "cached_tokens"),
        *("audio_s", "real_time_factor", "ttft_s", "tpot_s"),
    }
    assert (first["cache"], second["cache"]) == ("miss", "hit")
    assert (first["audio_s"], second["audio_s"]) == (3.0, 1.0)
    assert first["real_time_factor"] == pytest.approx(first["timing"]["total_s"] / 3.0)
    assert first["key"] == {"padded_length": 200, "num_beams": 1, "max_new_tokens": 16}


def test_results_are_made_of_plain_values(engine: Backend, folder: str) -> None:
    result = engine.transcribe(folder, (RATE, tone(3.0)), SHORT)
    values = dataclasses.asdict(result)
    assert json.loads(json.dumps(values)) is not None
    assert json.dumps(result.to_json())
