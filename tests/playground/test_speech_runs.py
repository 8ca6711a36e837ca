"""A recording of a visitor, from the click to its transcript."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from playground.speech_examples import speech_examples
from playground.speech_runs import SpeechRun
from tests.playground.samples import transcription, window
from xla_backend import EngineStatus, GenerationOptions, TranscribedWindow


class Windows:
    """Yields windows until it is stopped."""

    def __init__(self, number: int) -> None:
        self._left = [window(start_s=4.0 * i, end_s=4.0 * (i + 1)) for i in range(number)]
        self.result: Any = None

    def __iter__(self) -> Iterator[TranscribedWindow]:
        return self

    def __next__(self) -> TranscribedWindow:
        time.sleep(0.02)
        if not self._left:
            self.result = transcription()
            raise StopIteration
        return self._left.pop(0)

    def stop(self) -> None:
        self._left.clear()


class Engine:
    """What a speech run uses of a backend."""

    def __init__(self, number: int) -> None:
        self.status = EngineStatus("ready")
        self.asked: tuple[Any, ...] = ()
        self._number = number

    def transcribe_windows(self, *asked: Any, **more: Any) -> Windows:
        self.asked = (*asked, more)
        return Windows(self._number)


def a_run(recording: str = "/nowhere/recording.wav") -> SpeechRun:
    return SpeechRun("whisper-commands", recording, GenerationOptions(num_beams=2), "de")


def test_windows_are_shown_as_they_come_but_not_too_often() -> None:
    engine = Engine(9)
    run = a_run()
    shown = list(run.progress(engine, waited_s=0.0))
    assert [len(windows) for windows in shown] == sorted({len(windows) for windows in shown})
    assert 2 <= len(shown) <= 5
    assert shown[-1][: len(shown[0])] == shown[0]
    assert engine.asked == (
        "whisper-commands",
        "/nowhere/recording.wav",
        GenerationOptions(num_beams=2),
        {"language": "de", "max_seconds": 600.0},
    )


def test_what_is_said_is_known_of_examples_only(tmp_path: Any) -> None:
    example = speech_examples()[0]
    (tmp_path / "audio").write_bytes(example.sound)
    for recording, said in ((tmp_path / "audio", example.said), (tmp_path / "other", None)):
        run = a_run(str(recording))
        assert run.heard() is None
        list(run.progress(Engine(1), waited_s=2.0))
        heard = run.heard()
        assert heard is not None
        assert heard.said == said
        assert heard.result.timing.queue_s == pytest.approx(2.0, abs=0.1)


def test_stop_ends_the_windows() -> None:
    run = a_run()
    progress = run.progress(Engine(1000), waited_s=0.0)
    next(progress)
    run.stop()
    assert len(list(progress)) <= 1
    assert run.heard() is not None
