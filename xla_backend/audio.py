"""Recordings: from a file or raw samples to mono float32 at the rate a model wants, cut to windows.

Knows sample formats, rates, channels and every way in which a recording can be unusable. Must not
know models, features or TensorFlow. Whatever comes in, either a right array comes out or an
`InvalidRequest` whose text says what is wrong and what to do.
"""

from __future__ import annotations

import math
import numbers
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from xla_backend.errors import InvalidRequest
from xla_backend.options import shown

AudioInput = str | os.PathLike | tuple[int, np.ndarray]

DEFAULT_MAX_SECONDS = 600.0
MIN_RATE, MAX_RATE = 1_000, 768_000
MAX_CHANNELS = 64
_FORMATS = "WAV, FLAC, OGG or MP3"
_BLOCK = 65_536  # frames decoded at a time: a header that lies about the length costs nothing


@dataclass(frozen=True)
class Window:
    """A piece of a recording that a model takes at once.

    start_s: where it begins in the recording, seconds.
    samples: (n,) float32, at most as long as the window that was asked for.
    """

    start_s: float
    samples: np.ndarray


def read(audio: AudioInput, rate: int, max_seconds: float = DEFAULT_MAX_SECONDS) -> np.ndarray:
    """Reads a recording as mono float32 in -1..1 at `rate`.

    Args:
        audio: a file's path, or (rate, samples) with samples shaped (n,) or (n, channels) as
            int8, uint8, int16, int32 or floating point.
        rate: the rate that the model wants, in Hz.
        max_seconds: longer recordings are refused before they are decoded whole.

    Returns:
        (n,) float32, n >= 1.

    Raises:
        InvalidRequest: with a sentence for the person who sent the recording.
    """
    if isinstance(audio, str | os.PathLike):
        source_rate, samples = _read_file(Path(audio), max_seconds)
    elif isinstance(audio, tuple | list) and len(audio) == 2:
        source_rate, samples = audio
    else:
        raise InvalidRequest(
            "Audio must be a file's path or a pair (rate in Hz, samples): "
            f"this is {type(audio).__name__}."
        )
    source_rate = _checked_rate(source_rate)
    mono = _mono(samples, source_rate, max_seconds)
    return resample(mono, source_rate, rate)


def resample(samples: np.ndarray, source_rate: float, rate: float) -> np.ndarray:
    """Resamples (n,) samples to (m,) float32; soxr's high quality, which also filters aliases."""
    if source_rate == rate:
        return np.ascontiguousarray(samples, dtype=np.float32)
    resampled = soxr.resample(np.asarray(samples, dtype=np.float32), source_rate, rate)
    if not len(resampled):  # a handful of samples at a high rate: less than one sample of ours
        resampled = np.zeros(1, np.float32)
    # A full-scale square wave overshoots by the filter's ringing; the models expect -1..1.
    return np.clip(resampled, -1.0, 1.0)


def windows(samples: np.ndarray, rate: int, window_s: float) -> list[Window]:
    """Cuts a recording into windows of at most `window_s` seconds; joined, they are the recording.

    Where it does not fit into one window, the cut falls on the quietest moment of the window's
    second half, so that a word is seldom split.
    """
    if not window_s > 0 or round(window_s * rate) < 1:
        raise ValueError(f"a window of {window_s} s at {rate} Hz holds no samples")
    size = round(window_s * rate)
    cuts = [0]
    while len(samples) - cuts[-1] > size:
        cuts.append(cuts[-1] + _quietest(samples[cuts[-1] : cuts[-1] + size], rate))
    ends = [*cuts[1:], len(samples)]
    return [Window(start / rate, samples[start:end]) for start, end in zip(cuts, ends, strict=True)]


