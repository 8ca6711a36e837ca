"""Speech requests: recordings are transcribed to windows of text, each with its timings.

Knows how a recording is read, cut into windows, and transcribed window by window with one compiled
function. Must not know TensorFlow, who asks, nor how a model is loaded or a function found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from xla_backend.checkpoints import audio
from xla_backend.checkpoints.prompts import check_options
from xla_backend.checkpoints.speech_input import (
    FALLBACK_TEMPERATURES,
    SpeechPrompt,
    fitting_options,
    works_on_text,
)
from xla_backend.engine.function_resolver import Chosen, FunctionResolver
from xla_backend.engine.loop import Loop
from xla_backend.engine.request import Awaited, AwaitEngine, AwaitResult, Request, Stopped, Stream
from xla_backend.engine.text import in_chunks
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.requests import SpeechRequest
from xla_backend.interface.results import (
    EngineStatus,
    FirstCall,
    TimedText,
    Token,
    TranscribedWindow,
    Transcription,
)
from xla_backend.interface.timing import Stopwatch, Timing

if TYPE_CHECKING:
    from xla_backend.engine.loaded_models import LoadedModels
    from xla_backend.model.functions import PaddedFunctions
    from xla_backend.model.generation import Generation
    from xla_backend.model.loaded_model import LoadedModel

MIN_SECONDS = 0.1
"""A shorter sound contains no word, and a model would invent one."""

SILENCE = 1e-4
"""Amplitude, of full scale (-80 dB), below which there is no speech; a model would invent words."""

WindowStream = Stream[TranscribedWindow, Transcription]


class SpeechToText(Request):
    """A speech request, window by window."""

    def __init__(
        self,
        request: SpeechRequest,
        stream: WindowStream,
        models: LoadedModels,
        functions: FunctionResolver,
        loop: Loop,
    ) -> None:
        super().__init__(stream)
        self._request = request
        self._models = models
        self._functions = functions
        self._loop = loop
        self._language = request.language
        self.watch = Stopwatch("queue", stream.arrived)

    def _run(self) -> Generator[Awaited, Any, None]:
        request, watch = self._request, self.watch
        loads = self._models.load_in_background(request.model, lambda: self.enter("loading"))
        engine, load_s = yield AwaitResult(loads)
        watch.pause_for("load", load_s)
        watch.enter("tokenize")
        speech = engine.speech
        if speech is None:
            raise works_on_text(engine.info.name)
        samples = audio.read(request.recording, speech.rate, request.max_seconds)
        if len(samples) < MIN_SECONDS * speech.rate:
            raise InvalidRequest(
                f"The recording is only {len(samples) / speech.rate:.2f} s long: at least "
                f"{MIN_SECONDS:g} s are needed to hear a word."
            )
        is_silent = _is_silent(samples, speech.rate)
        self._language = speech.language_code(self._language)
        options = fitting_options(request.options, speech, engine.context_length)
        check_options(options, engine.tokenizer.rows, engine.info)
        # Beams do not follow the rules of timestamps.
        self._is_timed = request.has_times and options.num_beams == 1
        needed = self._functions.speech_key(engine, options)

        parts: list[_WindowText] = []
        windows: list[TranscribedWindow] = []
        first_calls: list[FirstCall] = []
        frames, before = 0, Timing()
        for window in audio.windows(samples, speech.rate, speech.window_s):
            if self.stream.is_stopped:
                break
            part = None
            # If all is silence, the first window is run: a result needs a key and times.
            if not parts if is_silent else not _is_silent(window.samples, speech.rate):
                part = yield from self._write(engine, needed, options, window.samples, is_silent)
                parts.append(part)
                frames += speech.frames_of(window.samples)
            # The first window's time includes reading the recording.
            timing = watch.read()
            # From samples, so that it equals the next window's start exactly.
            end_s = (round(window.start_s * speech.rate) + len(window.samples)) / speech.rate
            ids = [token.id for token in part.tokens] if part else []
            windows.append(
                TranscribedWindow(
                    start_s=window.start_s,
                    end_s=end_s,
                    text=part.text if part else "",
                    new_tokens=len(ids),
                    cache=part.chosen.choice.outcome if part else None,
                    timing=timing.since(before),
                    segments=segments(
                        ids,
                        engine.tokenizer.decode,
                        speech.decoder_prompt.first_timestamp if self._is_timed else None,
                        speech.tick_s,
                        (window.start_s, end_s),
                    ),
                    temperature=part.temperature if part else 0.0,
                    mean_logprob=part.mean_logprob if part else 0.0,
                    no_speech=part.no_speech if part else 0.0,
                )
            )
            if part:
                spent = windows[-1].timing
                first_calls.append(self._functions.record(engine, part.chosen, needed, spent))
            before = timing
            self.stream.put(windows[-1])

        if not parts:
            raise Stopped  # nothing ran, there is no result
        chosen = parts[0].chosen
        self.finish(
            Transcription(
                model=request.model,
                text=" ".join(window.text for window in windows if window.text),
                tokens=tuple(token for part in parts for token in part.tokens),
                prompt_tokens=frames,
                key=chosen.choice.key,
                requested_key=needed,
                cache=chosen.choice.outcome,
                finish=_finish(parts, is_whole=windows[-1].end_s * speech.rate >= len(samples) - 1),
                timing=watch.read(),
                spans=watch.spans(),
                since_first_token_s=watch.since_first_token_s(),
                first_call=first_calls[0],
                options=options,
                load_s=load_s,
                rounded_bits=engine.info.rounded_bits,
                activations=engine.info.activations,
                audio_s=windows[-1].end_s,
                language=self._language,
                windows=tuple(windows),
            )
        )

    def _write(
        self,
        engine: LoadedModel,
        needed: CacheKey,
        options: GenerationOptions,
        samples: np.ndarray,
        is_silent: bool,
    ) -> Generator[Awaited, Any, _WindowText]:
        """Transcribes one window, see `Guards`; detects the language if it is unknown."""
        speech, watch = engine.speech, self.watch
        assert speech is not None  # the recording was read for it
        watch.enter("tokenize")
        features, prompt = speech.features(samples), speech.decoder_prompt
        start = prompt.for_language(self._language) if self._language else prompt.tokens
        watch.enter("queue")
        chosen = yield from self._functions.obtain(engine, needed, options, self.makes)
        watch.enter("queue")
        yield AwaitEngine()
        self.enter("reading")
        watch.enter("prefill")
        key = chosen.choice.key
        status = EngineStatus("generating", str(key))
        self._loop.set_status(status)

        def begin(options: GenerationOptions) -> Generation:
            parts = SpeechPrompt(features, prompt.timed(start) if self._is_timed else start)
            return engine.start(cast("PaddedFunctions", chosen.functions), key, parts, options)

        generation = begin(options)
        if self._language is None and prompt.languages:
            self._language = engine.detected_language(generation)
            if (found := prompt.for_language(self._language)) != start:
                start = found
                generation = begin(options)
        no_speech = engine.no_speech_probability(generation)
        # Beams and sampling that the request sets are not changed.
        is_greedy = options.num_beams == 1 and options.temperature == 0 and not is_silent
        further = list(FALLBACK_TEMPERATURES if is_greedy else ())
        tried, temperature = [], options.temperature
        while True:
            yield from in_chunks(self, self._loop, generation, status, lambda: True)
            tokens = engine.tokens(generation.output())
            ids = [token.id for token in tokens]
            mean = sum(token.logprob for token in tokens) / max(1, len(tokens))
            part = _WindowText(
                text=engine.tokenizer.decode(ids).strip(),
                tokens=tokens,
                is_complete=bool(ids) and engine.is_end(ids[-1], options),
                chosen=chosen,
                temperature=temperature,
                mean_logprob=mean,
                no_speech=no_speech,
            )
            repeats = speech.guards.repeats(part.text)
            is_noise = mean < speech.guards.logprob
            tried.append((not repeats, mean, part))
            is_no_speech = is_noise and no_speech > speech.guards.no_speech
            if is_no_speech or not further or not (repeats or is_noise):
                break
            watch.enter("queue")
            yield AwaitEngine()
            watch.enter("prefill")
            temperature = further.pop(0)
            generation = begin(options.replace(temperature=temperature))
        _, mean, part = max(tried, key=lambda one: one[:2])
        # Sampled tokens are unlikely by themselves, which is no sign of noise.
        if is_silent or (options.temperature == 0 and mean < speech.guards.logprob):
            return dataclasses.replace(part, text="", tokens=(), is_complete=True)
        return part


@dataclass(frozen=True)
class _WindowText:
    """The text of one run on a window."""

    text: str
    tokens: tuple[Token, ...]
    is_complete: bool
    chosen: Chosen
    temperature: float
    mean_logprob: float
    no_speech: float


def segments(
    ids: Sequence[int],
    decode: Callable[[Sequence[int]], str],
    first: int | None,
    tick_s: float,
    window: tuple[float, float],
) -> tuple[TimedText, ...]:
    """The text of a window, split at its timestamps; a last segment without an end ends with it.

    Args:
        ids: token ids of the window.
        decode: gives their text.
        first: id of the first timestamp; None if there are no timestamps.
        tick_s: seconds from one timestamp to the next.
        window: its begin and end in seconds.
    """
    (begin_s, end_s), found, words = window, [], list[int]()
    for id in (*ids, None):
        if id is not None and (first is None or id < first):
            words.append(id)
            continue
        now_s = end_s
        if id is not None and first is not None:
            now_s = min(round(window[0] + (id - first) * tick_s, 3), end_s)
        if text := decode(words).strip():
            found.append(TimedText(begin_s, now_s, text, tuple(words)))
        begin_s, words = now_s, []
    return tuple(found)


def _is_silent(samples: np.ndarray, rate: int) -> bool:
    """Whether a sound is too quiet or too short to contain a word."""
    # Peak to peak: a constant offset, as cheap sound cards add, is silence too.
    return len(samples) < MIN_SECONDS * rate or float(np.ptp(samples)) / 2 < SILENCE


def _finish(parts: Sequence[_WindowText], *, is_whole: bool) -> Literal["eos", "length", "stopped"]:
    if not is_whole:
        return "stopped"
    return "eos" if all(window.is_complete for window in parts) else "length"
