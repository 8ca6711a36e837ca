"""The recordings that ship, and what is known to be said in them."""

import io
import json
from pathlib import Path

import pytest
import soundfile

from playground.tabs.speech import examples as module
from playground.tabs.speech.examples import FOLDER, speech_examples, words_of


def test_every_recording_that_ships_is_an_example_and_the_last_one_is_all_of_them() -> None:
    texts = json.loads((FOLDER / "texts.json").read_text())
    voice, *single, row = speech_examples()
    assert soundfile.info(io.BytesIO(voice.sound)).duration == pytest.approx(3.5, abs=0.1)
    assert [example.words for example in single] == list(texts.values())
    assert [example.sound for example in single] == [(FOLDER / f).read_bytes() for f in texts]
    assert row.words == " ".join(texts.values())
    seconds = [soundfile.info(io.BytesIO(example.sound)).duration for example in single]
    pauses = 0.4 * (len(single) - 1)
    assert soundfile.info(io.BytesIO(row.sound)).duration == pytest.approx(sum(seconds) + pauses)
    assert len({example.name for example in speech_examples()}) == len(single) + 2


def test_a_recording_is_known_by_what_is_in_it_and_not_by_its_name(tmp_path: Path) -> None:
    for example in speech_examples():
        (tmp_path / "upload").write_bytes(example.sound)
        assert words_of(tmp_path / "upload") == example.words
    first = speech_examples()[0].sound
    changed = first[:-1] + bytes([first[-1] ^ 1])
    (tmp_path / "command-1.flac").write_bytes(changed)
    assert words_of(tmp_path / "command-1.flac") is None
    assert words_of(tmp_path / "missing.wav") is None


def test_without_recordings_no_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speech_examples.cache_clear()
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    assert speech_examples() == ()
    (tmp_path / "texts.json").write_text('{"a.wav": "one"}')
    (tmp_path / "a.wav").write_bytes(b"no sound")
    speech_examples.cache_clear()
    assert speech_examples() == ()
    speech_examples.cache_clear()
