"""`Engine`: one loaded model with its tokenizer, ready to generate.

Knows what is loaded from a model's files, and how prompts become tokens with their texts. Must not
know requests, queues or other models: `backend` brings those together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import tensorflow as tf

from xla_backend.checkpoints import rotary_form
from xla_backend.checkpoints.models import ModelFiles
from xla_backend.checkpoints.speech_input import SpeechInput, SpeechPrompt
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.checkpoints.weights import read_stored, read_weights, sample
from xla_backend.compilation import first_use, naming
from xla_backend.compilation.compiler import Compiler
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.results import Token, TopLogprob
from xla_backend.model import families
from xla_backend.model.beam_search import BeamRules
from xla_backend.model.decoding import Decoder
from xla_backend.model.families.blocks import WeightReader
from xla_backend.model.families.model import Chunk, GrowingModel, Prefilled
from xla_backend.model.functions import FunctionBuilder, KeyFunctions
from xla_backend.model.generation import Generation
from xla_backend.model.kept_prompt import KeptPrompt, as_arrays
from xla_backend.products import handler, kinds
from xla_backend.products.grouped import Weights

MAX_KV_BYTES = 384 * 10**6
"""Bytes of the keys and values of a batch; while it runs, some of them exist twice."""


class Engine:
    """A loaded model.

    Attributes:
        info: about the model. identity: see `naming.identity`.
        context_length: see `Model.context_length`.
        speech: what turns sound into prompts; None for a model that reads text.
        functions: makes the compiled functions.
    """

    def __init__(self, files: ModelFiles, compiler: Compiler) -> None:
        """Loads tokenizer and weights; `functions` makes the functions later.

        Raises:
            ModelUnavailable: the files are broken or incomplete.
        """
        with ThreadPoolExecutor(1) as beside:
            ready = beside.submit(first_use.initialize_xla)
            self._load(files, compiler)
            ready.result()

    def _load(self, files: ModelFiles, compiler: Compiler) -> None:
        self.tokenizer = Tokenizer.load(files.folder)
        kind = files.info.weights
        read = read_weights if kind == kinds.FLOAT32 else read_stored
        arrays: dict[str, Weights] = {**read(files.folder)}
        self.speech, sizes = None, {}
        if files.info.family == "speech":
            self.speech = SpeechInput.load(files.folder, files.generation_config, files.config)
            sizes["prompt_length"] = len(self.speech.decoder_prompt.tokens)
        weights = WeightReader(arrays, kind)
        model = families.build(files.config, weights, **sizes)
        handler.wait_until_ready()  # for functions from disk, too
        self.info = dataclasses.replace(
            files.info,
            loaded=True,
            weights_bytes=weights.bytes,
            rounded_bits=weights.rounded_bits,
        )
        self.context_length = model.context_length
        self.identity = naming.identity(
            files.config, files.generation_config, sample(files.folder), kind
        )
        self._decoder = Decoder(
            model,
            BeamRules(
                _as_tuple(files.generation_config.eos_token_id),
                # Hugging Face counts what the decoder prompt holds beyond its start token.
                forced_tokens=sizes.get("prompt_length", 1) - 1,
                ends_at_limit=files.config.model_type in rotary_form.MODEL_TYPES,
            ),
            suppressed=_as_tuple(files.generation_config.suppress_tokens),
            suppressed_first=_as_tuple(files.generation_config.begin_suppress_tokens),
        )
        self.functions = FunctionBuilder(self._decoder, self.identity, compiler)
        with tf.Graph().as_default():  # nothing is allocated
            kv_of_token = model.empty_kv_cache(1, 1, 1)
        self._kv_shapes = [(kv.keys.shape[0], kv.keys.shape[3]) for kv in kv_of_token]
        self._token_bytes = sum(8 * heads * size for heads, size in self._kv_shapes)

    def prefill(
        self,
        functions: KeyFunctions,
        key: CacheKey,
        prompt: list[int] | SpeechPrompt,
        kept: KeptPrompt | None = None,
    ) -> Prefilled:
        """Runs a prompt: token ids, or that of a speech model.

        Args:
            functions, key: with which.
            prompt: what to run.
            kept: what is known of it, where the key is one in chunks; it then holds all of it.
        """
        if kept is not None:
            return self._extend(functions, cast("list[int]", prompt), kept)
        assert functions.prefill is not None  # the key is none in chunks
        inputs = self._decoder.model.encode(prompt, key.padded_length)
        return functions.prefill(tf.constant(True), *inputs)

    def start(
        self,
        functions: KeyFunctions,
        prompts: Sequence[list[int] | SpeechPrompt],
        prefilled: Sequence[Prefilled],
        options: Sequence[GenerationOptions],
    ) -> Generation:
        """Begins texts, at most `functions.batch_size`, after prompts that have run."""
        return Generation(functions, prompts, prefilled, options)

    def new_prompt(self, key: CacheKey) -> KeptPrompt:
        """One of which nothing is known, for a key in chunks."""
        return KeptPrompt(self._kv_shapes, key.padded_length)

    def extend(self, functions: KeyFunctions, token_ids: list[int], kept: KeptPrompt) -> Chunk:
        """Runs the next chunk of what is not known of a prompt."""
        known, sizes = len(kept.token_ids), sorted(functions.extend)
        rest = len(token_ids) - known
        size = next((size for size in sizes if size >= rest), sizes[-1])
        # A chunk does not go beyond the slots: it rather computes some positions once more.
        first = min(known, kept.slots - size)
        new = token_ids[first : first + size]
        chunk = functions.extend[size](
            tf.constant(True),
            tf.constant(new + [0] * (size - len(new)), tf.int32),
            tf.constant(first),
            tf.constant(len(new)),
            kept.prompt,
        )
        kept.write(first, new, as_arrays(chunk.kv))
        return chunk

    def _extend(self, functions: KeyFunctions, token_ids: list[int], kept: KeptPrompt) -> Prefilled:
        """Runs what is not known of a prompt, chunk by chunk."""
        chunk = self.extend(functions, token_ids, kept)
        while len(kept.token_ids) < len(token_ids):
            chunk = self.extend(functions, token_ids, kept)
        kept.answer_from = len(token_ids)
        model = cast("GrowingModel", self._decoder.model)
        return model.prefilled(token_ids, kept.prompt, chunk.logits)

    def max_batch_size(self, key: CacheKey) -> int:
        """The most texts of a key whose keys and values fit into `MAX_KV_BYTES`, at least 1.

        With prompt lookup one: its rows are drafts.
        """
        if key.prompt_lookup_num_tokens:
            return 1
        tokens = key.padded_length + key.num_beams * key.max_new_tokens
        return max(1, MAX_KV_BYTES // (tokens * self._token_bytes))

    def check(self, options: GenerationOptions) -> None:
        """Checks what only the model can know of a request's options.

        Raises:
            InvalidRequest: `logit_bias` names a token that the model does not have.
        """
        size = self._decoder.model.vocabulary_size
        if options.logit_bias and (highest := options.logit_bias[-1][0]) >= size:
            raise InvalidRequest(
                f"logit_bias names token {highest}, but {self.info.name} has the tokens 0 to "
                f"{size - 1}."
            )

    def is_eos(self, token_id: int) -> bool:
        """Whether a token ends the text."""
        return token_id in self._decoder.rules.eos_token_ids

    def tokens(self, generation: Generation, index: int = 0) -> tuple[Token, ...]:
        """The tokens of one of the texts so far, each with its own text."""
        read, output = self.tokenizer.token_text, generation.output(index)
        return tuple(
            Token(
                id,
                read(id),
                logprob,
                tuple(TopLogprob(*one) for one in zip(ids, map(read, ids), logprobs, strict=True)),
                row > 0,
            )
            for id, logprob, ids, logprobs, row in zip(
                *(values.tolist() for values in output),
                generation.rows(len(output.tokens)).tolist(),
                strict=True,
            )
        )

    def detected_language(self, generation: Generation) -> str:
        """The code of the most likely language of a recording."""
        assert self.speech is not None, "only speech models detect a language"
        languages = self.speech.decoder_prompt.languages
        logits = generation.prefilled.context.language_logits.numpy()[0]
        return max(languages, key=lambda code: logits[languages[code]])


def _as_tuple(token_ids: int | list[int] | None) -> tuple[int, ...]:
    if token_ids is None:
        return ()
    return (token_ids,) if isinstance(token_ids, int) else tuple(token_ids)
