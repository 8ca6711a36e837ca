"""A recording of a visitor, from the click to its transcript."""

from pathlib import Path

import pytest

from playground.tabs.speech import runs
from playground.tabs.speech.examples import speech_examples
from playground.tabs.speech.runs import SpeechRun
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
    monkeypatch.setattr(runs, "time", backend.clock)
    shown = [run.windows for _ in run.steps(backend, waited_s=0.0)]
    assert [len(windows) for windows in shown] == [0, 3, 6, 9], "every 50 ms at most"
    assert shown[-1][:3] == shown[1]
    asked = (MODEL, "/nowhere/recording.wav", GenerationOptions(num_beams=2), "de", 600.0)
    assert backend.asked == [asked]


def test_the_true_words_are_known_of_examples_only(tmp_path: Path) -> None:
    example = speech_examples()[0]
    (tmp_path / "audio").write_bytes(example.sound)
    for recording, said in ((tmp_path / "audio", example.words), (tmp_path / "other", None)):
        run = a_run(str(recording))
        assert run.transcribed() is None
        list(run.steps(engine(1), waited_s=2.0))
        heard = run.transcribed()
        assert heard.expected == said
        assert heard.result.timing.queue_s == pytest.approx(2.0, abs=0.1)


def test_stop_ends_the_windows() -> None:
    run = a_run()
    progress = run.steps(engine(1000), waited_s=0.0)
    next(progress)
    next(progress)
    run.stop()
    assert len(list(progress)) <= 1
    heard = run.transcribed()
    assert heard.result.finish == "stopped"
