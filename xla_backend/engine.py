"""`Engine`: one loaded model with its tokenizer, and the compiled functions that run it.

Knows how a key becomes compiled functions and how they are driven, step by step. Must not know
requests, queues or other models: `backend` brings those together.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from xla_backend import families, first_use, naming, sampling
from xla_backend.buckets import CacheKey
from xla_backend.compiler import Compiler
from xla_backend.decoding import Beams, Chosen, Decoder, Text, chosen
from xla_backend.families.model import Prefilled
from xla_backend.function_cache import Built
from xla_backend.models import ModelFiles
from xla_backend.options import GenerationOptions
from xla_backend.results import CacheOutcome, LikelyToken, Token
from xla_backend.speech_input import Heard, SpeechInput
from xla_backend.tokenization import Tokenizer
from xla_backend.traced_function import TracedFunction
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

    def __init__(self, files: ModelFiles, compiler: Compiler) -> None:
        """Loads tokenizer and weights; functions are made later, by the compiler.

        Raises:
            ModelUnavailable: the files are broken or incomplete.
        """
        with ThreadPoolExecutor(1) as beside:
            ready = beside.submit(first_use.get_over_it)
            self._load(files, compiler)
            ready.result()

    def _load(self, files: ModelFiles, compiler: Compiler) -> None:
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
        self._identity = naming.identity(files.config, files.generation_config, arrays)
        self._compiler = compiler
        self._prefill = TracedFunction(
            name=naming.prefill_function(self._identity),
            function=self._decoder.prefill,
            specs=[tf.TensorSpec([], tf.bool), *model.input_specs()],
            variables=model.variables,
            structure=model.prefilled_structure(),
        )
        self._decodes: dict[int, TracedFunction] = {}
        self._compiled_prefills: set[int] = set()
        self._building = threading.Lock()

    @property
    def identity(self) -> str:
        """See `naming.identity`."""
        return self._identity

    def trace(self, key: CacheKey) -> tuple[float, bool]:
        """The first half of `build`, for work that goes in steps.

        Returns:
            The seconds it took, and whether nothing had to be traced.
        """
        with self._building:
            start = time.perf_counter()
            is_restored = self._compiler.trace(self._prefill)
            is_restored &= self._compiler.trace(self._decode_for(key.num_beams))
            return time.perf_counter() - start, is_restored

    def build(
        self, key: CacheKey, on_step: Callable[[Literal["trace", "compile"]], None]
    ) -> Built[KeyFunctions]:
        """Makes the functions of a key ready to run, from the store or by tracing and compiling.

        Prefill is compiled beside the tracing of decode: XLA does not need Python's lock.

        Args:
            key: which sizes.
            on_step: told when each step begins.
        """
        # One key at a time: two would fight for the processor and for the shared prefill.
        with self._building, ThreadPoolExecutor(1) as beside:
            on_step("trace")
            start = time.perf_counter()
            is_restored = [self._compiler.trace(self._prefill)]
            prefill = beside.submit(self._compile_prefill, key)
            decode = self._decode_for(key.num_beams)
            is_restored.append(self._compiler.trace(decode))
            trace_s = time.perf_counter() - start

            on_step("compile")
            start = time.perf_counter()
            state = self._decoder.initial_state(key.num_beams, key.max_new_tokens)
            is_restored.append(self._compile_decode(decode, key, state))
            is_restored.append(prefill.result())
            compile_s = time.perf_counter() - start
        outcome = CacheOutcome.DISK if all(is_restored) else CacheOutcome.MISS
        return Built(KeyFunctions(self._prefill, decode, state), outcome, trace_s, compile_s)

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

    def tokens(self, run: Run) -> tuple[Token, ...]:
        """The tokens of a run so far, with their texts."""
        text = self.tokenizer.token_text
        return tuple(
            Token(
                id,
                text(id),
                logprob,
                tuple(LikelyToken(*one) for one in zip(ids, map(text, ids), logprobs, strict=True)),
            )
            for id, logprob, ids, logprobs in zip(
                *(values.tolist() for values in run.chosen()), strict=True
            )
        )

    def language_heard(self, run: Run) -> str:
        """Code of the language that a speech model thinks it hears."""
        languages = self.speech.decoder_prompt.languages
        logits = run.prefilled.context.language_logits.numpy()[0]
        return max(languages, key=lambda code: logits[languages[code]])

    def _decode_for(self, num_beams: int) -> TracedFunction:
        """The decode function for a number of beams; prefill has been traced."""
        if num_beams not in self._decodes:
            # In a graph nothing is allocated: only the shapes are wanted.
            with tf.Graph().as_default():
                state = self._decoder.initial_state(num_beams, OPEN_SLOTS)
            self._decodes[num_beams] = TracedFunction(
                name=naming.decode_function(self._identity, num_beams),
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
        return self._decodes[num_beams]

    def _compile_prefill(self, key: CacheKey) -> bool:
        if key.padded_length in self._compiled_prefills:
            return True
        inputs = self._decoder.model.example(key.padded_length)
        is_restored = self._compiler.compile(
            self._prefill,
            naming.prefill_code_entry(self._identity, key.padded_length),
            lambda: self._prefill(tf.constant(False), *inputs),
        )
        self._compiled_prefills.add(key.padded_length)
        return is_restored

    def _compile_decode(self, decode: TracedFunction, key: CacheKey, state: Text | Beams) -> bool:
        def zeros(spec: tf.TensorSpec) -> tf.Tensor:
            return tf.zeros([key.padded_length if d is None else d for d in spec.shape], spec.dtype)

        prefilled = tf.nest.map_structure(zeros, self._prefill.output_specs)
        options = _packed(GenerationOptions())
        return self._compiler.compile(
            decode,
            naming.decode_code_entry(self._identity, key),
            lambda: decode(tf.constant(0), *options, prefilled, state).count.numpy(),
        )


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

    def chosen(self) -> Chosen:
        """The text so far; for beams, the best one."""
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
