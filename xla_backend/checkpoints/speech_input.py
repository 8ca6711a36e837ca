"""The input of a speech model: a window's spectrogram and the decoder prompt."""

from __future__ import annotations

import dataclasses
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from xla_backend.checkpoints.text_files import without_marks
from xla_backend.checkpoints.transformers_import import locked_transformers
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.errors import InvalidRequest, ModelUnavailable
from xla_backend.interface.options import WINDOW_TOKENS, GenerationOptions

if TYPE_CHECKING:
    from transformers import GenerationConfig, PretrainedConfig, WhisperFeatureExtractor


class SpeechPrompt(NamedTuple):
    """The prompt of a speech model.

    Attributes:
        features: log-mel spectrogram of a whole window, (frames, mel bands) float32.
        decoder_prompt: the tokens before the first new one; their number is the model's.
    """

    features: np.ndarray
    decoder_prompt: tuple[int, ...]


@dataclass(frozen=True)
class DecoderPrompt:
    """The first tokens of a transcript: start, language, task, "no timestamps".

    Attributes:
        tokens: for English, or the first language without English. An English-only model has no
            language and no task token.
        languages: token of each language by its code ("en"); empty for an English-only model.
        first_timestamp: token of the time 0, after "no timestamps"; later times follow. None if
            the vocabulary has no timestamps.
    """

    tokens: tuple[int, ...]
    languages: dict[str, int]
    first_timestamp: int | None = None

    @classmethod
    def read(cls, generation_config: GenerationConfig, config: PretrainedConfig) -> DecoderPrompt:
        """The decoder prompt of a checkpoint's generation config."""
        start = generation_config.decoder_start_token_id
        start = config.decoder_start_token_id if start is None else start
        by_name = getattr(generation_config, "lang_to_id", None) or {}
        tasks = getattr(generation_config, "task_to_id", None) or {}
        forced = dict(getattr(generation_config, "forced_decoder_ids", None) or [])
        no_timestamps = getattr(generation_config, "no_timestamps_token_id", None)
        languages = {name.strip("<|>"): token for name, token in by_name.items()}
        if languages:
            first = languages.get("en", next(iter(languages.values())))
            task_tokens = [first, tasks.get("transcribe"), no_timestamps]
        else:
            task_tokens = [token for _, token in sorted(forced.items()) if token is not None]
            if no_timestamps is not None and no_timestamps not in task_tokens:
                task_tokens.append(no_timestamps)
        tokens = [start, *task_tokens]
        if not all(isinstance(token, int) and 0 <= token < config.vocab_size for token in tokens):
            raise ModelUnavailable(
                "generation_config.json does not say which tokens start a transcript "
                f"(it leads to {tokens}): copy the file of the published model."
            )
        is_timed = tokens[-1] == no_timestamps and tokens[-1] + 2 < config.vocab_size
        return cls(tuple(tokens), languages, tokens[-1] + 1 if is_timed else None)

    def for_language(self, code: str) -> tuple[int, ...]:
        start, _, *rest = self.tokens
        return (start, self.languages[code], *rest)

    def timed(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens for a transcript with timestamps, which begins at 0; unchanged without any."""
        return tokens if self.first_timestamp is None else (*tokens[:-1], self.first_timestamp)


@dataclass(frozen=True)
class Guards:
    """Whisper's thresholds for noise and repetition, or those of a checkpoint.

    A window with a doubtful greedy text is transcribed again, by sampling at rising temperatures.
    If all its texts are doubtful, or the text of beams is, its text is empty, which is stricter
    than Whisper's own program. If a request sets a temperature, its text stays.

    Attributes:
        no_speech_token: token of silence, in place of a language; None if there
            is none.
        no_speech: probability of that token from which a doubtful text is dropped at once.
        logprob: mean log-probability of the tokens below which a text is doubtful (noise).
        compression: ratio of a text's bytes to its zlib-compressed bytes above which it is doubtful
            (repetition).
    """

    no_speech_token: int | None
    no_speech: float
    logprob: float
    compression: float

    @classmethod
    def read(cls, generation_config: GenerationConfig) -> Guards:
        def threshold(name: str, default: float) -> float:
            value = getattr(generation_config, f"{name}_threshold", None)
            return default if value is None else float(value)

        last = getattr(generation_config, "no_timestamps_token_id", None)
        return cls(
            last - 1 if last else None,  # where OpenAI's vocabularies have it
            threshold("no_speech", 0.6),
            threshold("logprob", -1.0),
            threshold("compression_ratio", 2.4),
        )

    def repeats(self, text: str) -> bool:
        data = text.encode()
        return len(data) > self.compression * len(zlib.compress(data))


FALLBACK_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)


class SpeechInput:
    """Turns recordings into the input of one speech model."""

    def __init__(
        self,
        extractor: WhisperFeatureExtractor,
        generation_config: GenerationConfig,
        config: PretrainedConfig,
    ) -> None:
        """Use `load` for a folder."""
        self.decoder_prompt = DecoderPrompt.read(generation_config, config)
        self.guards = Guards.read(generation_config)
        self.frames = extractor.n_samples // extractor.hop_length
        self._extractor = extractor
        expected = (2 * config.max_source_positions, config.num_mel_bins)
        found = (self.frames, extractor.feature_size)
        if found != expected:
            raise ModelUnavailable(
                "preprocessor_config.json and config.json do not fit together: a window has "
                f"{found[0]} frames of {found[1]} bands, and the model needs {expected[0]} of "
                f"{expected[1]}."
            )

    @classmethod
    def load(
        cls, folder: Path, generation_config: GenerationConfig, config: PretrainedConfig
    ) -> SpeechInput:
        """Reads the feature extractor of a model's folder."""
        try:
            with locked_transformers() as transformers, without_marks(folder) as plain:
                kind = transformers.WhisperFeatureExtractor
                if (folder / "preprocessor_config.json").is_file():
                    extractor = kind.from_pretrained(str(plain), local_files_only=True)
                else:  # as in CTranslate2's folders
                    extractor = kind(feature_size=config.num_mel_bins)
        except Exception as error:  # a wrong value raises any type
            first_line = str(error).strip().partition("\n")[0][:200]
            raise ModelUnavailable(
                f"preprocessor_config.json in {folder} cannot be used ({first_line}). Download or "
                "copy the file again."
            ) from error
        return cls(extractor, generation_config, config)

    @property
    def rate(self) -> int:
        """The model's sample rate, in Hz."""
        return self._extractor.sampling_rate

    @property
    def window_s(self) -> float:
        """Length of a window in seconds."""
        return self._extractor.n_samples / self.rate

    @property
    def tick_s(self) -> float:
        """Seconds from one timestamp to the next: two frames, one position of the encoder."""
        return 2 * self._extractor.hop_length / self.rate

    def features(self, samples: np.ndarray) -> np.ndarray:
        """The log-mel spectrogram of a window, padded with silence: (frames, mel bands) float32.

        Args:
            samples: (n,) float32 at `rate`, at most `window_s` seconds.
        """
        batch = self._extractor(samples, sampling_rate=self.rate, return_tensors="np")
        return np.ascontiguousarray(batch["input_features"][0].T, dtype=np.float32)

    def frames_of(self, samples: np.ndarray) -> int:
        return min(self.frames, -(-len(samples) // self._extractor.hop_length))

    def language_code(self, language: str | None) -> str | None:
        """The model's code of a language; None if the model has to detect it.

        Args:
            language: a code ("de"), also with a country ("de-AT"), a name ("German") or a token
                ("<|de|>"), in upper or lower case; "auto" and "" mean None.
        """
        known = self.decoder_prompt.languages
        if language is None or (
            isinstance(language, str) and language.strip().lower() in ("", "auto")
        ):
            return next(iter(known)) if len(known) == 1 else None
        from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

        if not isinstance(language, str):
            raise InvalidRequest(f"The language must be text, not {type(language).__name__}.")
        requested = language.strip().strip("<|>").lower()
        code = TO_LANGUAGE_CODE.get(requested) or re.split("[-_]", requested)[0]
        if code in (known or ("en",)):
            return code if known else None
        choices = ", ".join(known or ["en"])
        raise InvalidRequest(
            f"This model does not know the language {language[:40]!r}. It knows: {choices}."
        )


def speech_key(rules: BucketRules, speech: SpeechInput, options: GenerationOptions) -> CacheKey:
    """The cache key of any window: all windows of a speech model have one length."""
    key = rules.key_for(1, options.num_beams, options.max_new_tokens)
    return dataclasses.replace(key, padded_length=speech.frames)


def fitting_options(
    options: GenerationOptions | None, speech: SpeechInput, context_length: int | None
) -> GenerationOptions:
    """The options, with new tokens limited to the decoder's positions."""
    assert context_length is not None  # a speech decoder's positions are learned, so bounded
    room = context_length - len(speech.decoder_prompt.tokens)
    if options is None:
        return GenerationOptions(max_new_tokens=min(room, WINDOW_TOKENS))
    for name in ("stop", "stop_token_ids", "min_new_tokens", "ignore_eos"):
        if getattr(options, name):
            raise InvalidRequest(
                f"{name} says where a text ends; a recording is transcribed to its end: leave it "
                "out."
            )
    if options.prompt_lookup_num_tokens:
        raise InvalidRequest(
            "prompt_lookup_num_tokens searches the prompt; a recording has none: leave it out."
        )
    return options.replace(max_new_tokens=min(room, options.max_new_tokens))


def works_on_text(model: str) -> InvalidRequest:
    return InvalidRequest(
        f"{model} works on text: choose a speech model to transcribe a recording."
    )
