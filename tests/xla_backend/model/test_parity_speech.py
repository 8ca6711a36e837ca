"""Token for token: what is special to Whisper through `Backend.transcribe`.

Against eager `model.generate`; plain greedy and beam search is `test_parity_matrix`'s business.
"""

import dataclasses
from collections.abc import Callable

import pytest

from tests.xla_backend.model.parity import NEW_TOKENS, RATE, Pair
from xla_backend import GenerationOptions
from xla_backend.interface.requests import SpeechRequest

pytestmark = pytest.mark.release


@pytest.fixture(scope="module", params=["Whisper multilingual", "Whisper English-only"])
def pair(request: pytest.FixtureRequest, pair_of: Callable[[str], Pair]) -> Pair:
    return pair_of(request.param)


def test_suppression_changes_the_texts(pair: Pair) -> None:
    settings = pair.settings
    for samples in pair.inputs:
        ids = [token.id for token in pair.ours(samples).tokens]
        assert ids[0] not in settings["begin_suppress_tokens"]
        assert not set(ids) & set(settings["suppress_tokens"])


@pytest.mark.parametrize("num_beams", [1, 2])
def test_penalties(pair: Pair, num_beams: int) -> None:
    pair.assert_same_text(pair.inputs[1], num_beams=num_beams, repetition_penalty=1.5)
    for length_penalty in (-1.0, 2.0):
        pair.assert_same_text(pair.inputs[2], num_beams=num_beams, length_penalty=length_penalty)


def test_sampling_follows_its_seed(pair: Pair) -> None:
    texts = [pair.ours(pair.inputs[1], temperature=2.0, seed=seed).text for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_times_come_from_the_same_function(pair: Pair) -> None:
    before = [pair.ours(samples).tokens for samples in pair.inputs]
    functions = len(pair.backend.cached_functions())
    for samples in pair.inputs:
        request = SpeechRequest(
            str(pair.folder), (RATE, samples), GenerationOptions(max_new_tokens=NEW_TOKENS)
        )
        stream = pair.backend.submit_speech(dataclasses.replace(request, has_times=True))
        result = stream.read_all()
        times = [time for each in result.segments for time in (each.start_s, each.end_s)]
        assert times == sorted(times) and times[0] >= 0 and times[-1] <= result.audio_s
        assert " ".join(each.text for each in result.segments)
    assert len(pair.backend.cached_functions()) == functions
    assert [pair.ours(samples).tokens for samples in pair.inputs] == before


@pytest.mark.parametrize("pair", ["Whisper multilingual"], indirect=True)
def test_another_language_runs_the_same_function(pair: Pair) -> None:
    english = [pair.ours(samples).text for samples in pair.inputs]
    before = pair.backend.cached_functions()
    german = dataclasses.replace(pair, language="de")
    results = [german.assert_same_text(samples) for samples in pair.inputs]
    assert [result.cache.value for result in results] == ["hit"] * 3
    assert len(pair.backend.cached_functions()) == len(before)
    assert [result.text for result in results] != english