def _quietest(window: np.ndarray, rate: int) -> int:
    """The index in the window's second half around which a fifth of a second is quietest."""
    first = len(window) // 2
    span = min(max(1, rate // 5), len(window) - first)
    energy = np.cumsum(np.concatenate([[0.0], np.square(window[first:], dtype=np.float64)]))
    loudness = energy[span:] - energy[:-span]
    # The last of equals: a stretch of digital silence gives the longest window. Rounding in the
    # running sum must not decide between equals, hence the margin.
    margin = 1e-9 * max(energy[-1], 1e-12)
    quiet = np.flatnonzero(loudness <= loudness.min() + margin)
    return max(1, first + int(quiet[-1]) + span // 2)


def _read_file(path: Path, max_seconds: float) -> tuple[int, np.ndarray]:
    """Decodes a file to (rate, (n, channels) float32), never much more than `max_seconds` of it."""
    try:
        if not path.is_file():
            raise InvalidRequest(f"There is no audio file {path.name!r}: choose another file.")
        if path.stat().st_size == 0:
            raise InvalidRequest(f"The file {path.name!r} is empty: choose another file.")
    except InvalidRequest:  # which is a ValueError, too
        raise
    except (OSError, ValueError) as error:  # a name too long, a null byte, a folder out of bounds
        raise InvalidRequest(f"The audio file cannot be opened: {error}.") from error
    try:
        with soundfile.SoundFile(path) as file:
            rate = _checked_rate(file.samplerate)
            if file.channels > MAX_CHANNELS:
                raise InvalidRequest(
                    f"The file {path.name!r} has {file.channels} channels; "
                    f"at most {MAX_CHANNELS} can be read: mix it down to mono or stereo."
                )
            if file.frames / rate > max_seconds and file.frames < 2**40:
                raise _too_long(file.frames / rate, max_seconds)
            most = math.floor(max_seconds * rate) + 1
            blocks, frames = [], 0
            while frames < most:
                block = file.read(min(_BLOCK, most - frames), dtype="float32", always_2d=True)
                if not len(block):
                    break
                blocks.append(block)
                frames += len(block)
    except InvalidRequest:
        raise
    except (soundfile.SoundFileError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"The file {path.name!r} cannot be read as audio: "
            f"send {_FORMATS} (was it renamed, or cut off on its way?)."
        ) from error
    if not blocks:
        raise InvalidRequest(f"The file {path.name!r} holds no sound: record or choose another.")
    return rate, np.concatenate(blocks)


def _checked_rate(rate: object) -> int:
    """The rate as a whole number of Hz, within what a recording can have."""
    good = (
        isinstance(rate, numbers.Real | np.number)
        and not isinstance(rate, bool | np.bool_)
        and MIN_RATE <= rate <= MAX_RATE  # and so it is finite
        and float(rate).is_integer()
    )
    if not good:
        raise InvalidRequest(
            f"The sample rate must be a whole number of Hz from {MIN_RATE:,} to {MAX_RATE:,}: "
            f"this recording says {shown(rate)}."
        )
    return int(rate)


def _mono(samples: object, rate: int, max_seconds: float) -> np.ndarray:
    """Samples of any supported format and shape as (n,) float32 in -1..1."""
    try:
        array = np.asarray(samples)
    except ValueError as error:  # a ragged list
        raise InvalidRequest(
            "The samples do not form an array: send shape (n,) or (n, channels)."
        ) from error
    if array.ndim not in (1, 2):
        raise InvalidRequest(
            f"The samples have shape {array.shape}: send (n,) for mono or (n, channels)."
        )
    if array.size == 0:
        raise InvalidRequest("The recording is empty: record or choose one with sound in it.")
    if array.ndim == 2 and array.shape[1] > MAX_CHANNELS >= array.shape[0]:
        array = array.T  # channels first, as some libraries give it
    if array.ndim == 2 and array.shape[1] > MAX_CHANNELS:
        raise InvalidRequest(
            f"The samples have shape {array.shape}: neither side is a number of channels "
            f"(at most {MAX_CHANNELS})."
        )
    if len(array) / rate > max_seconds:
        raise _too_long(len(array) / rate, max_seconds)
    scaled = _scaled(array)
    return scaled if scaled.ndim == 1 else scaled.mean(axis=1, dtype=np.float32)


def _scaled(array: np.ndarray) -> np.ndarray:
    """Samples as float32 in -1..1, whatever the format's full scale is."""
    match array.dtype.name:
        case "int8" | "int16" | "int32":
            full_scale = -float(np.iinfo(array.dtype).min)
            return (array / full_scale).astype(np.float32)
        case "uint8":
            return ((array.astype(np.float32) - 128.0) / 128.0).astype(np.float32)
    if array.dtype.kind != "f":
        raise InvalidRequest(
            f"Samples of type {array.dtype} are not supported: "
            "send int8, uint8, int16, int32 or floating point."
        )
    bad = int(array.size - np.isfinite(array).sum())
    if bad:
        raise InvalidRequest(
            f"{bad:,} of {array.size:,} samples are not finite numbers (NaN or infinite): "
            "export the recording again."
        )
    peak = float(np.abs(array).max())
    # Louder than full scale: kept in shape, brought down to it. Features are relative to the peak,
    # and a huge value would overflow when squared.
    return (array / peak if peak > 1.0 else array).astype(np.float32)


def _too_long(seconds: float, max_seconds: float) -> InvalidRequest:
    return InvalidRequest(
        f"The recording is {seconds:,.0f} s long; at most {max_seconds:,.0f} s are taken at once: "
        "send a shorter piece."
    )
