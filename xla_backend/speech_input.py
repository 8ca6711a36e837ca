"""What a speech model is given: a window's spectrogram, and the decoder prompt that asks for text.

Knows a checkpoint's feature extractor, its languages and its special tokens. Must not know
TensorFlow, recordings as files (`audio`), or how text is generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from xla_backend.errors import InvalidRequest, ModelUnavailable
from xla_backend.transformers_import import transformers_alone

if TYPE_CHECKING:
    from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor


class Heard(NamedTuple):
    """The prompt of a speech model.

    Attributes:
        features: log-mel spectrogram of a whole window, (frames, mel bands) float32.
        decoder_prompt: the tokens before the first new one, for one model always as many.
    """

    features: np.ndarray
    decoder_prompt: tuple[int, ...]


@dataclass(frozen=True)
class DecoderPrompt:
    """The tokens that a text starts with: start, language, task, "no timestamps".

    Attributes:
        tokens: for English, or else the first language. An English-only model has no language and
            no task.
        languages: token of each language by its code ("en"), empty for an English-only model.
    """

    tokens: tuple[int, ...]
    languages: dict[str, int]

    @classmethod
    def read(cls, generation_config: GenerationConfig, config: WhisperConfig) -> DecoderPrompt:
        """The decoder prompt as the checkpoint's generation config has it.

        Raises:
            ModelUnavailable: a token that the model needs is not there.
        """
        start = generation_config.decoder_start_token_id
        start = config.decoder_start_token_id if start is None else start
        by_name = getattr(generation_config, "lang_to_id", None) or {}
        tasks = getattr(generation_config, "task_to_id", None) or {}
        forced = dict(getattr(generation_config, "forced_decoder_ids", None) or [])
        no_timestamps = getattr(generation_config, "no_timestamps_token_id", None)
        languages = {name.strip("<|>"): token for name, token in by_name.items()}
        if languages:
            first = languages.get("en", next(iter(languages.values())))
            asked = [first, tasks.get("transcribe"), no_timestamps]
        else:
            asked = [token for _, token in sorted(forced.items()) if token is not None]
            if no_timestamps is not None and no_timestamps not in asked:
                asked.append(no_timestamps)
        tokens = [start, *asked]
        if not all(isinstance(token, int) and 0 <= token < config.vocab_size for token in tokens):
            raise ModelUnavailable(
                "generation_config.json does not say which tokens start a transcript "
                f"(it leads to {tokens}): copy the file of the published model."
            )
        return cls(tuple(tokens), languages)

    def for_language(self, code: str) -> tuple[int, ...]:
        """The tokens for another language."""
        start, _, *rest = self.tokens
        return (start, self.languages[code], *rest)


class SpeechInput:
    """How recordings become the input of one speech model."""

    def __init__(
        self,
        extractor: WhisperFeatureExtractor,
        generation_config: GenerationConfig,
        config: WhisperConfig,
    ) -> None:
        """Checks that the three agree; `load` is the usual way.

        Raises:
            ModelUnavailable: they do not.
        """
        self.decoder_prompt = DecoderPrompt.read(generation_config, config)
        self.frames = extractor.n_samples // extractor.hop_length
        self._extractor = extractor
        expected = (2 * config.max_source_positions, config.num_mel_bins)
        found = (self.frames, extractor.feature_size)
        if found != expected:
            raise ModelUnavailable(
                "preprocessor_config.json and config.json do not fit together: a window has "
                f"{found[0]} frames of {found[1]} bands, and the model wants {expected[0]} of "
                f"{expected[1]}."
            )

    @classmethod
    def load(
        cls, folder: Path, generation_config: GenerationConfig, config: WhisperConfig
    ) -> SpeechInput:
        """Reads the feature extractor of a model's folder.

        Raises:
            ModelUnavailable: its file is damaged, or does not fit the model.
        """
        try:
            with transformers_alone() as transformers:
                extractor = transformers.WhisperFeatureExtractor.from_pretrained(
                    str(folder), local_files_only=True
                )
        except Exception as error:  # whatever a made-up value provokes
            first_line = str(error).strip().partition("\n")[0][:200]
            raise ModelUnavailable(
                f"preprocessor_config.json in {folder} cannot be used ({first_line}). Download or "
                "copy the file again."
            ) from error
        return cls(extractor, generation_config, config)

    @property
    def rate(self) -> int:
        """Samples a second that the model hears."""
        return self._extractor.sampling_rate

    @property
    def window_s(self) -> float:
        """Seconds that the model hears at once."""
        return self._extractor.n_samples / self.rate

    def features(self, samples: np.ndarray) -> np.ndarray:
        """The log-mel spectrogram of a window, filled up with silence.

        Args:
            samples: (n,) float32 at `rate`, at most `window_s` seconds.

        Returns:
            (frames, mel bands) float32.
        """
        batch = self._extractor(samples, sampling_rate=self.rate, return_tensors="np")
        return np.ascontiguousarray(batch["input_features"][0].T, dtype=np.float32)

    def frames_of(self, samples: np.ndarray) -> int:
        """How many frames of the window the samples fill."""
        return min(self.frames, -(-len(samples) // self._extractor.hop_length))

    def language_code(self, language: str | None) -> str | None:
        """The code of a language as the model knows it; None where it shall listen for itself.

        Args:
            language: a code ("de"), a name ("German") or a token ("<|de|>"), in any case.

        Raises:
            InvalidRequest: the model does not know the language.
        """
        known = self.decoder_prompt.languages
        if language is None:
            return next(iter(known)) if len(known) == 1 else None
        from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

        if not isinstance(language, str):
            raise InvalidRequest(f"The language must be text, not {type(language).__name__}.")
        wanted = language.strip().strip("<|>").lower()
        code = TO_LANGUAGE_CODE.get(wanted, wanted)
        if code in (known or ("en",)):
            return code if known else None
        choices = ", ".join(known or ["en"])
        raise InvalidRequest(
            f"This model does not know the language {language[:40]!r}. It knows: {choices}."
        )
