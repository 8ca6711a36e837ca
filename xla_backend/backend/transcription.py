"""Recordings in, windows of text out, each with truthful timings.

Knows how a recording becomes requests to one compiled function: read, cut into windows, heard one
after the other. Must not know TensorFlow, nor who asks, nor how a model is loaded or a function
found.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from xla_backend.backend.kept_functions import KeptFunctions
from xla_backend.checkpoints import audio
from xla_backend.checkpoints.speech_input import SpeechPrompt, fitting_options, works_on_text
from xla_backend.interface.backend import AnyStream
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import AudioInput, GenerationOptions
from xla_backend.interface.results import (
    EngineStatus,
    FirstCall,
    Token,
    TranscribedWindow,
    Transcription,
)
from xla_backend.interface.timing import Stopwatch, Timing
from xla_backend.scheduling.engine_access import READY, EngineAccess
from xla_backend.scheduling.prediction import Choice
from xla_backend.scheduling.scheduler import Ticket

if TYPE_CHECKING:
    from xla_backend.backend.loaded_models import LoadedModels
    from xla_backend.compilation.function_cache import Slot
    from xla_backend.model.engine import Engine
    from xla_backend.model.functions import KeyFunctions
    from xla_backend.model.generation import Generation

MIN_SECONDS = 0.1
"""A shorter sound holds no word, and a model would make one up."""

SILENCE = 1e-4
"""Full-scale amplitude (-80 dB) below which nobody speaks, and a model would make words up."""

SILENT = "The recording is silent: check that the microphone is on and not muted."


class WindowStream(AnyStream[TranscribedWindow, Transcription]):
    """A recording's text as it comes: an iterator of `TranscribedWindow`s.

    `result` is None until the iterator has ended; after `stop` it holds what was heard.
    """

    def __init__(
        self,
        models: LoadedModels,
        functions: KeptFunctions,
        access: EngineAccess,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None,
        language: str | None,
        max_seconds: float,
        arrival_time: float | None,
    ) -> None:
        """Made by `Backend.transcribe` and `Backend.transcribe_windows`."""
        self.result: Transcription | None = None
        self._models = models
        self._functions = functions
        self._access = access
        self._model = model
        self._recording = recording
        self._options = options
        self._language = language
        self._max_seconds = max_seconds
        self._stop = threading.Event()
        self._ticket = Ticket(access.scheduler)
        self._windows = self._transcribe(Stopwatch("queue", arrival_time))

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
        with self._access.background.request():
            yield from self._transcribe_now(watch)

    def _transcribe_now(self, watch: Stopwatch) -> Iterator[TranscribedWindow]:
        with self._access.turn(watch.enter, self._ticket):
            watch.enter(None)
            loading = time.perf_counter()
            engine = self._models.load(self._model)
            load_s = time.perf_counter() - loading
            watch.pause_for("load", load_s)
            self._access.tell(READY)
        watch.enter("tokenize")
        speech = engine.speech
        if speech is None:
            raise works_on_text(engine.info.name)
        samples = audio.read(self._recording, speech.rate, self._max_seconds)
        _check_sound(samples, speech.rate)
        self._language = speech.language_code(self._language)
        options = fitting_options(self._options, speech, engine.context_length)
        engine.check(options)
        wanted = self._functions.key(engine, speech.frames, options)

        heard: list[_HeardWindow] = []
        windows: list[TranscribedWindow] = []
        first_calls: list[FirstCall] = []
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
                    cache=said.choice.outcome if said else None,
                    timing=timing.since(before),
                )
            )
            if said:
                spent = windows[-1].timing
                first_calls.append(
                    self._functions.record(engine, said.slot, said.choice, wanted, spent)
                )
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
            key=heard[0].choice.key,
            requested_key=wanted,
            cache=heard[0].choice.outcome,
            finish=_finish(heard, is_whole=windows[-1].end_s * speech.rate >= len(samples) - 1),
            timing=watch.read(),
            spans=watch.spans(),
            since_first_token_s=watch.since_first_token_s(),
            first_call=first_calls[0],
            options=options,
            load_s=load_s,
            rounded_bits=engine.info.rounded_bits,
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
        speech = engine.speech
        assert speech is not None  # the recording was read for it
        watch.enter("tokenize")
        features, prompt = speech.features(samples), speech.decoder_prompt
        start = prompt.for_language(self._language) if self._language else prompt.tokens
        with self._access.turn(watch.enter, self._ticket):
            choice = self._functions.choose(engine, wanted, exact_key=False)
            slot, choice = self._functions.serve(engine, wanted, choice, watch.enter)
            watch.enter("prefill")
            self._access.tell(EngineStatus("generating", str(choice.key)))

            def begin(heard: SpeechPrompt) -> Generation:
                functions = slot.built.function
                prefilled = engine.prefill(functions, choice.key, heard)
                return engine.start(functions, [heard], [prefilled], [options])

            run = begin(SpeechPrompt(features, start))
            if self._language is None and prompt.languages:
                self._language = engine.detected_language(run)
                if (found := prompt.for_language(self._language)) != start:
                    run = begin(SpeechPrompt(features, found))
            run.advance(1)
            watch.count(first := run.length())
            if not run.is_done.all():
                watch.enter("decode")
                run.advance(options.max_new_tokens)
                watch.count(run.length() - first)
            self._access.tell(READY)
        watch.enter("detokenize")
        tokens = engine.tokens(run)
        ids = [token.id for token in tokens]
        return _HeardWindow(
            text=engine.tokenizer.decode(ids).strip(),
            tokens=tokens,
            is_complete=bool(ids) and engine.is_eos(ids[-1]),
            slot=slot,
            choice=choice,
        )


@dataclass(frozen=True)
class _HeardWindow:
    """What one run on a window gave."""

    text: str
    tokens: tuple[Token, ...]
    is_complete: bool
    slot: Slot[KeyFunctions]
    choice: Choice


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
