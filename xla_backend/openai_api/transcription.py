"""The request for a transcription: its fields, the uploaded recording, its answer.

Knows OpenAI's fields for it. Must not know how it is run.
"""

from __future__ import annotations

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

_NO_TIMES = "The models here tell no timestamps, so there are no {what}. Ask for verbose_json."
_UNSUPPORTED = {
    "stream": "Transcriptions are not streamed: leave stream out.",
    "prompt": "A prompt is not supported for recordings: leave it out.",
    "chunking_strategy": "Recordings are cut into windows: leave chunking_strategy out.",
    "include[]": "logprobs of recordings are not supported: leave include out.",
}


class TranscriptionForm(BaseModel):
    """The fields of the form; numbers are text there."""

    model_config = ConfigDict(extra="ignore", arbitrary_types_allowed=True)

    file: UploadFile = Field(description="WAV, FLAC, OGG, MP3, M4A or WebM")
    model: str | None = Field(None, description="a speech model that /v1/models lists")
    language: str | None = Field(None, description='as "en"; empty to let the model hear it')
    response_format: Literal["json", "text", "verbose_json"] = "json"
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
        if (form := values.get("response_format")) in ("srt", "vtt", "diarized_json"):
            raise NotSupported("response_format", _NO_TIMES.format(what=f"{form} files"))
        if values.get("timestamp_granularities[]") not in (None, "segment"):
            raise NotSupported("timestamp_granularities", _NO_TIMES.format(what="times of words"))
        return values

    def options(self) -> GenerationOptions:
        """What the engine is asked.

        Raises:
            InvalidRequest: an option is out of range.
        """
        return GenerationOptions(
            max_new_tokens=self.max_tokens, num_beams=self.num_beams, temperature=self.temperature
        )

    def answer(self, result: Transcription) -> Transcript:
        """The answer in the form that was asked for."""
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
                Segment(id=place, start=window.start_s, end=window.end_s, text=window.text)
                for place, window in enumerate(result.windows)
            ]
        return transcript


@contextmanager
def kept(upload: UploadFile) -> Iterator[str]:
    """The path of a file that holds the upload, which the engine's process reads; then it goes."""
    suffix = Path(upload.filename or "").suffix[:10]
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        shutil.copyfileobj(upload.file, file)
        file.flush()
        yield file.name
