"""The request for a transcription: its fields, the uploaded recording, its answer.

Knows OpenAI's fields for it. Must not know how it is run.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field, model_validator

from xla_backend.interface.options import (
    MAX_NEW_TOKENS,
    MAX_NUM_BEAMS,
    WINDOW_TOKENS,
    GenerationOptions,
)
from xla_backend.interface.results import Transcription
from xla_backend.openai_api.answers import AudioUsage, Segment, Transcript, timings
from xla_backend.openai_api.errors import NotSupported

_UNSUPPORTED = {
    "stream": "Transcriptions are not streamed: leave stream out.",
    "prompt": "A prompt is not supported for recordings: leave it out.",
    "chunking_strategy": "Recordings are cut into windows: leave chunking_strategy out.",
    "include[]": "logprobs of recordings are not supported: leave include out.",
}


class TranscriptionForm(BaseModel):
    """The fields of the form."""

    model_config = ConfigDict(extra="ignore", arbitrary_types_allowed=True)

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

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        for name, sentence in _UNSUPPORTED.items():
            if values.get(name) not in (None, "", "false", "False", "auto"):
                raise NotSupported(name, sentence)
        if values.get("response_format") == "diarized_json":
            raise NotSupported(
                "response_format", "Speakers are not distinguished: ask for verbose_json."
            )
        if "word" in (values.get("timestamp_granularities[]") or ()):
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
            transcript.language = result.language
            transcript.duration = result.audio_s
            transcript.segments = [
                Segment(id=place, start=each.start_s, end=each.end_s, text=each.text)
                for place, each in enumerate(result.segments)
            ]
        return transcript


def _clock(seconds: float, mark: str) -> str:
    """A time in the form of subtitles, with a mark before the milliseconds."""
    minutes, ms = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{ms // 1000:02}{mark}{ms % 1000:03}"


@contextmanager
def saved(upload: UploadFile) -> Iterator[str]:
    """Writes the upload to a temporary file for the engine's process; yields its path."""
    suffix = re.sub(r"[^\w.]", "", Path(upload.filename or "").suffix)[:10]
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        shutil.copyfileobj(upload.file, file)
        file.flush()
        yield file.name
