"""`Vocabulary`: what a model makes of requests, without its weights.

Knows how a text request is prepared, and how it or a recording's window is predicted.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from xla_backend.answers.decoder import AnswerDecoder
from xla_backend.checkpoints import kinds
from xla_backend.checkpoints.models import ModelFiles
from xla_backend.checkpoints.prompts import check_length, check_options, check_prompt
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
from xla_backend.grammar import grammars
from xla_backend.interface.buckets import BucketRules, CacheKey, pool_key
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.prompt import THOUGHTS, Prompt, TokenIds, start_of_answer
from xla_backend.interface.requests import Prepared, TextRequest
from xla_backend.interface.results import CacheEntry, CacheOutcome, ModelInfo, Past, Prediction
from xla_backend.prediction.misses import explain_miss
from xla_backend.prediction.prediction import RowWork, keys_of, predict
from xla_backend.prediction.prefixes import cached_tokens, root_name
from xla_backend.prediction.questions import question_tokens

REMEMBERED_PROMPTS = 64
REMEMBERED_LENGTH = 20_000
"""Characters; longer prompts are not worth the memory."""


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
    """The description and the tokenizer of a model."""

    info: ModelInfo
    tokenizer: Tokenizer
    speech: SpeechInput | None  # None for a text model
    identity: str  # see `naming.identity`

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

    def __getstate__(self) -> dict[str, Any]:
        """Its fields: the remembered prompts stay in their process."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    def prepare(self, request: TextRequest, rules: BucketRules) -> Prepared:
        """Checks and encodes a text request.

        Raises:
            InvalidRequest: the prompt is empty or no text, an option does not fit the model, or
                fields contradict each other.
            ContextLengthExceeded: the prompt is too long.
        """
        started, info, options = time.perf_counter(), self.info, request.options
        questions = None
        if request.questions:
            questions = question_tokens(self.tokenizer, info, request.prompt, request.questions)
            token_ids, length = questions.to_read, questions.longest
        else:
            check_prompt(request.prompt, info)
            token_ids = self._encoded(request)
            check_length(length := len(token_ids), info)
        if options.logit_bias or options.stop_token_ids:
            check_options(options, self.tokenizer.rows, info)
        context = info.context_length
        if context is not None and options.max_new_tokens > context - length:
            options = options.replace(max_new_tokens=context - length)
        if request.mode_with(info) == "rows":
            assert context is not None, "rows have one"
            key = pool_key(context, options.prompt_lookup_num_tokens)
        else:
            key = rules.key_for(length, options.num_beams, options.max_new_tokens, context)
        # Control tokens have no text, except those that are stop strings.
        shown = self.tokenizer.special_ids(options.stop) if options.stop else frozenset()
        opening = ""
        if isinstance(request.prompt, tuple) and not start_of_answer(request.prompt):
            end = self.tokenizer.decode(token_ids[-16:]).rstrip()
            opening = THOUGHTS if end.endswith(THOUGHTS) else ""
        if options.grammar is not None:
            before = AnswerDecoder(self.tokenizer, shown, token_ids, opening).before
            options = options.replace(grammar=grammars.preamble(options.grammar, before))
        took_s = time.perf_counter() - started
        return Prepared(request, options, key, token_ids, shown, questions, took_s, opening)

    def _encoded(self, request: TextRequest) -> tuple[int, ...]:
        """A prompt's token ids, without padding; unchecked."""
        prompt = request.prompt
        if isinstance(prompt, tuple) and (request.tools or request.template):
            encode = self.tokenizer.encode
            return tuple(encode(prompt, tools=request.tools, template=request.template))
        if isinstance(prompt, TokenIds):
            return tuple(self.tokenizer.encode(prompt))
        texts = [prompt] if isinstance(prompt, str) else [message.content for message in prompt]
        is_short = sum(map(len, texts)) <= REMEMBERED_LENGTH
        return self._remembered(prompt) if is_short else tuple(self.tokenizer.encode(prompt))

    @functools.cached_property
    def _remembered(self) -> Callable[[Prompt], tuple[int, ...]]:
        """Encodes each prompt once: it is predicted with several options, and sent afterwards."""
        return functools.lru_cache(REMEMBERED_PROMPTS)(
            lambda prompt: tuple(self.tokenizer.encode(prompt))
        )

    def predict_text(self, prepared: Prepared, known: Known) -> Prediction:
        """Predicts outcome and duration of a text request."""
        tokens, row = len(prepared.token_ids), None
        if prepared.key.is_pooled:
            root = root_name(self.identity, prepared.request.cache_salt)
            cached = 0, 0
            if not prepared.request.with_prompt_logprobs:
                cached = cached_tokens(known.prefixes, root, prepared.token_ids)
            row = RowWork(tokens, cached, prepared.options.max_new_tokens)
        found = self._predict(prepared.key, tokens, known, prepared.options.may_reuse, row)
        if found.outcome is not CacheOutcome.MISS:
            return found
        in_memory = keys_of(entry for entry in known.entries if entry.model == self.info.name)
        return dataclasses.replace(found, miss=explain_miss(prepared, in_memory))

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
        key = speech_key(rules, self.speech, options)
        return self._predict(key, self.speech.frames, known, options.may_reuse)

    def _predict(
        self,
        needed: CacheKey,
        prompt_tokens: int,
        known: Known,
        may_reuse: bool,
        row: RowWork | None = None,
    ) -> Prediction:
        entries = [entry for entry in known.entries if entry.model == self.info.name]
        in_memory = keys_of(entries)

        def holds(entry: str) -> bool:
            return known.store is not None and known.store.holds(entry)

        return predict(
            needed=needed,
            prompt_tokens=prompt_tokens,
            entries=entries,
            past=known.past.get(self.info.name, {}),
            missing=lambda key: naming.missing(self.identity, key, in_memory, holds),
            may_reuse=may_reuse,
            row=row,
        )
