"""`FunctionBuilder`: makes the compiled functions of one model for cache keys.

Knows how a key becomes compiled functions, from the store or by tracing and compiling. Must not
know tokenizers, requests or other models.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, cast

import tensorflow as tf

from xla_backend.compilation import naming
from xla_backend.compilation.compiler import Compiler
from xla_backend.compilation.function_cache import Built
from xla_backend.compilation.traced_function import TracedFunction
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.results import CacheOutcome
from xla_backend.model import sampling
from xla_backend.model.decoding import Decoder, State
from xla_backend.model.families.model import Chunk, GrowingModel, Model, Prefilled

MAX_WARM_UP_LENGTH = 64
"""The longest padded prompt that prefill runs once while decode is still compiled or restored."""

OPEN_SIZE = 1_000_003
"""Stands for N, and for S, while decode is traced for every one: no other size of a state may be as
large."""


@dataclass(frozen=True)
class KeyFunctions:
    """The functions for the requests of one key, alone or in a batch.

    Attributes:
        prefill: compiled for one prompt. The prompts of a batch run one after the other: unlike one
            token a text, the many tokens of one prompt keep the processor busy. None where prompts
            run in chunks.
        extend: compiled for each size of these chunks.
        decode: compiled for the key's sizes and the batch size.
        state: the state before the first token; all runs start from it and none changes it.
    """

    prefill: Callable[..., Prefilled] | None
    extend: Mapping[int, Callable[..., Chunk]]
    decode: Callable[..., State]
    state: State

    @property
    def batch_size(self) -> int:
        """The number of texts that `decode` generates together."""
        return self.state.done.shape[0]


class FunctionBuilder:
    """Traces the functions of one model once, and compiles them for each key."""

    def __init__(self, decoder: Decoder, identity: str, compiler: Compiler) -> None:
        """Makes nothing yet; `identity` is from `naming.identity`."""
        self._decoder = decoder
        self._identity = identity
        self._compiler = compiler
        self._prefill = TracedFunction(
            name=naming.prefill_function(identity),
            function=decoder.prefill,
            specs=[tf.TensorSpec([], tf.bool), *decoder.model.input_specs()],
            variables=decoder.model.variables,
            structure=decoder.model.prefilled_structure(),
        )
        self._extend: TracedFunction | None = None
        if isinstance(decoder.model, GrowingModel):
            self._extend = TracedFunction(
                name=naming.extend_function(identity),
                function=decoder.extend,
                specs=[tf.TensorSpec([], tf.bool), *decoder.model.extend_specs()],
                variables=decoder.model.variables,
                structure=decoder.model.chunk_structure(),
            )
        self._decodes: dict[tuple[int, int, int], TracedFunction] = {}
        self._compiled_prefills: dict[int, Callable[..., Prefilled]] = {}
        self._compiled_extends: dict[tuple[int, int], Callable[..., Chunk]] = {}
        self._warm_prefills: set[int] = set()
        self._building = threading.Lock()

    @property
    def model(self) -> Model:
        """Whose functions these are."""
        return self._decoder.model

    def trace(self, key: CacheKey, batch_size: int = 1) -> tuple[float, bool]:
        """The first half of `build`, for work that is done in steps.

        Returns:
            The seconds it took, and whether nothing had to be traced.
        """
        with self._building:
            start = time.perf_counter()
            is_restored = self._compiler.trace(self._for_prompts(key))
            is_restored &= self._compiler.trace(self._decode_for(key, batch_size))
            return time.perf_counter() - start, is_restored

    def build(
        self,
        key: CacheKey,
        on_step: Callable[[Literal["trace", "compile"]], None],
        batch_size: int = 1,
    ) -> Built[KeyFunctions]:
        """Makes the functions of a key ready to run, from the store or by tracing and compiling.

        Prefill is compiled while decode is traced: XLA does not need Python's lock.

        Args:
            key: the sizes.
            on_step: called when each step begins.
            batch_size: the number of texts that decode generates together.
        """
        # One key at a time: two would compete for the processor and for the shared prefill.
        with self._building, ThreadPoolExecutor(1) as beside:
            on_step("trace")
            start = time.perf_counter()
            is_restored = [self._compiler.trace(self._for_prompts(key))]
            of_prompts = beside.submit(self._compile_for_prompts, key)
            decode = self._decode_for(key, batch_size)
            is_restored.append(self._compiler.trace(decode))
            trace_s = time.perf_counter() - start

            on_step("compile")
            start = time.perf_counter()
            state = self._initial_state(key, batch_size)
            run_decode, decode_is_restored = self._compiler.compile(
                decode,
                naming.decode_code_entry(self._identity, key, batch_size),
                self._decode_example(0, key, state),
            )
            prefill, extend, prompts_are_restored = of_prompts.result()
            is_restored += [decode_is_restored, prompts_are_restored]
            compile_s = time.perf_counter() - start
        outcome = CacheOutcome.DISK if all(is_restored) else CacheOutcome.MISS
        functions = KeyFunctions(prefill, extend, run_decode, state)
        return Built(functions, outcome, trace_s, compile_s)

    def examples(self, key: CacheKey) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
        """The functions of a key before they are traced, and arguments of the right sizes."""
        self._compiler.trace(self._prefill)  # whose results decode takes
        state = self._initial_state(key)
        prompt = [tf.constant(True), *self._decoder.model.example(key.padded_length)]
        return {
            "prefill": (self._decoder.prefill, prompt),
            "decode": (self._decoder_of(key).decode, self._decode_example(1, key, state)),
        }

    def warm_up(self, functions: KeyFunctions, key: CacheKey) -> None:
        """Runs the functions of a key once, decode for one step, because first runs take longer.

        A product of several rows prepares itself when it first runs, each in 2 ms.
        """
        if functions.prefill is not None:
            self._warm_up_prefill(key.padded_length)
        for size, extend in functions.extend.items():
            extend(*self._extend_example(True, key.padded_length, size)).logits.numpy()
        state = functions.decode(*self._decode_example(1, key, functions.state))
        state.count.numpy()

    def _decoder_of(self, key: CacheKey) -> Decoder:
        """With as many drafts as the key has."""
        return dataclasses.replace(self._decoder, num_drafts=key.prompt_lookup_num_tokens)

    def _initial_state(self, key: CacheKey, batch_size: int = 1) -> State:
        """See `Decoder.initial_state`."""
        return self._decoder_of(key).initial_state(
            key.num_beams, key.max_new_tokens, key.padded_length, batch_size
        )

    def _decode_for(self, key: CacheKey, batch_size: int) -> TracedFunction:
        """The decode function of a key for any lengths; what runs prompts has been traced."""
        sizes = (key.num_beams, key.prompt_lookup_num_tokens, batch_size)
        if sizes not in self._decodes:
            opened = dataclasses.replace(key, padded_length=OPEN_SIZE, max_new_tokens=OPEN_SIZE)
            # In a graph nothing is allocated: only the shapes are needed.
            with tf.Graph().as_default():
                state = self._initial_state(opened, batch_size)
            self._decodes[sizes] = TracedFunction(
                name=naming.decode_function(self._identity, key, batch_size),
                function=self._decoder_of(key).decode,
                specs=[
                    tf.TensorSpec([], tf.int32),
                    *sampling.specs(batch_size, self._decoder.model.vocabulary_size),
                    self._prefilled_specs(batch_size),
                    tf.nest.map_structure(_with_open_size, state),
                ],
                variables=self._decoder.model.variables,
                structure=state,
            )
        return self._decodes[sizes]

    def _prefilled_specs(self, batch_size: int) -> Prefilled:
        """The shapes of the results of several prompts as one batch."""

        def repeated(spec: tf.TensorSpec) -> tf.TensorSpec:
            first, *others = spec.shape
            return tf.TensorSpec([batch_size * first, *others], spec.dtype)

        model = self._decoder.model
        of_one = (
            model.prefilled_specs()
            if isinstance(model, GrowingModel)
            else self._prefill.output_specs
        )
        return tf.nest.map_structure(repeated, of_one)

    def _for_prompts(self, key: CacheKey) -> TracedFunction:
        """What runs the prompts of a key."""
        if not key.in_chunks:
            return self._prefill
        assert self._extend is not None, "only a model that grows gets keys in chunks"
        return self._extend

    def _compile_for_prompts(
        self, key: CacheKey
    ) -> tuple[Callable[..., Prefilled] | None, dict[int, Callable[..., Chunk]], bool]:
        """Prefill, or what runs chunks, and whether all was restored."""
        if not key.in_chunks:
            prefill, is_restored = self._compile_prefill(key.padded_length)
            return prefill, {}, is_restored
        made = {size: self._compile_extend(key, size) for size in key.chunk_sizes}
        extends = {size: extend for size, (extend, _) in made.items()}
        return None, extends, all(is_restored for _, is_restored in made.values())

    def _compile_extend(self, key: CacheKey, size: int) -> tuple[Callable[..., Chunk], bool]:
        """What runs chunks of a size, and whether it was restored."""
        length = key.padded_length
        if (length, size) in self._compiled_extends:
            return self._compiled_extends[length, size], True
        self._compiled_extends[length, size], is_restored = self._compiler.compile(
            self._for_prompts(key),
            naming.extend_code_entry(self._identity, length, size),
            self._extend_example(False, length, size),
        )
        return self._compiled_extends[length, size], is_restored

    def _extend_example(self, run: bool, length: int, size: int) -> list:
        """Arguments of `extend` of the right sizes, with any values."""
        prompt = tf.nest.map_structure(
            lambda spec: tf.zeros([length if d is None else d for d in spec.shape]),
            cast("GrowingModel", self._decoder.model).extend_specs()[-1],
        )
        token_ids = tf.zeros([size], tf.int32)
        return [tf.constant(run), token_ids, tf.constant(0), tf.constant(size), prompt]

    def _compile_prefill(self, length: int) -> tuple[Callable[..., Prefilled], bool]:
        """Prefill for a padded length, and whether it was restored."""
        if length in self._compiled_prefills:
            return self._compiled_prefills[length], True
        prefill, is_restored = self._compiler.compile(
            self._prefill,
            naming.prefill_code_entry(self._identity, length),
            [tf.constant(False), *self._decoder.model.example(length)],
        )
        self._compiled_prefills[length] = prefill
        # Decode has more code and takes longer, so prefill can warm up meanwhile. A long prompt
        # would take the processor from decode.
        if length <= MAX_WARM_UP_LENGTH:
            self._warm_up_prefill(length)
        return prefill, is_restored

    def _warm_up_prefill(self, length: int) -> None:
        if length not in self._warm_prefills:
            inputs = self._decoder.model.example(length)
            prefilled = self._compiled_prefills[length](tf.constant(True), *inputs)
            tf.nest.flatten(prefilled)[0].numpy()
            self._warm_prefills.add(length)

    def _decode_example(self, steps: int, key: CacheKey, state: State) -> list:
        """Arguments of decode of the right sizes, with default options and prompts of zeros."""
        batch_size = state.done.shape[0]

        def zeros(spec: tf.TensorSpec) -> tf.Tensor:
            return tf.zeros([key.padded_length if d is None else d for d in spec.shape], spec.dtype)

        prefilled = tf.nest.map_structure(zeros, self._prefilled_specs(batch_size))
        size = self._decoder.model.vocabulary_size
        options = sampling.pack([GenerationOptions()] * batch_size, size)
        return [tf.constant(steps), *options, prefilled, state]


def _with_open_size(x: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None if d >= OPEN_SIZE else d for d in x.shape], x.dtype)
