"""`Vocabulary`: what predictions need from a model, without the model itself.

Knows how a prompt or a recording's window becomes a key and a prediction. Must not know TensorFlow,
nor where what is known of the engine comes from.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from xla_backend.checkpoints import kinds
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
from xla_backend.compilation.store import Store
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.prompt import Prompt, TokenIds
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.results import CacheEntry, ModelInfo, Past, Prediction
from xla_backend.prediction.prediction import RowWork, keys_of, predict
from xla_backend.prediction.prefixes import cached_tokens, root_name
from xla_backend.prediction.questions import QuestionTokens

REMEMBERED_PROMPTS = 64
REMEMBERED_LENGTH = 20_000
"""Characters; longer prompts are not worth the memory."""


class Asked(NamedTuple):
    """What the engine makes of a text request."""

    key: CacheKey  # its exact key
    token_ids: tuple[int, ...]  # of the prompt, without padding; with questions, all that is read
    max_new_tokens: int  # limited to the room in the context


class Known(NamedTuple):
    """What predictions need from an engine, here or in another process.

    Attributes:
        entries, past, prefixes: what the methods of `Backend` return.
        store: has the functions that can be restored; None for none.
    """

    entries: Iterable[CacheEntry]
    past: Past
    prefixes: Collection[str]
    store: Store | None


@dataclass(frozen=True)
class Vocabulary:
    """What predictions need from a model."""

    info: ModelInfo
    tokenizer: Tokenizer
    speech: SpeechInput | None  # None for a text model
    identity: str  # see `naming.identity`
    has_pool: bool = True  # whether it can have a pool here

    @classmethod
    def load(cls, files: ModelFiles) -> Vocabulary:
        """Reads it from a model's folder.

        Raises:
            ModelUnavailable: a file is missing or damaged.
        """
        return cls(
            info=files.info,
            tokenizer=Tokenizer.load(files.folder, files.config.vocab_size),
            speech=SpeechInput.load(files.folder, files.generation_config, files.config)
            if files.info.family == "speech"
            else None,
            identity=naming.identity(
                files.config,
                files.generation_config,
                sample(files.folder),
                kinds.all_of(files.info.weights, files.info.activations, files.info.kernels),
            ),
        )

    def asked(self, rules: BucketRules, request: TextRequest) -> Asked:
        """The key and tokens of a text request.

        Raises:
            InvalidRequest: the prompt is empty or too long.
        """
        if request.questions:
            asked = self.tokenizer, self.info, request.prompt, request.questions
            tokens = QuestionTokens.of(*asked)
            token_ids, length = tuple(tokens.to_read), tokens.most_tokens
        else:
            check_prompt(request.prompt, self.info)
            token_ids = self.encoded(request.prompt)
            check_length(length := len(token_ids), self.info)
        request = with_room(request, length, self.info)
        key = key_for(rules, self.info, length, request, self.has_pool)
        return Asked(key, token_ids, request.options.max_new_tokens)

    def encoded(self, prompt: Prompt) -> tuple[int, ...]:
        """A prompt's token ids, without padding; unchecked."""
        if isinstance(prompt, TokenIds):
            return prompt.ids
        texts = [prompt] if isinstance(prompt, str) else [message.content for message in prompt]
        is_short = sum(map(len, texts)) <= REMEMBERED_LENGTH
        return self._remembered(prompt) if is_short else tuple(self.tokenizer.encode(prompt))

    @functools.cached_property
    def _remembered(self) -> Callable[[Prompt], tuple[int, ...]]:
        """Encodes each prompt once: it is predicted with several options, and sent afterwards."""
        return functools.lru_cache(REMEMBERED_PROMPTS)(
            lambda prompt: tuple(self.tokenizer.encode(prompt))
        )

    def predict_text(self, rules: BucketRules, request: TextRequest, known: Known) -> Prediction:
        """Predicts outcome and duration of a text request; errors as for `asked`."""
        asked = self.asked(rules, request)
        tokens, row = len(asked.token_ids), None
        if asked.key.is_pooled:
            root = root_name(self.identity, request.cache_salt)
            cached = cached_tokens(known.prefixes, root, asked.token_ids)
            row = RowWork(tokens, cached, asked.max_new_tokens)
        return self._predict(asked.key, tokens, known, request.exact_key, row)

    def predict_speech(
        self, rules: BucketRules, options: GenerationOptions | None, known: Known
    ) -> Prediction:
        """Predicts the same for a window of any recording.

        Raises:
            InvalidRequest: it is not a speech model.
        """
        if self.speech is None:
            raise works_on_text(self.info.name)
        options = fitting_options(options, self.speech, self.info.context_length)
        return self._predict(speech_key(rules, self.speech, options), self.speech.frames, known)

    def _predict(
        self,
        wanted: CacheKey,
        prompt_tokens: int,
        known: Known,
        exact_key: bool = False,
        row: RowWork | None = None,
    ) -> Prediction:
        entries = [entry for entry in known.entries if entry.model == self.info.name]
        in_memory = keys_of(entries)

        def holds(entry: str) -> bool:
            return known.store is not None and known.store.holds(entry)

        return predict(
            wanted=wanted,
            prompt_tokens=prompt_tokens,
            entries=entries,
            past=known.past.get(self.info.name, {}),
            missing=lambda key: naming.missing(self.identity, key, in_memory, holds),
            exact_key=exact_key,
            row=row,
        )
