"""`LoadedModel`: one model with its tokenizer, loaded and ready to generate."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from xla_backend.checkpoints import kinds
from xla_backend.checkpoints.architectures.table import DECODERS
from xla_backend.checkpoints.models import ModelFiles
from xla_backend.checkpoints.speech_input import SpeechInput, SpeechPrompt
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.checkpoints.weights import read_stored, read_weights, sample
from xla_backend.compilation import first_use, naming
from xla_backend.compilation.compiler import Compiler
from xla_backend.grammar.automaton import Automaton, TokenBytes
from xla_backend.grammar.grammar_store import GrammarStore
from xla_backend.grammar.grammars import Grammars
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.results import Token, TopLogprob
from xla_backend.kernels import registration
from xla_backend.kernels.graph.grammar_operations import GrammarAddresses
from xla_backend.kernels.matmul.blocks import Blocks, Weights
from xla_backend.kernels.xla.grammar_tables import GrammarTables
from xla_backend.model import families, output, sampling, saved_weights
from xla_backend.model.beam_search import BeamRules
from xla_backend.model.decoding import Decoder
from xla_backend.model.families.blocks import WeightReader
from xla_backend.model.families.kernels import KERNELS
from xla_backend.model.families.model import PooledModel
from xla_backend.model.functions import FunctionBuilder, PaddedFunctions, blocks_of_row
from xla_backend.model.generation import Generation
from xla_backend.model.kv_memory import KVMemory
from xla_backend.model.pool_decoding import PoolDecoder
from xla_backend.model.selection import Selection

DEFAULT_KV_BYTES = 10**9
"""Memory for the keys and values of a model's pool; more where one row needs more."""
_FEW = 0.01
"""Share of a model's numbers; formats with fewer, such as that of norms, are not named."""


