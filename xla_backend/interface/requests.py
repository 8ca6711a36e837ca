"""`TextRequest` and `SpeechRequest`: requests on their way from the caller to the engine.

Knows their fields and what they mean. Must not know models, tokens or TensorFlow.
"""

from __future__ import annotations

from dataclasses import dataclass

from xla_backend.interface.options import (
    DEFAULT_MAX_SECONDS,
    DEFAULT_OPTIONS,
    AudioInput,
    GenerationOptions,
)
from xla_backend.interface.prompt import Prompt


@dataclass(frozen=True)
class TextRequest:
    """A request for a text.

    Attributes:
        model: a name that `Backend.models` lists, or a folder if the registry allows folders.
        prompt: the text to continue, or the messages of a conversation for an instruct model.
        options: of the generation.
        exact_key: do not reuse a larger compiled function; compile this request's cache key.
        cache_salt: the request runs as a row of the model's pool, which serves all lengths, and may
            reuse the prefixes of requests with the same salt. Timings tell a caller that knows a
            salt what others wrote, so give it only to those who may know. Empty: a function for the
            request's own padded sizes serves it, or a row if drafts or a grammar need one, and
            nothing is reused. Beams, encoder-decoders and `exact_key` ignore it.
        in_chunks: False if only the result is wanted: no text is sent before it.
        with_tokens: chunks have their tokens, see `TextChunk`.
        with_progress: an empty chunk reports each part of the prompt that a row of the pool reads.
        arrival_time: when the request arrived, as `time.perf_counter()` of this machine; the time
            since then counts as queue. None for now.
        token_ids: of the prompt, if it has been tokenized already.
        tokenize_s: seconds that this took, before the arrival.
    """

    model: str
    prompt: Prompt
    options: GenerationOptions = DEFAULT_OPTIONS
    exact_key: bool = False
    cache_salt: str = ""
    in_chunks: bool = True
    with_tokens: bool = False
    with_progress: bool = False
    arrival_time: float | None = None
    token_ids: tuple[int, ...] = ()
    tokenize_s: float = 0.0


@dataclass(frozen=True)
class SpeechRequest:
    """A request to transcribe a recording.

    Attributes:
        model: a speech model.
        recording: a file's path, or (rate in Hz, samples) with samples of shape (n,) or
            (n, channels). It is cut into windows of the model's length, which all run on one
            compiled function; silent windows are skipped, except the first if all are silent.
        options: of each window's generation; `max_new_tokens` is cut to the model's positions.
            None for the most likely text, at most `options.WINDOW_TOKENS`.
        language: of the speech ("en", "German"); None to detect it, or for a model with a single
            language.
        max_seconds: longer recordings are refused.
        has_times: windows have segments with times, if the model has timestamps.
        in_chunks: as for a text.
        arrival_time: as for a text.
    """

    model: str
    recording: AudioInput
    options: GenerationOptions | None = None
    language: str | None = None
    max_seconds: float = DEFAULT_MAX_SECONDS
    has_times: bool = False
    in_chunks: bool = True
    arrival_time: float | None = None
