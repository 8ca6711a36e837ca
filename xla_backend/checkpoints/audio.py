"""Recordings: a file or raw samples as mono float32 at a model's sample rate, cut into windows.

Knows sample formats, rates, channels and why a recording can be unusable. Any input gives a valid
array or an `InvalidRequest` that says what is wrong and what to do.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import numbers
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import DEFAULT_MAX_SECONDS, AudioInput, shown

MIN_RATE, MAX_RATE = 1_000, 768_000
MAX_CHANNELS = 64
_FORMATS = "WAV, FLAC, OGG, MP3, M4A or WebM"
_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,aac,amr,asf,caf"
"""Containers that FFmpeg may read: none that names other files, as playlists do."""
_BLOCK = 65_536  # frames decoded at a time


@dataclass(frozen=True)
class Window:
    """A piece of a recording that a model transcribes at once.

    Attributes:
        start_s: its start in the recording, in seconds.
        samples: (n,) float32, at most as long as the requested window.
    """

    start_s: float
    samples: np.ndarray


def read(audio: AudioInput, rate: int, max_seconds: float = DEFAULT_MAX_SECONDS) -> np.ndarray:
    """Reads a recording as mono float32 in -1..1 at `rate`: `(n,)`, n >= 1.

    Args:
        audio: a file's path, or (rate, samples) with samples of shape (n,) or (n, channels) as
            int8, uint8, int16, int32 or floating point.
        rate: the model's sample rate, in Hz.
        max_seconds: longer recordings are refused before they are fully decoded.
    """
    if isinstance(audio, str | os.PathLike):
        return _read_file(Path(audio), rate, max_seconds)
    if not isinstance(audio, tuple | list) or len(audio) != 2:
        raise InvalidRequest(
            "Audio must be a file's path or a pair (rate in Hz, samples): "
            f"this is {type(audio).__name__}."
        )
    source_rate, samples = _checked_rate(audio[0]), audio[1]
    mono = _mono(samples, source_rate, max_seconds)
    return resample(mono, source_rate, rate)


def resample(samples: np.ndarray, source_rate: float, rate: float) -> np.ndarray:
    """Resamples (n,) samples to (m,) float32 at soxr's high quality, which filters aliases."""
    if source_rate == rate:
        return np.ascontiguousarray(samples, dtype=np.float32)
    return _clipped(soxr.resample(np.asarray(samples, dtype=np.float32), source_rate, rate))


