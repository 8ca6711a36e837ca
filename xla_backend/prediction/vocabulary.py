"""`Vocabulary`: what predictions need from a model, without the model itself.

Knows how a prompt or a recording's window becomes a key. Must not know TensorFlow, nor what is in
memory or in the store.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from xla_backend.checkpoints.models import ModelFiles
from xla_backend.checkpoints.prompts import check_length, check_prompt, key_for, with_room
from xla_backend.checkpoints.speech_input import (
    SpeechInput,
    fitting_options,
    speech_key,
    works_on_text,
)
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.checkpoints.weights import sample
from xla_backend.compilation import naming
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.prompt import Prompt, TokenIds
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.results import ModelInfo
from xla_backend.matmul import kinds
from xla_backend.prediction.questions import QuestionTokens

REMEMBERED_PROMPTS = 64
REMEMBERED_LENGTH = 20_000
"""Characters; longer prompts are not worth the memory."""


class PromptEncoder:
    """Tokenizes prompts; can be pickled.

    It caches the latest prompts, because each is predicted again with other options and when sent.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._remembered = functools.lru_cache(REMEMBERED_PROMPTS)(self._encode)

    def __reduce__(self) -> tuple[type[PromptEncoder], tuple[Tokenizer]]:
        """Without the cache."""
        return PromptEncoder, (self.tokenizer,)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """A prompt's token ids, without padding."""
        if isinstance(prompt, TokenIds):
            return self._encode(prompt)
        texts = [prompt] if isinstance(prompt, str) else [message.content for message in prompt]
        is_short = sum(map(len, texts)) <= REMEMBERED_LENGTH
        return self._remembered(prompt) if is_short else self._encode(prompt)

    def _encode(self, prompt: Prompt) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(prompt))


def tokens_to_read(
    encoder: PromptEncoder, info: ModelInfo, request: TextRequest
) -> tuple[tuple[int, ...], int]:
    """The tokens that a request reads, and how many its longest row has.

    Raises:
        InvalidRequest: the prompt is empty or too long.
    """
    if request.questions:
        tokens = QuestionTokens.of(encoder.tokenizer, info, request.prompt, request.questions)
        return tuple(tokens.to_read), tokens.most_tokens
    check_prompt(request.prompt, info)
    token_ids = encoder.encode(request.prompt)
    check_length(len(token_ids), info)
    return token_ids, len(token_ids)


class Asked(NamedTuple):
    """What the engine makes of a text request.

    Attributes:
        key: its exact key.
        token_ids: of the prompt, without padding; with questions, all that is read.
        max_new_tokens: limited to the room in the context.
    """

    key: CacheKey
    token_ids: tuple[int, ...]
    max_new_tokens: int


@dataclass(frozen=True)
class Vocabulary:
    """What predictions need from a model; can be pickled.

    Attributes:
        speech: None for a text model.
        identity: see `naming.identity`.
    """

    info: ModelInfo
    encoder: PromptEncoder
    speech: SpeechInput | None
    identity: str

    @classmethod
    def load(cls, files: ModelFiles) -> Vocabulary:
        """Reads it from a model's folder.

        Raises:
            ModelUnavailable: a file is missing or damaged.
        """
        return cls(
            info=files.info,
            encoder=PromptEncoder(Tokenizer.load(files.folder, files.config.vocab_size)),
            speech=SpeechInput.load(files.folder, files.generation_config, files.config)
            if files.info.family == "speech"
            else None,
            identity=naming.identity(
                files.config,
                files.generation_config,
                sample(files.folder),
                kinds.both(files.info.weights, files.info.activations),
            ),
        )

    def asked(self, rules: BucketRules, request: TextRequest) -> Asked:
        """The key and tokens of a text request.

        Raises:
            InvalidRequest: the prompt is empty or too long.
        """
        token_ids, length = tokens_to_read(self.encoder, self.info, request)
        request = with_room(request, length, self.info)
        key = key_for(rules, self.info, length, request)
        return Asked(key, token_ids, request.options.max_new_tokens)

    def speech_key(
        self, rules: BucketRules, options: GenerationOptions | None
    ) -> tuple[CacheKey, int]:
        """The key of every window of a recording, and a whole window's frames.

        Raises:
            InvalidRequest: it is not a speech model.
        """
        if self.speech is None:
            raise works_on_text(self.info.name)
        options = fitting_options(options, self.speech, self.info.context_length)
        return speech_key(rules, self.speech, options), self.speech.frames
