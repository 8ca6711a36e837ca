"""The request for a transcription: its fields, the uploaded recording, its answer.

Knows OpenAI's fields for it. Must not know how it is run.
"""

from __future__ import annotations

import itertools
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import UploadFile
from pydantic import ConfigDict, Field

from xla_backend.interface.options import (
    MAX_NEW_TOKENS,
    MAX_NUM_BEAMS,
    WINDOW_TOKENS,
    GenerationOptions,
)
from xla_backend.interface.results import Transcription
from xla_backend.openai_api.answers import AudioUsage, Segment, Transcript, timings
from xla_backend.openai_api.errors import NotSupported
from xla_backend.openai_api.fields import Fields

_UNSUPPORTED = {
    "stream": "Transcriptions are not streamed: leave stream out.",
    "chunking_strategy": "Recordings are cut into windows: leave chunking_strategy out.",
    "include[]": "logprobs of recordings are not supported: leave include out.",
}


class TranscriptionForm(Fields):
    """The fields of the form."""

    model_config = ConfigDict(strict=False, populate_by_name=True)

    file: UploadFile = Field(description="WAV, FLAC, OGG, MP3, M4A or WebM")
    model: str | None = Field(None, description="a speech model that /v1/models lists")
    language: str | None = Field(None, description='as "en"; empty to detect it')
    response_format: Literal["json", "text", "verbose_json", "srt", "vtt"] = "json"
    granularities: list[Literal["segment"]] = Field(
        [], alias="timestamp_granularities[]", description="segment; words have no times"
    )
    temperature: float = Field(0.0, description="0 takes the most likely text")
    max_tokens: Annotated[int, Field(ge=1, le=MAX_NEW_TOKENS)] = Field(
        WINDOW_TOKENS, description="of this engine: most tokens for each window"
    )
    num_beams: Annotated[int, Field(ge=1, le=MAX_NUM_BEAMS)] = Field(
        1, description="of this engine: beams searched"
    )

    @classmethod
    def translated(cls, values: dict[str, Any]) -> dict[str, Any]:
        values = dict(values)
        for name, sentence in _UNSUPPORTED.items():
            if values.pop(name, None) not in (None, "", "false", "False", "0", "auto"):
                raise NotSupported(name, sentence)
        if values.get("response_format") == "diarized_json":
            raise NotSupported(
                "response_format", "Speakers are not distinguished: ask for verbose_json."
            )
        values["granularities"] = values.pop("timestamp_granularities[]", ())
        if "word" in values["granularities"]:
            raise NotSupported(
                "timestamp_granularities", "Words have no times here: ask only for segment."
            )
        return values

    def options(self) -> GenerationOptions:
        """The options for the engine.

        Raises:
            InvalidRequest: an option is out of range.
        """
        return GenerationOptions(
            max_new_tokens=self.max_tokens, num_beams=self.num_beams, temperature=self.temperature
        )

    @property
    def has_times(self) -> bool:
        """Whether the answer has times."""
        return self.response_format in ("verbose_json", "srt", "vtt")

    def text(self, result: Transcription) -> str | None:
        """The answer in formats other than JSON; None for JSON."""
        if self.response_format == "text":
            return result.text + "\n"
        if self.response_format not in ("srt", "vtt"):
            return None
        mark = "," if self.response_format == "srt" else "."
        cues = [
            f"{_clock(each.start_s, mark)} --> {_clock(each.end_s, mark)}\n{each.text}\n"
            for each in result.segments
        ]
        if self.response_format == "vtt":
            return "\n".join(["WEBVTT\n", *cues])
        return "\n".join(f"{number}\n{cue}" for number, cue in enumerate(cues, 1))

    def answer(self, result: Transcription) -> Transcript:
        """The answer in JSON."""
        transcript = Transcript(
            text=result.text,
            usage=AudioUsage(type="duration", seconds=result.audio_s),
            timings=timings(result),
        )
        if self.response_format == "verbose_json":
            transcript.task = "transcribe"
            # Whisper's models for one language have no name for it, and are for English.
            transcript.language = result.language or "en"
            transcript.duration = result.audio_s
            transcript.segments = list(_segments(result))
        return transcript.model_copy(update=self.ignored)


def _segments(result: Transcription) -> Iterator[Segment]:
    ids = itertools.count()
    for window in result.windows:
        text = window.text.encode()
        for each in window.segments:
            yield Segment(
                id=next(ids),
                seek=round(window.start_s * 100),
                start=each.start_s,
                end=each.end_s,
                text=each.text,
                tokens=list(each.token_ids),
                temperature=window.temperature,
                avg_logprob=window.mean_logprob,
                compression_ratio=len(text) / len(zlib.compress(text)),
                no_speech_prob=window.no_speech,
            )


def _clock(seconds: float, mark: str) -> str:
    """A time in the form of subtitles, with a mark before the milliseconds."""
    minutes, ms = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{ms // 1000:02}{mark}{ms % 1000:03}"


@contextmanager
def saved(upload: UploadFile) -> Iterator[str]:
    """Writes the upload to a temporary file for the engine's process; yields its path, which has
    the upload's name for errors."""
    name = re.sub(r"[^\w. -]", "_", Path(upload.filename or "").name)[-60:].strip(". ")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name or "recording")
        with path.open("wb") as file:
            shutil.copyfileobj(upload.file, file)
        yield str(path)