def windows(samples: np.ndarray, rate: int, window_s: float) -> list[Window]:
    """Cuts a recording into windows of at most `window_s` seconds; joined, they are the recording.

    A cut is at the quietest moment of a window's second half, so it seldom splits a word.
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
    """Index in the window's second half around which a fifth of a second is quietest."""
    first = len(window) // 2
    span = min(max(1, rate // 5), len(window) - first)
    energy = np.cumsum(np.concatenate([[0.0], np.square(window[first:], dtype=np.float64)]))
    loudness = energy[span:] - energy[:-span]
    # The last of equally quiet moments: digital silence then gives the longest window. Within the
    # margin, differences are rounding errors of the running sum.
    margin = 1e-9 * max(energy[-1], 1e-12)
    quiet = np.flatnonzero(loudness <= loudness.min() + margin)
    return max(1, first + int(quiet[-1]) + span // 2)


def _clipped(resampled: np.ndarray) -> np.ndarray:
    """A resampler's output as at least one float32 sample in -1..1."""
    if not len(resampled):  # a few samples at a high rate are less than one at the model's
        return np.zeros(1, np.float32)
    # The filter rings, so a full-scale square wave overshoots; the models expect -1..1.
    return np.clip(resampled, -1.0, 1.0).astype(np.float32)


def _read_file(path: Path, rate: int, max_seconds: float) -> np.ndarray:
    """Decodes a file to (n,) float32 at `rate`: the first of its tracks that is not silent."""
    samples, tracks = _read_track(path, 0, rate, max_seconds)
    for track in range(1, tracks):
        if samples.any():
            break
        samples, _ = _read_track(path, track, rate, max_seconds)
    if not len(samples):
        raise InvalidRequest(f"The file {path.name!r} contains no sound: record or choose another.")
    return samples


def _read_track(path: Path, track: int, rate: int, max_seconds: float) -> tuple[np.ndarray, int]:
    """Decodes a track, none if it is empty, and says how many there are; stops just after
    `max_seconds`.

    Each block is mixed down and resampled before the next one is decoded, so memory does not
    depend on the file's channels or rate: half a megabyte of FLAC can hold gigabytes of silence.
    Sums are float64, because the peak by which they are scaled is known only at the end.
    """
    try:
        if not path.is_file():
            raise InvalidRequest(f"There is no audio file {path.name!r}: choose another file.")
        if path.stat().st_size == 0:
            raise InvalidRequest(f"The file {path.name!r} is empty: choose another file.")
    except InvalidRequest:  # it is also a ValueError
        raise
    except (OSError, ValueError) as error:  # a name too long, a null byte, a folder out of bounds
        raise InvalidRequest(f"The audio file cannot be opened: {error}.") from error
    try:
        with _opened(path, track) as (source_rate, channels, seconds, tracks, blocks):
            _checked_rate(source_rate)
            if channels > MAX_CHANNELS:
                raise InvalidRequest(
                    f"The file {path.name!r} has {channels} channels; "
                    f"at most {MAX_CHANNELS} can be read: mix it down to mono or stereo."
                )
            if seconds > max_seconds:
                raise _too_long(seconds, max_seconds)
            most = math.floor(max_seconds * source_rate) + 1
            resampler = soxr.ResampleStream(source_rate, rate, 1, dtype="float64")
            pieces, frames, bad, peak = [], 0, 0, 1.0
            for block in blocks:
                block = block[: most - frames]
                if not len(block):
                    break
                frames += len(block)
                bad += int(block.size - np.isfinite(block).sum())
                peak = max(peak, float(np.abs(block).max()))
                mono = block.mean(axis=1, dtype=np.float64)
                pieces.append(mono if source_rate == rate else resampler.resample_chunk(mono))
                if frames == most:
                    break
    except InvalidRequest:
        raise
    except (
        soundfile.SoundFileError,
        OSError,
        RuntimeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise InvalidRequest(
            f"The file {path.name!r} cannot be read as audio: "
            f"send {_FORMATS} (was it renamed, or cut off on its way?)."
        ) from error
    if not frames:
        return np.zeros(0, np.float32), tracks
    if frames / source_rate > max_seconds:
        raise _too_long(frames / source_rate, max_seconds)
    if bad:
        raise _not_finite(bad, frames * channels)
    if source_rate != rate:
        pieces.append(resampler.resample_chunk(np.zeros(0), last=True))
    return _clipped(np.concatenate(pieces) / peak), tracks


@contextlib.contextmanager
def _opened(path: Path, track: int) -> Iterator[tuple[int, int, float, int, Iterator[np.ndarray]]]:
    """Opens a sound track of a file: rate, channels, seconds (0 if unknown), how many tracks there
    are, and blocks of float32 `[n, channels]`.

    libsndfile reads it, or FFmpeg if libsndfile cannot, such as recordings of telephones.
    """
    try:
        file = soundfile.SoundFile(path)
    except soundfile.SoundFileError:
        import av  # its libraries are large and seldom needed

        allowed = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "file"}
        try:
            with av.open(path, options=allowed) as container:
                tracks = container.streams.audio
                if not tracks:
                    raise InvalidRequest(
                        f"The file {path.name!r} has no sound track: choose a recording."
                    )
                stream = tracks[track]
                packed = av.AudioResampler("flt", stream.layout, stream.rate)
                blocks = (
                    piece.to_ndarray().reshape(-1, stream.channels)
                    for frame in container.decode(stream)
                    for piece in packed.resample(frame)
                )
                seconds = (container.duration or 0) / av.time_base
                yield stream.rate, stream.channels, seconds, len(tracks), blocks
        except av.error.FFmpegError as error:  # of many classes
            raise ValueError(str(error)) from error
        return
    with file:
        # A header with a wrong length does no harm.
        seconds = file.frames / file.samplerate if 0 < file.frames < 2**40 else 0.0
        blocks = (file.read(_BLOCK, dtype="float32", always_2d=True) for _ in itertools.count())
        yield file.samplerate, file.channels, seconds, 1, blocks


def _checked_rate(rate: Any) -> int:
    """The rate as a whole number of Hz."""
    good = (
        isinstance(rate, numbers.Real | np.number)
        and not isinstance(rate, bool | np.bool_)
        # This also excludes NaN and infinity. mypy does not know comparisons of the abstract Real.
        and MIN_RATE <= rate <= MAX_RATE  # type: ignore[operator]
        and float(rate).is_integer()
    )
    if not good:
        raise InvalidRequest(
            f"The sample rate must be a whole number of Hz from {MIN_RATE:,} to {MAX_RATE:,}: "
            f"this recording says {shown(rate)}."
        )
    return int(rate)


def _mono(samples: object, rate: int, max_seconds: float) -> np.ndarray:
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
        array = array.T  # some libraries put the channels first
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
    """Samples of any supported dtype as float32 in -1..1."""
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
        raise _not_finite(bad, array.size)
    peak = float(np.abs(array).max())
    # Louder samples are scaled down to full scale: features are relative to the peak, and a huge
    # value would overflow when squared.
    return (array / peak if peak > 1.0 else array).astype(np.float32)


def _not_finite(bad: int, of: int) -> InvalidRequest:
    return InvalidRequest(
        f"{bad:,} of {of:,} samples are not finite numbers (NaN or infinite): "
        "export the recording again."
    )


def _too_long(seconds: float, max_seconds: float) -> InvalidRequest:
    return InvalidRequest(
        f"The recording is {seconds:,.0f} s long; at most {max_seconds:,.0f} s are allowed: "
        "send a shorter piece."
    )
