"""A recording of a visitor, from the click to its transcript."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from playground.tabs.speech import runs
from playground.tabs.speech.examples import speech_examples
from playground.tabs.speech.runs import SpeechRun
from tests.playground.carrying_out import steps
from tests.playground.fake_backend import FakeBackend
from xla_backend import GenerationOptions

MODEL = "openai/whisper-tiny"


def engine(windows: int) -> FakeBackend:
    """One that hears so many windows in every recording, 20 ms each."""
    backend = FakeBackend()
    backend.windows, backend.piece_s = windows, 0.02
    return backend


def a_run(recording: str = "/nowhere/recording.wav") -> SpeechRun:
    return SpeechRun(MODEL, recording, GenerationOptions(num_beams=2), "de")


def test_windows_are_shown_as_they_come_but_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, run = engine(9), a_run()
    ticks = itertools.count(0.0, 0.02)
    monkeypatch.setattr(runs, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    counts: list[int] = []
    steps(run, backend, lambda step: counts.append(len(run.windows)))
    shown = sorted({*counts} - {0})
    assert len(shown) >= 3
    assert all(later - earlier == 3 for earlier, later in itertools.pairwise(shown)), (
        "every 50 ms at most, of 20 ms each"
    )
    asked = (MODEL, "/nowhere/recording.wav", GenerationOptions(num_beams=2), "de", 600.0)
    assert backend.asked == [asked]


def test_the_true_words_are_known_of_examples_only(tmp_path: Path) -> None:
    example = speech_examples()[0]
    (tmp_path / "audio").write_bytes(example.sound)
    for recording, said in ((tmp_path / "audio", example.words), (tmp_path / "other", None)):
        run = a_run(str(recording))
        assert run.transcribed() is None
        steps(run, engine(1))
        heard = run.transcribed()
        assert heard.expected == said


def test_stop_ends_the_windows() -> None:
    backend, run = engine(1000), a_run()
    backend.hold("text")
    backend.write("one")
    steps(run, backend, lambda step: run.windows and run.stop())
    heard = run.transcribed()
    assert [each.text for each in heard.result.windows] == ["one"]
    assert heard.result.finish == "stopped"
