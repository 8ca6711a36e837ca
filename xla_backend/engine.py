"""`Engine`: one loaded model with its tokenizer, and the compiled functions that run it.

Knows how a key becomes compiled functions and how they are driven, step by step. Must not know
requests, queues or other models: `backend` brings those together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tensorflow as tf

from xla_backend import families, sampling
from xla_backend.buckets import CacheKey
from xla_backend.decoding import Beams, Decoder, Text, chosen
from xla_backend.families.model import Prefilled
from xla_backend.function_cache import Built
from xla_backend.jit import TracedFunction
from xla_backend.models import ModelFiles
from xla_backend.options import GenerationOptions
from xla_backend.results import CacheOutcome
from xla_backend.speech_input import Heard, SpeechInput
from xla_backend.tokenization import Tokenizer
from xla_backend.weights import read_weights


@dataclass(frozen=True)
class KeyFunctions:
    """What runs the requests of one key.

    Attributes:
        prefill, decode: the traced functions, compiled for the key's sizes.
        state: the state before the first token; reused by every request, never written to.
    """

    prefill: TracedFunction
    decode: TracedFunction
    state: Text | Beams


class Engine:
    """A model ready to generate."""

    def __init__(self, files: ModelFiles) -> None:
        """Loads tokenizer and weights.

        Raises:
            ModelUnavailable: the files are broken or incomplete.
        """
        self.info = dataclasses.replace(files.info, loaded=True)
        self.tokenizer = Tokenizer.load(files.folder)
        arrays = read_weights(files.folder)
        self.speech, sizes = None, {}
        if files.info.family == "speech":
            self.speech = SpeechInput.load(files.folder, files.generation_config, files.config)
            sizes["prompt_length"] = len(self.speech.decoder_prompt.tokens)
        model = families.build(files.config, arrays, **sizes)
        self.context_length = model.context_length
        self._decoder = Decoder(
            model,
            eos_token_ids=_as_tuple(files.generation_config.eos_token_id),
            suppressed=_as_tuple(files.generation_config.suppress_tokens),
            suppressed_first=_as_tuple(files.generation_config.begin_suppress_tokens),
            forced_tokens=sizes.get("prompt_length", 1) - 1,
        )
        identity = _identity(files, arrays)
        self._identity = identity
        self._prefill = TracedFunction(
            name=f"xla_backend_prefill_{identity}",
            function=self._decoder.prefill,
            specs=[tf.TensorSpec([], tf.bool), *model.input_specs()],
            variables=model.variables,
            structure=model.prefilled_structure(),
        )
        self._decodes: dict[int, TracedFunction] = {}

    def build(
        self, key: CacheKey, on_step: Callable[[Literal["trace", "compile"]], None]
    ) -> Built[KeyFunctions]:
        """Traces and compiles the functions of a key.

        Args:
            key: which sizes.
            on_step: told as they begin.
        """
        on_step("trace")
        start = time.perf_counter()
        if not self._prefill.is_traced:
            self._prefill.trace()
        state = self._decoder.initial_state(key.num_beams, key.max_new_tokens)
        decode = self._decode_for(key.num_beams)
        trace_s = time.perf_counter() - start

        on_step("compile")
        start = time.perf_counter()
        inputs = self._decoder.model.example(key.padded_length)
        nothing = self._prefill(tf.constant(False), *inputs)
        options = _packed(GenerationOptions())
        decode(tf.constant(0), *options, nothing, state).count.numpy()
        compile_s = time.perf_counter() - start
        functions = KeyFunctions(self._prefill, decode, state)
        return Built(functions, CacheOutcome.MISS, trace_s, compile_s)

    def start(
        self,
        functions: KeyFunctions,
        key: CacheKey,
        prompt: list[int] | Heard,
        options: GenerationOptions,
    ) -> Run:
        """Runs the prompt: token ids, or what a speech model hears."""
        inputs = self._decoder.model.encode(prompt, key.padded_length)
        return Run(functions, functions.prefill(tf.constant(True), *inputs), _packed(options))

    def is_eos(self, token_id: int) -> bool:
        """Whether a token ends the text."""
        return token_id in self._decoder.eos_token_ids

    def language_heard(self, run: Run) -> str:
        """Code of the language that a speech model thinks it hears."""
        languages = self.speech.decoder_prompt.languages
        logits = run.prefilled.context.language_logits.numpy()[0]
        return max(languages, key=lambda code: logits[languages[code]])

    def _decode_for(self, num_beams: int) -> TracedFunction:
        if num_beams not in self._decodes:
            # In a graph nothing is allocated: only the shapes are wanted.
            with tf.Graph().as_default():
                state = self._decoder.initial_state(num_beams, OPEN_SLOTS)
            decode = TracedFunction(
                name=f"xla_backend_decode_{num_beams}_{self._identity}",
                function=self._decoder.decode,
                specs=[
                    tf.TensorSpec([], tf.int32),
                    tf.TensorSpec([4], tf.float32),
                    tf.TensorSpec([5], tf.int32),
                    self._prefill.output_specs,
                    tf.nest.map_structure(_with_open_slots, state),
                ],
                variables=self._decoder.model.variables,
                structure=state,
            )
            decode.trace()
            self._decodes[num_beams] = decode
        return self._decodes[num_beams]


class Run:
    """One text under way.

    Attributes:
        prefilled: what running the prompt left behind.
    """

    def __init__(self, functions: KeyFunctions, prefilled: Prefilled, options: tuple) -> None:
        self._decode = functions.decode
        self.prefilled = prefilled
        self._options = options
        self._state = functions.state
        self.is_done = False

    def advance(self, steps: int) -> None:
        """Adds up to `steps` tokens and waits for them."""
        self._state = self._decode(tf.constant(steps), *self._options, self.prefilled, self._state)
        self.is_done = bool(self._state.done.numpy())

    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """Token ids and their log-probabilities so far; for beams, of the best text."""
        return chosen(self._state)


# Stands for the number of new tokens while a decode function is traced for all of them: no other
# size of a state may be equal to it.
OPEN_SLOTS = 1_000_003


def _with_open_slots(x: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None if d == OPEN_SLOTS else d for d in x.shape], x.dtype)


def _packed(options: GenerationOptions) -> tuple[tf.Tensor, tf.Tensor]:
    reals, integers = sampling.pack(options)
    return tf.constant(reals), tf.constant(integers)


def _as_tuple(token_ids: int | list[int] | None) -> tuple[int, ...]:
    if token_ids is None:
        return ()
    return (token_ids,) if isinstance(token_ids, int) else tuple(token_ids)


def _identity(files: ModelFiles, arrays: Mapping[str, np.ndarray]) -> str:
    """A name for what is compiled: the architecture, its special tokens, and these very weights.

    Every array takes part with its name, shape and a sample of its values: hashing half a gigabyte
    whole would cost more than restoring a function from disk.
    """
    digest = hashlib.blake2b(digest_size=10)
    digest.update(files.config.to_json_string(use_diff=False).encode())
    digest.update(files.generation_config.to_json_string(use_diff=False).encode())
    for name in sorted(arrays):
        flat = arrays[name].reshape(-1)
        digest.update(f"{name}{arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(flat[:: max(1, flat.size // 256)]).tobytes())
    return digest.hexdigest()
