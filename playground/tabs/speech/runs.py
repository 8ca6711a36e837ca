"""The runs of the Speech tab: one recording to transcribe.

Knows what the engine must be told about a recording. Must not know components or HTML; waiting and
stopping work as for every run.
"""

import time
from collections.abc import AsyncIterator

from playground.context.runs import BETWEEN_UPDATES_S, VisitorRun
from playground.tabs.speech.examples import words_of
from playground.tabs.speech.report import Transcribed
from xla_backend import AnyBackend, AnyStream, GenerationOptions, TranscribedWindow, Transcription
from xla_backend.interface.options import DEFAULT_MAX_SECONDS


class SpeechRun(VisitorRun[TranscribedWindow, Transcription]):
    """One visitor's recording, from the click to the transcript.

    Attributes:
        windows: those that are transcribed so far.
    """

    def __init__(
        self,
        model: str,
        recording: str,
        options: GenerationOptions,
        language: str | None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
    ) -> None:
        """Takes a file's path; only the engine decodes it."""
        super().__init__(model)
        self.recording = recording
        self.options = options
        self.language = language
        self.max_seconds = max_seconds
        self.windows: tuple[TranscribedWindow, ...] = ()

    def _open(self, backend: AnyBackend) -> AnyStream[TranscribedWindow, Transcription]:
        return backend.transcribe_windows(
            self.model,
            self.recording,
            self.options,
            language=self.language,
            max_seconds=self.max_seconds,
        )

    async def steps(self, backend: AnyBackend) -> AsyncIterator[object]:
        """Transcribes it; yields at every new state and with new `windows`. Afterwards see
        `transcribed`."""
        last = 0.0
        async for event in self.chunks(backend):
            now = time.perf_counter()
            if isinstance(event, TranscribedWindow):
                self.windows += (event,)
                if now - last < BETWEEN_UPDATES_S:
                    continue
                last = now
            yield event

    def transcribed(self) -> Transcribed | None:
        """The final result; None if the run never started."""
        result = self.result
        if result is None:
            return None
        return Transcribed(result, words_of(self.recording), self.other_s)
