"""Recordings on their way through the engine: windows, languages, what is refused.

Over a model that hears without XLA, except for languages, the engine's process and the command
line. What a real one writes is `test_parity_speech`'s business, files `test_audio`'s.
"""

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
from transformers import GenerationConfig

from tests import checkpoints
from tests.oracle import load_oracle
from tests.xla_backend.engine.answers import assert_adds_up
from tests.xla_backend.engine.fake_model import Refused, Steps, fake_backend
from xla_backend import (
    Backend,
    BackendProcess,
    BucketRules,
    GenerationOptions,
    InvalidRequest,
    ModelUnavailable,
    Transcription,
)
from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.speech_input import Guards
from xla_backend.engine.transcription import SILENCE, segments
from xla_backend.interface.requests import SpeechRequest, TextRequest

ROOT = Path(__file__).resolve().parents[3]
RATE, WINDOW_S = 16_000, 2.0
RULES = BucketRules(max_new_tokens=(8, 64))
SHORT = GenerationOptions(max_new_tokens=8)


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    """A rising tone, (n,) float32."""
    time = np.arange(round(seconds * rate)) / rate
    return np.float32(0.3 * np.sin(2 * np.pi * time * (200 + 200 * time)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoints.whisper(tmp_path_factory.mktemp("models") / "speech", seed=3))


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def engine(steps: Steps) -> Iterator[Backend]:
    with fake_backend(steps, rules=RULES, registry=Registry()) as backend:
        yield backend


def outcomes(result: Transcription) -> list[str | None]:
    return [window.cache and window.cache.value for window in result.windows]


def test_the_first_window_misses_and_all_others_hit(engine: Backend, folder: str) -> None:
    result = engine.transcribe(folder, (RATE, tone(7.0)), SHORT)
    later = len(result.windows) - 1
    assert later >= 3
    assert outcomes(result) == ["miss"] + ["hit"] * later
    assert (result.cache.value, result.speedup) == ("miss", None)
    [entry] = engine.cached_functions()
    assert entry.hits == later
    assert str(result.key) == "padded 200 · beams 1 · new 8"
    assert result.audio_s == 7.0
    assert result.real_time_factor == result.timing.total_s / 7.0
    assert result.text == " ".join(window.text for window in result.windows)
    assert result.new_tokens == sum(window.new_tokens for window in result.windows)
    assert result.prompt_tokens == pytest.approx(700, abs=later + 1), "frames of 10 ms"
    assert (result.windows[0].start_s, result.windows[-1].end_s) == (0, 7.0)
    for one, next_one in zip(result.windows, result.windows[1:], strict=False):
        assert 0 < one.end_s - one.start_s <= WINDOW_S
        assert one.end_s == next_one.start_s
    for timing in (result.timing, *(window.timing for window in result.windows)):
        assert_adds_up(timing)
    shares = [window.timing.total_s for window in result.windows]
    assert sum(shares) <= result.timing.total_s
    assert result.windows[0].timing.trace_s > 0
    assert all(window.timing.trace_s == 0 for window in result.windows[1:])
    again = engine.transcribe(folder, (RATE, tone(7.0)), SHORT)
    assert outcomes(again) == ["hit"] * (later + 1)
    assert again.text == result.text
    first_token_s = again.timing.prefill_s / (later + 1)
    assert again.speedup == pytest.approx(again.first_call.once_s / first_token_s + 1)
    assert pickle.loads(pickle.dumps(again)) == again
    assert json.dumps([dataclasses.asdict(again), again.to_json()])


def test_silent_windows_are_not_run(engine: Backend, folder: str) -> None:
    sound = np.concatenate([tone(1.8), np.zeros(4 * RATE, np.float32), tone(1.8)])
    result = engine.transcribe(folder, (RATE, sound), SHORT)
    found = outcomes(result)
    assert (found[0], found[-1]) == ("miss", "hit")
    silent = result.windows[found.index(None)]
    assert (silent.text, silent.new_tokens, silent.timing.run_s) == ("", 0, 0)
    assert result.audio_s == pytest.approx(7.6)
    start = round(result.windows[-1].start_s * RATE)
    alone = engine.transcribe(folder, (RATE, sound[start:]), SHORT)
    assert alone.text == result.windows[-1].text


@pytest.mark.parametrize(
    "sound", [np.zeros(5 * RATE), np.full(RATE, 0.2), tone(1.0) * SILENCE], ids=len
)
def test_in_silence_nobody_speaks(engine: Backend, steps: Steps, folder: str, sound: Any) -> None:
    """One window tells what a result tells, whatever the model makes up."""
    result = engine.transcribe(folder, (RATE, sound), SHORT, language="de")
    assert (result.text, result.tokens, result.finish, result.segments) == ("", (), "eos", [])
    assert outcomes(result) == ["miss"] + [None] * (len(result.windows) - 1)
    assert steps.done.count(f"prefill {folder}") == 1
    assert result.audio_s == len(sound) / RATE


def test_segments_are_what_is_said_between_timestamps() -> None:
    def parts(ids: list[int], first: int | None = 90) -> list[tuple[float, float, str]]:
        read = lambda ids: "".join(map(chr, ids))  # noqa: E731
        found = segments(ids, read, first, 0.5, (10.0, 13.0))
        return [(each.start_s, each.end_s, each.text) for each in found]

    assert parts([65, 66, 91, 92, 67, 94, 94, 68]) == [
        (10.0, 10.5, "AB"),
        (11.0, 12.0, "C"),
        (12.0, 13.0, "D"),
    ]
    assert parts([65, 99]) == [(10.0, 13.0, "A")]
    assert parts([91, 91]) == parts([]) == parts([32], None) == []
    assert parts([65, 91, 66], None) == [(10.0, 13.0, "A[B")]


@pytest.mark.parametrize(
    ("logprobs", "no_speech", "tries", "is_heard"),  # the checkpoint's threshold is -100
    [
        ([-90.0], 0.9, 1, True),
        ([-110.0, -50.0], 0.1, 2, True),  # once more, by sampling
        ([-110.0, -200.0, -150.0, -40.0], 0.1, 4, True),
        ([-110.0], 0.9, 1, False),  # the model says itself that nobody speaks
        ([-110.0] * 6, 0.1, 6, False),  # it takes none of its texts for likely
    ],
)
def test_noise_is_not_heard_as_words(
    engine: Backend,
    steps: Steps,
    folder: str,
    logprobs: list[float],
    no_speech: float,
    tries: int,
    is_heard: bool,
) -> None:
    steps.logprobs, steps.no_speech = [*logprobs, 0.0], no_speech
    result = engine.transcribe(folder, (RATE, tone(1.0)), SHORT, language="de")
    assert steps.done.count(f"prefill {folder}") == tries
    assert (bool(result.text), bool(result.tokens)) == (is_heard, is_heard)
    assert result.cache.value == "miss"
    beams = SHORT.replace(num_beams=2)
    steps.logprobs = [-110.0]
    assert not engine.transcribe(folder, (RATE, tone(1.0)), beams, language="de").text
    assert steps.done.count(f"prefill {folder}") == tries + 1, "beams are heard once"
    sampled = SHORT.replace(temperature=2.0)
    assert engine.transcribe(folder, (RATE, tone(1.0)), sampled, language="de").text


def test_a_checkpoint_may_have_guards_of_its_own() -> None:
    usual = Guards.read(GenerationConfig(no_timestamps_token_id=861))
    assert usual == Guards(860, 0.6, -1.0, 2.4)
    assert usual.repeats("again and " * 20) and not usual.repeats("How warm is the laundry room?")
    own = GenerationConfig(logprob_threshold=-0.5, no_speech_threshold=None)
    assert Guards.read(own) == Guards(None, 0.6, -0.5, 2.4)


@pytest.mark.parametrize("amplitude", [0.003, 0.1])
def test_the_model_in_the_box_hears_no_words_in_noise(backend: Backend, amplitude: float) -> None:
    noise = np.random.default_rng(0).uniform(-amplitude, amplitude, 2 * RATE)
    result = backend.transcribe("whisper-commands", (RATE, noise.astype(np.float32)))
    assert (result.text, result.finish) == ("", "eos")


def test_a_stop_ends_it_after_a_window(engine: Backend, steps: Steps, folder: str) -> None:
    whole = engine.transcribe(folder, (RATE, tone(7.0)), SHORT, language="de")
    gate = steps.hold("prefill")
    stream = engine.submit_speech(SpeechRequest(folder, (RATE, tone(7.0)), SHORT, "de"))
    gate.wait()
    second = steps.hold("prefill")
    gate.open()
    second.wait()
    stream.stop()
    second.open()
    assert [window.text for window in stream] == [window.text for window in whole.windows[:2]]
    assert (stream.result.finish, len(stream.result.windows)) == ("stopped", 2)
    assert stream.result.audio_s == whole.windows[1].end_s
    assert whole.finish == "length"
    refused = engine.submit_speech(SpeechRequest(folder, (RATE, tone(1.0)), SHORT), Refused())
    assert (list(refused), refused.result) == ([], None)


def test_row_beside_recording(engine: Backend, steps: Steps, folder: str, small_gpt2: Path) -> None:
    engine.transcribe(folder, (RATE, tone(1.0)), SHORT)
    text = TextRequest(str(small_gpt2), "abc", SHORT, cache_salt="mine")
    assert engine.submit(text).read_all()
    gate = steps.hold("prefill")
    parts = engine.submit_speech(SpeechRequest(folder, (RATE, tone(7.0)), SHORT))
    gate.wait()
    row = engine.submit(text)
    gate.open()
    assert row.read_all() and parts.read_all()
    last = [
        max(place for place, name in enumerate(steps.done) if name.startswith(step))
        for step in ("decode", "advance")
    ]
    assert last[0] < last[1]


def test_options_of_recordings(engine: Backend, folder: str) -> None:
    sound = (RATE, tone(3.0))
    full = engine.transcribe(folder, sound)
    assert full.options.max_new_tokens == 60, "64 positions less 4 of the decoder prompt"
    assert full.key.max_new_tokens == 64
    short = engine.transcribe(folder, sound, SHORT)
    assert outcomes(short) == ["reused"] * 2
    assert (short.key.max_new_tokens, short.requested_key.max_new_tokens) == (64, 8)
    most = engine.transcribe(folder, sound, GenerationOptions(max_new_tokens=1000))
    assert most.options.max_new_tokens == 60
    with pytest.raises(InvalidRequest, match="transcribed to its end: leave it out"):
        engine.transcribe(folder, sound, SHORT.replace(stop="a"))
    with pytest.raises(InvalidRequest, match=r"3 s long; at most 2 s"):
        engine.transcribe(folder, sound, SHORT, max_seconds=2.0)
    predicted = engine.predict_speech(folder)
    assert (predicted.key, predicted.prompt_tokens) == (full.key, WINDOW_S * 100)


def test_languages_by_any_name(engine: Backend, folder: str, tmp_path: Path) -> None:
    sound = (RATE, tone(1.0))
    for language in ("de", "German", "<|DE|>", "de-AT", "DE_de", "auto", ""):
        assert engine.transcribe(folder, sound, SHORT, language=language).language == "de"
    english = engine.transcribe(folder, sound, SHORT, language=" english ")
    assert english.language == "en"
    detected = engine.transcribe(folder, sound, SHORT)
    assert detected.language == "de"
    told = engine.transcribe(folder, sound, SHORT, language=detected.language)
    assert detected.text == told.text != english.text
    with pytest.raises(InvalidRequest, match=r"the language 'Klingon'. It knows: "):
        engine.transcribe(folder, sound, SHORT, language="Klingon")
    with pytest.raises(InvalidRequest, match="must be text, not int"):
        engine.transcribe(folder, sound, SHORT, language=5)  # type: ignore[arg-type]
    one = str(checkpoints.whisper(tmp_path / "english", multilingual=False, seed=4))
    result = engine.transcribe(one, sound, SHORT)
    assert result.language is None
    assert engine.transcribe(one, sound, SHORT, language="English").text == result.text
    with pytest.raises(InvalidRequest, match="It knows: en"):
        engine.transcribe(one, sound, SHORT, language="de")


@pytest.mark.parametrize(
    ("recording", "sentence"),
    [
        ((RATE, np.zeros(0)), "recording is empty"),
        ((RATE, tone(0.05)), r"only 0\.05 s long: at least 0\.1 s"),
        ((96_000, np.ones(1)), "s long: at least"),
        ((1000, np.ones(2 * 3600 * 1000, np.int8)), r"7,200 s long; at most 600 s"),
        ("missing.wav", "There is no audio file 'missing.wav': choose another file.$"),
    ],
)
def test_bad_audio_is_told(engine: Backend, folder: str, recording: Any, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        engine.transcribe(folder, recording, SHORT)


def test_each_kind_of_model_refuses_the_other_s_requests(
    engine: Backend, folder: str, small_gpt2: Path, tmp_path: Path
) -> None:
    for ask in (engine.generate, engine.predict):
        with pytest.raises(InvalidRequest, match="is a speech model: give it a recording"):
            ask(folder, "Once upon a time")
    for ask in (lambda name: engine.transcribe(name, (RATE, tone(1.0))), engine.predict_speech):
        with pytest.raises(InvalidRequest, match="works on text: choose a speech model"):
            ask(str(small_gpt2))
    name = checkpoints.whisper(tmp_path / "odd")
    path = name / "preprocessor_config.json"
    values = json.loads(path.read_text())
    for changes, sentence in (
        (
            {"chunk_length": 3, "n_samples": 48_000},
            "300 frames of 80 bands, and the model needs 200",
        ),
        ({"hop_length": "many"}, r"preprocessor_config\.json in .* cannot be used"),
    ):
        path.write_text(json.dumps(values | changes))
        with pytest.raises(ModelUnavailable, match=sentence):
            engine.load(str(name))


# --- a real model ---------------------------------------------------------------------------------


@pytest.mark.release
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
        parts = backend.transcribe(str(name), (RATE, sound), SHORT)
        assert parts.language == language
        told = backend.transcribe(str(name), (RATE, sound), SHORT, language=language)
        assert parts.text == told.text
    assert set(expected) == {"de", "en"}
    backend.close()


@pytest.mark.release
def test_through_the_engine_s_process(folder: str, tmp_path: Path) -> None:
    """What a recording will meet is known beforehand, there too."""
    process = BackendProcess(rules=RULES, default_model=None, store=tmp_path / "store")
    try:
        predicted = process.predict_speech(folder, SHORT)
        soundfile.write(tmp_path / "tone.wav", tone(5.0), RATE, "FLOAT")
        stream = process.transcribe_windows(
            folder, str(tmp_path / "tone.wav"), SHORT, language="de"
        )
        windows = list(stream)
        assert [window.cache.value for window in windows] == ["miss", "hit", "hit", "hit"]
        assert isinstance(stream.result, Transcription)
        assert stream.result.windows == tuple(windows)
        assert (predicted.outcome, predicted.key) == (stream.result.cache, stream.result.key)
        again = process.transcribe(folder, (RATE, tone(5.0)), SHORT, language="de")
        assert (again.text, again.cache.value) == (stream.result.text, "hit")
        process.clear(disk=False)
        assert process.predict_speech(folder, SHORT).outcome.value == "disk"
        restored = process.transcribe(folder, (RATE, tone(5.0)), SHORT, language="de")
        assert (restored.text, restored.cache.value) == (again.text, "disk")
        with pytest.raises(InvalidRequest, match="at most 2 s"):
            list(process.transcribe_windows(folder, (RATE, tone(3)), max_seconds=2))
        with pytest.raises(InvalidRequest, match="is a speech model"):
            process.predict(folder, "Once upon a time")
    finally:
        process.close()


@pytest.mark.release
def test_the_command_line(folder: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "one.wav", tone(3.0), RATE)
    soundfile.write(tmp_path / "two.flac", tone(1.0), RATE)
    (tmp_path / "text.wav").write_text("This is no sound.")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "xla_backend", "transcribe", "--json", "--model", folder),
            *("--max-new-tokens", "8", "--language", "en", "one.wav", "text.wav", "two.flac"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 2, "one file was at fault"
    assert done.stderr.splitlines() == [
        "error: The file 'text.wav' cannot be read as audio: send WAV, FLAC, OGG, MP3, M4A or "
        "WebM (was it renamed, or cut off on its way?)."
    ]
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["cache"], second["cache"]) == ("miss", "hit")
    assert (first["audio_s"], second["audio_s"]) == (3.0, 1.0)
    assert first["real_time_factor"] == pytest.approx(first["timing"]["total_s"] / 3.0)
    assert first["key"] == {"padded_length": 200, "num_beams": 1, "max_new_tokens": 16}
