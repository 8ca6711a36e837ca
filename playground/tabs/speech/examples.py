"""The recordings of the Speech tab: a voice that comes with Gradio, the files of the bundled model,
and what is said in them.

Knows where they lie. Must not know components. It never decodes an upload; it only compares the
bytes of small files with those of the examples.
"""

import functools
import io
import json
import logging
from dataclasses import dataclass
from pathlib import Path

import gradio
import numpy as np
import soundfile

from xla_backend import InvalidRequest
from xla_backend.checkpoints import audio
from xla_backend.checkpoints.models import BUNDLED_FOLDER, DEFAULT_SPEECH_MODEL

FOLDER = BUNDLED_FOLDER / DEFAULT_SPEECH_MODEL / "examples"
_VOICE = Path(gradio.__file__).parent / "media_assets" / "audio" / "heath_ledger.mp3"
_QUOTE = "If you're good at something, never do it for free."
_RATE = 16_000
_PAUSE_S = 0.4

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpeechExample:
    """A recording and its true text."""

    name: str  # shown to visitors
    sound: bytes  # the bytes of an audio file
    words: str  # what is said in it


@functools.cache
def speech_examples() -> tuple[SpeechExample, ...]:
    """Real speech, the held-out commands, and these in a row; empty where files are missing."""
    try:
        texts = json.loads((FOLDER / "texts.json").read_text(encoding="utf-8"))
        single = [
            SpeechExample(f"Command {number}", (FOLDER / file).read_bytes(), words)
            for number, (file, words) in enumerate(texts.items(), start=1)
        ]
        row = _in_a_row([FOLDER / file for file in texts])
        voice = SpeechExample("Real speech", _VOICE.read_bytes(), _QUOTE)
    except (OSError, ValueError, AttributeError, InvalidRequest):
        logger.warning("The example recordings in %s cannot be used", FOLDER, exc_info=True)
        return ()
    words = " ".join(example.words for example in single)
    return (voice, *single, SpeechExample(f"All {len(single)} in a row", row, words))


def words_of(recording: Path | str) -> str | None:
    """What is said in a recording if it is an example; None otherwise."""
    path = Path(recording)
    try:
        size = path.stat().st_size
        alike = [example for example in speech_examples() if len(example.sound) == size]
        if not alike:
            return None
        sound = path.read_bytes()
    except OSError:
        return None
    return next((example.words for example in alike if example.sound == sound), None)


def _in_a_row(files: list[Path]) -> bytes:
    """The recordings one after the other with short pauses, as a 16-bit mono WAV file."""
    pause = np.zeros(round(_PAUSE_S * _RATE), np.float32)
    pieces = [piece for file in files for piece in (audio.read(file, _RATE), pause)]
    file = io.BytesIO()
    soundfile.write(file, np.concatenate(pieces[:-1]), _RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()
