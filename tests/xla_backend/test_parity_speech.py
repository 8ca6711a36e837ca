"""Token for token: Whisper through `Backend.transcribe` against eager `model.generate`.

The same way as in `test_parity`. Transformers counts the forced tokens of the decoder prompt as
new ones, so it is given that many more.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from transformers import WhisperFeatureExtractor

from tests import checkpoints
from xla_backend import Backend, BucketRules, GenerationOptions, Transcription

NEW_TOKENS = 12
RATE = 16_000
SEEDS = {"multilingual": 3, "English-only": 4}
"""Seeds of weights after which the text does not repeat itself."""


def sound(number: int, seconds: float = 1.8) -> np.ndarray:
    """A rising tone, a pulse train or noise under a slow wave: (n,) float32."""
    time = np.arange(round(seconds * RATE)) / RATE
    noise = np.random.default_rng(number).standard_normal(len(time))
    return np.float32(
        [
            0.3 * np.sin(2 * np.pi * time * (200 + 200 * time)),
            0.2 * np.sign(np.sin(2 * np.pi * 110 * time)) * (time < 1) + 0.01 * noise,
            0.1 * noise * np.sin(2 * np.pi * 3 * time) ** 2,
        ][number]
    )


SOUNDS = [sound(number) for number in range(3)]


@dataclasses.dataclass(frozen=True)
class Pair:
    """One model twice: through the backend, and as Transformers runs it."""

    backend: Backend
    folder: Path
    language: str | None
    oracle: Any

    @property
    def forced(self) -> int:
        """How many tokens of the decoder prompt follow its start token."""
        return 3 if self.language else 1

    def ours(self, samples: np.ndarray, **options: Any) -> Transcription:
        """The backend's answer."""
        return self.backend.transcribe(
            str(self.folder),
            (RATE, samples),
            GenerationOptions(**{"max_new_tokens": NEW_TOKENS, **options}),
            language=self.language,
        )

    def theirs(self, samples: np.ndarray, **options: Any) -> list[int]:
        """The oracle's tokens after the decoder prompt, up to the first that ends a text."""
        extractor = WhisperFeatureExtractor.from_pretrained(self.folder)
        features = extractor(samples, sampling_rate=RATE, return_tensors="np")["input_features"]
        options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, **options}
        options["max_new_tokens"] += self.forced
        if self.language:
            options |= {"language": self.language, "task": "transcribe"}
        written = self.oracle.generate(tf.constant(features), **options)
        ids = written.numpy()[0, 1 + self.forced :].tolist()
        ends = np.atleast_1d(self.oracle.generation_config.eos_token_id)
        stops = [place for place, token in enumerate(ids) if token in ends]
        return ids[: stops[0] + 1] if stops else ids

    def assert_same_text(self, samples: np.ndarray, **options: Any) -> Transcription:
        """Both write the same tokens; returns the backend's answer."""
        result = self.ours(samples, **options)
        assert [token.id for token in result.tokens] == self.theirs(samples, **options)
        return result


@pytest.fixture(scope="module", params=SEEDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    is_multilingual = request.param == "multilingual"
    folder = checkpoints.whisper(
        tmp_path_factory.mktemp("whisper"),
        multilingual=is_multilingual,
        seed=SEEDS[request.param],
        decoder_layers=3,
        decoder_attention_heads=6,
    )
    rules = BucketRules(max_new_tokens=(NEW_TOKENS,))
    language = "en" if is_multilingual else None
    pair = Pair(Backend(rules=rules), folder, language, checkpoints.oracle(folder))
    change(
        folder,
        # A random model would never write the end: texts end at tokens that it likes to write.
        eos_token_id=[pair.theirs(SOUNDS[0])[4], pair.theirs(SOUNDS[1])[6]],
        # And it must do without others that it likes.
        suppress_tokens=[pair.theirs(SOUNDS[0])[1]],
        begin_suppress_tokens=[pair.theirs(SOUNDS[number])[0] for number in (0, 2)],
    )
    return dataclasses.replace(pair, oracle=checkpoints.oracle(folder))


def change(folder: Path, **values: Any) -> None:
    """Writes values into a generation config."""
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("num_beams", [1, 2, 4])
@pytest.mark.parametrize("number", range(3))
def test_sounds(pair: Pair, number: int, num_beams: int) -> None:
    result = pair.assert_same_text(SOUNDS[number], num_beams=num_beams)
    assert result.key.padded_length == 200
    assert result.new_tokens > 1
    assert len(result.windows) == 1


def test_suppression_changes_the_texts(pair: Pair) -> None:
    settings = json.loads((pair.folder / "generation_config.json").read_text())
    for samples in SOUNDS:
        ids = [token.id for token in pair.ours(samples).tokens]
        assert ids[0] not in settings["begin_suppress_tokens"]
        assert not set(ids) & set(settings["suppress_tokens"])


@pytest.mark.parametrize("num_beams", [1, 4])
def test_penalties(pair: Pair, num_beams: int) -> None:
    pair.assert_same_text(SOUNDS[1], num_beams=num_beams, repetition_penalty=1.5)
    for length_penalty in (-1.0, 2.0):
        pair.assert_same_text(SOUNDS[2], num_beams=num_beams, length_penalty=length_penalty)


def test_sampling_follows_its_seed(pair: Pair) -> None:
    texts = [pair.ours(SOUNDS[1], temperature=2.0, seed=seed).text for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


@pytest.mark.parametrize("pair", ["multilingual"], indirect=True)
def test_another_language_runs_the_same_function(pair: Pair) -> None:
    before = pair.backend.entries()
    german = dataclasses.replace(pair, language="de")
    results = [german.assert_same_text(samples) for samples in SOUNDS]
    assert [result.cache.value for result in results] == ["hit"] * 3
    assert len(pair.backend.entries()) == len(before)
    assert any(result.text != pair.ours(SOUNDS[i]).text for i, result in enumerate(results))