class LoadedModel:
    """A loaded model.

    Attributes:
        info: about the model. identity: see `naming.identity`.
        context_length: see `Model.context_length`.
        speech: converts sound to prompts; None for a text model.
        functions: makes the compiled functions. grammars: makes the tables of grammars.
    """

    def __init__(
        self, files: ModelFiles, compiler: Compiler, kv_bytes: int = DEFAULT_KV_BYTES
    ) -> None:
        """Loads tokenizer and weights; `functions` makes the functions later.

        Args:
            kv_bytes: memory for the keys and values of its pool, at most; more where one row needs
                more.

        Raises:
            ModelUnavailable: the files are broken or incomplete.
        """
        with ThreadPoolExecutor(1) as executor:
            ready = executor.submit(first_use.initialize_xla)
            self._load(files, compiler, kv_bytes)
            ready.result()

    def _load(self, files: ModelFiles, compiler: Compiler, kv_bytes: int) -> None:
        self.tokenizer = Tokenizer.load(files.folder, files.config.vocab_size)
        kind, name = files.info.weights, saved_weights.name_of(files)
        store = compiler.store
        saved = saved_weights.find(store, name) if store is not None else None
        arrays, facts = ({}, saved.facts) if saved is not None else _read(files)
        self.speech, sizes = None, {}
        if files.info.family == "speech":
            self.speech = SpeechInput.load(files.folder, files.generation_config, files.config)
            sizes["prompt_length"] = len(self.speech.decoder_prompt.tokens)
        kernels = KERNELS[files.info.kernels]
        in_eight_bits = files.info.activations == kinds.INT8
        weights = WeightReader(arrays, kind, in_eight_bits, saved, kernels)
        model = families.build(files.config, weights, **sizes)
        if store is not None and saved is None:
            facts |= {"made": weights.made, "rounded_bits": weights.rounded_bits}
            saving = (store, name, weights.memory, facts)
            threading.Thread(target=saved_weights.save, args=saving, name="save-weights").start()
        if isinstance(model, PooledModel):
            kernels.prepare(any(of.row_bytes for of in model.layer_memory))
        registration.wait_until_ready()  # for functions from disk, too
        numbers = Counter(facts["numbers"])
        self.info = dataclasses.replace(
            files.info,
            loaded=True,
            parameters=numbers.total(),
            formats=", ".join(
                name for name, of in numbers.most_common() if of > _FEW * numbers.total()
            ),
            weights_bytes=weights.bytes,
            rounded_bits=weights.rounded_bits,
            matrices=weights.matrices(),
        )
        self.context_length = model.context_length
        self.identity = naming.identity(
            files.config,
            files.generation_config,
            bytes.fromhex(facts["sample"]),
            kinds.all_of(kind, files.info.activations, files.info.kernels),
        )
        rules = BeamRules(
            _as_tuple(files.generation_config.eos_token_id),
            # Hugging Face counts what the decoder prompt holds beyond its start token.
            forced_tokens=sizes.get("prompt_length", 1) - 1,
            ends_at_limit=files.config.model_type in DECODERS,
        )
        selection = Selection(
            model.vocabulary_size,
            suppressed=_as_tuple(files.generation_config.suppress_tokens),
            suppressed_first=_as_tuple(files.generation_config.begin_suppress_tokens),
            first_timestamp=self.speech.decoder_prompt.first_timestamp if self.speech else None,
        )
        self._decoder = Decoder(model, rules, selection)
        self._pool: PoolDecoder | None = None
        if isinstance(model, PooledModel):
            assert model.context_length is not None, "decoder-only models have one"
            block_bytes = sum(of.block_bytes for of in model.layer_memory)
            state_bytes = sum(of.row_bytes for of in model.layer_memory)
            # One row of full context must fit.
            least = (blocks_of_row(model.context_length) + 1) * block_bytes + 2 * state_bytes
            memory = kernels.memory(block_bytes, max(kv_bytes, least), state_bytes)
            limits = selection, model.context_length
            self._pool = PoolDecoder(model, *limits, memory, kernels.grammars())
        tables = GrammarStore(compiler.store) if compiler.store else None
        self.grammars = Grammars(self._vocabulary, tables)
        self.functions = FunctionBuilder(self._decoder, self._pool, self.identity, compiler)

    @property
    def has_pool(self) -> bool:
        """Whether rows of any lengths can run over KV memory."""
        return self._pool is not None

    def _vocabulary(self) -> TokenBytes:
        """The texts of all tokens that can be selected."""
        return TokenBytes(
            self.tokenizer.vocabulary_bytes(self._decoder.model.vocabulary_size),
            self.eos_token_ids,
            self.tokenizer.drops_first_space(),
        )

    @property
    def memory(self) -> KVMemory:
        assert self._pool is not None, "only a model with a pool has one"
        return self._pool.memory

    @property
    def row_grammars(self) -> GrammarAddresses | GrammarTables:
        assert self._pool is not None, "only a model with a pool has some"
        return self._pool.grammars

    def start(
        self,
        functions: PaddedFunctions,
        key: CacheKey,
        prompt: list[int] | SpeechPrompt,
        options: GenerationOptions,
    ) -> Generation:
        """Runs a prompt (token ids, or that of a speech model), after which its text begins."""
        inputs = self._decoder.model.encode(prompt, key.padded_length)
        prefilled = functions.prefill(tf.constant(True), *inputs)
        return Generation(functions, prefilled, options, self.eos_token_ids)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The tokens that end a text where a request says nothing else."""
        return self._decoder.rules.eos_token_ids

    def is_end(self, token_id: int, options: GenerationOptions) -> bool:
        return token_id in sampling.ends(options, self.eos_token_ids)

    def tokens(
        self,
        written: output.Output,
        passes: Sequence[int] = (),
        first: int = 0,
        grammar: Automaton | StepByStep | None = None,
    ) -> tuple[Token, ...]:
        """The tokens of a text from one on, each with its own text.

        Args:
            passes: for each token, its row in the pass that generated it; empty without drafts.
            grammar: what the text followed.
        """
        read = self.tokenizer.token_text
        forced = [False] * len(written.tokens)
        if isinstance(grammar, Automaton):
            forced = grammar.are_forced(written.tokens.tolist())
        return tuple(
            Token(
                id,
                read(id),
                logprob,
                tuple(
                    TopLogprob(top, read(top), of_top, bool(bits >> at & 1))
                    for at, (top, of_top) in enumerate(zip(ids, logprobs, strict=True))
                ),
                place < len(passes) and passes[place] > 0,
                min(1.0, forbidden),
                forced[place],
            )
            for place, (id, logprob, ids, logprobs, forbidden, bits) in enumerate(
                zip(*(values[first:].tolist() for values in written), strict=True), first
            )
        )

    def prompt_tokens(
        self, token_ids: Sequence[int], records: Sequence[np.ndarray] | None
    ) -> tuple[Token, ...]:
        """The tokens of a prompt, of which all but the first have a record; none without records.

        Args:
            token_ids: that begin with the prompt. records: `[F]` each, see `output`.
        """
        if records is None:
            return ()
        first = Token(token_ids[0], self.tokenizer.token_text(token_ids[0]), 0.0)
        return (first, *(self.tokens(output.read(np.stack(records))) if records else ()))

    def no_speech_probability(self, generation: Generation) -> float:
        """The probability that the model gives to silence in a recording."""
        assert self.speech is not None, "only speech models hear"
        if (token := self.speech.guards.no_speech_token) is None:
            return 0.0
        logits = generation.prefilled.context.language_logits.numpy()[0].astype(np.float64)
        return float(1 / np.exp(logits - logits[token]).sum())

    def detected_language(self, generation: Generation) -> str:
        assert self.speech is not None, "only speech models detect a language"
        languages = self.speech.decoder_prompt.languages
        logits = generation.prefilled.context.language_logits.numpy()[0]
        return max(languages, key=lambda code: logits[languages[code]])


def _read(files: ModelFiles) -> tuple[dict[str, Weights], dict[str, Any]]:
    """The arrays of a checkpoint, and what later loads know of them without reading them."""
    read = read_weights if files.info.weights == kinds.FLOAT32 else read_stored
    arrays: dict[str, Weights] = {**read(files.folder)}
    numbers: Counter[str] = Counter()
    for array in arrays.values():
        form = array.name if isinstance(array, Blocks) else str(array.dtype)
        numbers[form] += math.prod(array.shape)
    return arrays, {"numbers": numbers, "sample": sample(files.folder).hex()}


def _as_tuple(token_ids: int | list[int] | None) -> tuple[int, ...]:
    if token_ids is None:
        return ()
    return (token_ids,) if isinstance(token_ids, int) else tuple(token_ids)
