"""Recordings in, windows of text out, each with truthful timings.

Knows how a recording becomes requests to one compiled function: read, cut into windows, heard one
after the other. Must not know TensorFlow, nor who asks. Part of `backend`, apart from it only to be
read apart.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from xla_backend import audio
from xla_backend.audio import AudioInput
from xla_backend.buckets import BucketRules, CacheKey
from xla_backend.errors import InvalidRequest
from xla_backend.options import WINDOW_TOKENS, GenerationOptions
from xla_backend.results import CacheOutcome, Token, TranscribedWindow, Transcription
from xla_backend.speech_input import Heard, SpeechInput
from xla_backend.timing import Stopwatch, Timing
from xla_backend.turns import Place

if TYPE_CHECKING:
    from xla_backend.backend import Backend
    from xla_backend.engine import Engine, KeyFunctions
    from xla_backend.function_cache import Slot

MIN_SECONDS = 0.1
"""A shorter sound holds no word, and a model would make one up."""

SILENCE = 1e-4
"""Full-scale amplitude (-80 dB) below which nobody speaks, and a model would make words up."""

SILENT = "The recording is silent: check that the microphone is on and not muted."


def speech_key(rules: BucketRules, speech: SpeechInput, options: GenerationOptions) -> CacheKey:
    """The key of every window: a speech model hears one length only."""
    key = rules.key_for(1, options.num_beams, options.max_new_tokens)
    return dataclasses.replace(key, padded_length=speech.frames)


class WindowStream:
    """A recording's text as it comes: an iterator of `TranscribedWindow`s.

    `result` is None until the iterator has ended; after `stop` it holds what was heard.
    """

    def __init__(
        self,
        backend: Backend,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None,
        language: str | None,
        max_seconds: float,
        received: float | None,
    ) -> None:
        """Made by `Backend.transcribe` and `Backend.transcribe_windows`."""
        self.result: Transcription | None = None
        self._backend = backend
        self._model = model
        self._recording = recording
        self._options = options
        self._language = language
        self._max_seconds = max_seconds
        self._stop = threading.Event()
        self._place = Place(backend._turns)
        self._windows = self._transcribe(Stopwatch("queue", received))

    def __iter__(self) -> WindowStream:
        """Itself."""
        return self

    def __next__(self) -> TranscribedWindow:
        """The next window."""
        return next(self._windows)

    def stop(self) -> None:
        """Ends after the window under way. May be called from any thread."""
        self._stop.set()

    def _transcribe(self, watch: Stopwatch) -> Iterator[TranscribedWindow]:
        with self._backend._background.request():
            yield from self._transcribe_now(watch)

    def _transcribe_now(self, watch: Stopwatch) -> Iterator[TranscribedWindow]:
        backend = self._backend
        with backend._turn(watch.enter, self._place):
            watch.enter(None)
            loading = time.perf_counter()
            engine = backend._engine(self._model)
            load_s = time.perf_counter() - loading
            backend._set_status("ready")
        watch.enter("tokenize")
        speech = engine.speech
        if speech is None:
            raise works_on_text(engine.info.name)
        samples = audio.read(self._recording, speech.rate, self._max_seconds)
        _check_sound(samples, speech.rate)
        self._language = speech.language_code(self._language)
        options = fitting_options(self._options, speech, engine.context_length)
        wanted = backend._key(engine, speech.frames, options)

        heard: list[_HeardWindow] = []
        windows: list[TranscribedWindow] = []
        frames, before = 0, Timing()
        for window in audio.windows(samples, speech.rate, speech.window_s):
            if self._stop.is_set():
                break
            said = None
            if not _is_silent(window.samples, speech.rate):
                said = self._hear(engine, wanted, options, window.samples, watch)
                heard.append(said)
                frames += speech.frames_of(window.samples)
            # The first window's share includes reading the recording.
            timing = watch.read()
            windows.append(
                TranscribedWindow(
                    start_s=window.start_s,
                    # Over samples, so that it is the next window's start to the last bit.
                    end_s=(round(window.start_s * speech.rate) + len(window.samples)) / speech.rate,
                    text=said.text if said else "",
                    new_tokens=len(said.tokens) if said else 0,
                    cache=said.outcome if said else None,
                    timing=timing.since(before),
                )
            )
            if said:
                spent = windows[-1].timing
                backend._record(engine, said.slot, said.key, wanted, said.outcome, spent)
            before = timing
            watch.enter(None)
            yield windows[-1]
            watch.enter("detokenize")

        if not heard:
            if self._stop.is_set():
                return  # nothing ran, there is no result
            raise InvalidRequest(SILENT)
        self.result = Transcription(
            model=self._model,
            text=" ".join(window.text for window in windows if window.text),
            tokens=tuple(token for said in heard for token in said.tokens),
            prompt_tokens=frames,
            key=heard[0].key,
            requested_key=wanted,
            cache=heard[0].outcome,
            finish=_finish(heard, is_whole=windows[-1].end_s * speech.rate >= len(samples) - 1),
            timing=watch.read(),
            first_call=heard[0].slot.first_call,
            options=options,
            load_s=load_s,
            audio_s=windows[-1].end_s,
            language=self._language,
            windows=tuple(windows),
        )

    def _hear(
        self,
        engine: Engine,
        wanted: CacheKey,
        options: GenerationOptions,
        samples: np.ndarray,
        watch: Stopwatch,
    ) -> _HeardWindow:
        """What is said in one window; finds out the language if it is not known yet."""
        backend, speech = self._backend, engine.speech
        watch.enter("tokenize")
        features, prompt = speech.features(samples), speech.decoder_prompt
        tokens = prompt.for_language(self._language) if self._language else prompt.tokens
        with backend._turn(watch.enter, self._place):
            slot, choice = backend._serve(engine, wanted, False, watch.enter)
            key = choice.key
            watch.enter("first_token")
            backend._set_status("generating", str(key))
            run = engine.start(slot.built.function, key, [Heard(features, tokens)], [options])
            if self._language is None and prompt.languages:
                self._language = engine.language_heard(run)
                if (found := prompt.for_language(self._language)) != tokens:
                    heard = Heard(features, found)
                    run = engine.start(slot.built.function, key, [heard], [options])
            run.advance(1)
            if not run.is_done.all():
                watch.enter("decode")
                run.advance(options.max_new_tokens)
            backend._set_status("ready")
        watch.enter("detokenize")
        tokens = engine.tokens(run)
        ids = [token.id for token in tokens]
        return _HeardWindow(
            text=engine.tokenizer.decode(ids).strip(),
            tokens=tokens,
            is_complete=bool(ids) and engine.is_eos(ids[-1]),
            key=key,
            outcome=choice.outcome,
            slot=slot,
        )


@dataclass(frozen=True)
class _HeardWindow:
    """What one run on a window gave."""

    text: str
    tokens: tuple[Token, ...]
    is_complete: bool
    key: CacheKey
    outcome: CacheOutcome
    slot: Slot[KeyFunctions]


def fitting_options(
    options: GenerationOptions | None, speech: SpeechInput, context_length: int
) -> GenerationOptions:
    """The options with no more new tokens a window than the model has positions for."""
    room = context_length - len(speech.decoder_prompt.tokens)
    if options is None:
        return GenerationOptions(max_new_tokens=min(room, WINDOW_TOKENS))
    return options.replace(max_new_tokens=min(room, options.max_new_tokens))


def works_on_text(model: str) -> InvalidRequest:
    """What to say when a model for text shall hear a recording."""
    return InvalidRequest(
        f"{model} works on text: choose a speech model to transcribe a recording."
    )


def _check_sound(samples: np.ndarray, rate: int) -> None:
    """Raises `InvalidRequest` for a recording in which nothing can be said."""
    if len(samples) < MIN_SECONDS * rate:
        raise InvalidRequest(
            f"The recording is only {len(samples) / rate:.2f} s long: at least {MIN_SECONDS:g} s "
            "are needed to hear a word."
        )
    if _is_silent(samples, rate):
        raise InvalidRequest(SILENT)


def _is_silent(samples: np.ndarray, rate: int) -> bool:
    """Whether a sound is too quiet or too short to hold a word."""
    # Peak to peak: a constant offset, as cheap sound cards add it, is silence too.
    return len(samples) < MIN_SECONDS * rate or float(np.ptp(samples)) / 2 < SILENCE


def _finish(
    heard: Sequence[_HeardWindow], *, is_whole: bool
) -> Literal["eos", "length", "stopped"]:
    if not is_whole:
        return "stopped"
    return "eos" if all(window.is_complete for window in heard) else "length"
