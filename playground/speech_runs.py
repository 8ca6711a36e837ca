"""The runs of the Speech tab: a recording that shall be written down.

Knows what the engine must be told about a recording. Must not know components or HTML; waiting and
stopping are those of every run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from playground.runs import BETWEEN_UPDATES_S, VisitorRun
from playground.speech_examples import said_in
from playground.speech_panel import Heard
from xla_backend import GenerationOptions, TranscribedWindow, Transcription
from xla_backend.audio import DEFAULT_MAX_SECONDS

if TYPE_CHECKING:
    from playground.runs import Stream
    from xla_backend import Backend


class SpeechRun(VisitorRun[TranscribedWindow, Transcription]):
    """A recording of one visitor, from the click to its transcript."""

    def __init__(
        self,
        model: str,
        recording: str,
        options: GenerationOptions,
        language: str | None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
    ) -> None:
        """Takes a file's path; only the engine's own reader ever opens it as sound."""
        super().__init__()
        self.model = model
        self.recording = recording
        self.options = options
        self.language = language
        self.max_seconds = max_seconds

    def _open(self, backend: Backend) -> Stream[TranscribedWindow, Transcription]:
        return backend.transcribe_windows(
            self.model,
            self.recording,
            self.options,
            language=self.language,
            max_seconds=self.max_seconds,
        )

    def progress(
        self, backend: Backend, waited_s: float
    ) -> Iterator[tuple[TranscribedWindow, ...]]:
        """Runs the request; yields the windows so far, again and again. `heard` comes after."""
        windows: list[TranscribedWindow] = []
        last = 0.0
        for window in self.pieces(backend, waited_s):
            windows.append(window)
            now = time.perf_counter()
            if now - last >= BETWEEN_UPDATES_S:
                last = now
                yield tuple(windows)

    def heard(self) -> Heard | None:
        """What there is to show at the end; None when the run never began."""
        result = self.result
        if result is None:
            return None
        return Heard(result, said_in(self.recording), self.other_s)
