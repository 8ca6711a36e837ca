"""`FunctionBuilder`: makes the compiled functions of one model for cache keys."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from xla_backend.compilation import naming
from xla_backend.compilation.compiler import Compiler
from xla_backend.compilation.function_cache import Built
from xla_backend.compilation.traced_function import TracedFunction
from xla_backend.interface.buckets import CHUNK_SIZES, CacheKey, chunk_rows
from xla_backend.interface.options import MAX_DRAFTS, GenerationOptions
from xla_backend.interface.results import CacheOutcome
from xla_backend.kernels import grammar
from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.model import sampling
from xla_backend.model.decoding import Decoder, State, only_if
from xla_backend.model.families.model import Prefilled
from xla_backend.model.pool_decoding import Decoded, PoolDecoder, PoolState

MAX_WARM_UP_LENGTH = 64
"""The longest padded prompt that prefill runs once while decode is still compiled or restored."""

OPEN_SIZE = 1_000_003
"""Stands for N and S while decode is traced for all: larger than any other size of a state."""


@dataclass(frozen=True)
class PaddedFunctions:
    """The functions for requests of one padded length, number of beams and of new tokens.

    Attributes:
        prefill: compiled for a prompt. decode: for the sizes of the key.
        state: the state before the first token; all requests start from it and none changes it.
    """

    prefill: Callable[..., Prefilled]
    decode: Callable[..., State]
    state: State


@dataclass(frozen=True)
class PoolFunctions:
    """The functions for a number of rows of the pool, of any lengths.

    Attributes:
        read: reads a chunk of prompts; compiled for each of `CHUNK_SIZES`, with `chunk_rows`.
        decode: compiled for the rows. state: of empty rows.
        drafts: how many decode verifies at a time.
    """

    read: Mapping[int, Callable[..., tf.Tensor]]
    decode: Callable[..., Decoded]
    state: PoolState
    drafts: int

    @functools.cached_property
    def rows(self) -> int:
        return self.state.done.shape[0]


KeyFunctions = PaddedFunctions | PoolFunctions


def blocks_of_row(context_length: int) -> int:
    """The most blocks of KV memory that a row of the pool can have."""
    return -(-(context_length + MAX_DRAFTS) // BLOCK)


class FunctionBuilder:
    """Traces the functions of one model once, and compiles them for each key.

    Attributes:
        decoder: what the functions compute, of padded prompts.
    """

    def __init__(
        self, decoder: Decoder, pool: PoolDecoder | None, identity: str, compiler: Compiler
    ) -> None:
        """Compiles `decoder` and `pool`.

        Args:
            decoder: see above. pool: of rows over KV memory; None where that is impossible.
            identity: from `naming.identity`.
        """
        self.decoder = decoder
        self._pool = pool
        self._identity = identity
        self._compiler = compiler
        self._prefill = TracedFunction(
            name=naming.prefill_function(identity),
            function=decoder.prefill,
            specs=[tf.TensorSpec([], tf.bool), *decoder.model.input_specs()],
            variables=decoder.model.variables,
            structure=decoder.model.prefilled_structure(),
        )
        self._read: TracedFunction | None = None
        if pool is not None:
            self._read = TracedFunction(
                name=naming.read_function(identity),
                function=lambda run, *inputs: only_if(run, pool.read, *inputs),
                specs=[
                    tf.TensorSpec([], tf.bool),
                    tf.TensorSpec([None], tf.int32),
                    tf.TensorSpec([None], tf.int32),
                    tf.TensorSpec([None, 2], tf.int32),
                    tf.TensorSpec([None, self.blocks_of_row + 1], tf.int64),
                ],
                variables={**decoder.model.variables, **pool.variables},
                structure=0,
                changes=pool.memory.variables,
            )
        self._decodes: dict[str, TracedFunction] = {}
        self._compiled_prefills: dict[int, Callable[..., Prefilled]] = {}
        self._compiled_reads: dict[int, Callable[..., tf.Tensor]] = {}
        self._warm_prefills: set[int] = set()
        self._building = threading.Lock()

    @property
    def blocks_of_row(self) -> int:
        assert self._pool is not None, "a pool needs a model that has one"
        return blocks_of_row(self._pool.context_length)

    def trace(self, key: CacheKey, rows: int = 1) -> tuple[float, bool]:
        """The first half of `build`, for work that is done in steps.

        Returns:
            The seconds it took, and whether nothing had to be traced.
        """
        with self._building:
            start = time.perf_counter()
            is_restored = self._compiler.trace(self._for_prompts(key))
            is_restored &= self._compiler.trace(self._decode_for(key, rows))
            return time.perf_counter() - start, is_restored

    def build(
        self, key: CacheKey, on_step: Callable[[Literal["trace", "compile"]], None], rows: int = 1
    ) -> Built[KeyFunctions]:
        """Makes the functions of a key ready to run, from the store or by tracing and compiling.

        The functions that read prompts are compiled while decode is traced: XLA does not need
        Python's lock.

        Args:
            on_step: called when each step begins.
            rows: of the pool, where the key is its.
        """
        # One key at a time: two would compete for the processor and the shared prefill.
        with self._building, ThreadPoolExecutor(1) as executor:
            on_step("trace")
            start = time.perf_counter()
            is_restored = [self._compiler.trace(self._for_prompts(key))]
            of_prompts: Future[tuple[Any, bool]] = (
                executor.submit(self._compile_reads, key)
                if key.is_pooled
                else executor.submit(self._compile_prefill, key)
            )
            decode = self._decode_for(key, rows)
            is_restored.append(self._compiler.trace(decode))
            trace_s = time.perf_counter() - start

            on_step("compile")
            start = time.perf_counter()
            run_decode, decode_is_restored = self._compiler.compile(
                decode,
                naming.decode_code_entry(self._identity, key, rows),
                self._decode_example(0, key, rows),
            )
            for_prompts, prompts_are_restored = of_prompts.result()
            is_restored += [decode_is_restored, prompts_are_restored]
            compile_s = time.perf_counter() - start
        outcome = CacheOutcome.DISK if all(is_restored) else CacheOutcome.MISS
        functions: KeyFunctions
        if key.is_pooled:
            drafts = key.prompt_lookup_num_tokens
            functions = PoolFunctions(
                dict(for_prompts), run_decode, self._pool_of(key).initial_state(rows), drafts
            )
        else:
            functions = PaddedFunctions(for_prompts, run_decode, self._initial_state(key))
        return Built(functions, outcome, trace_s, compile_s)

    def examples(self, key: CacheKey) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
        """The functions of a padded key before they are traced, and arguments of its sizes."""
        self._compiler.trace(self._prefill)  # whose results decode takes
        prompt = [tf.constant(True), *self.decoder.model.example(key.padded_length)]
        return {
            "prefill": (self.decoder.prefill, prompt),
            "decode": (self.decoder.decode, self._decode_example(1, key)),
        }

    def warm_up(self, functions: KeyFunctions, key: CacheKey) -> None:
        """Runs the functions of a key once, because first runs take longer.

        In the pool with tokens that belong to no row, so nothing is written. Products of several
        rows need 2 ms each at their first run.
        """
        if isinstance(functions, PaddedFunctions):
            self._warm_up_prefill(key.padded_length)
            state = functions.decode(*self._decode_example(1, key))
            state.count.numpy()
            return
        for size, read in functions.read.items():
            read(*self._read_example(True, size)).numpy()
        steps, *options, state = self._decode_example(1, key, functions.rows)
        state = state._replace(done=tf.zeros_like(state.done))
        functions.decode(steps, *options, state).state.done.numpy()

    def _pool_of(self, key: CacheKey) -> PoolDecoder:
        """The pool with the number of drafts of the key."""
        assert self._pool is not None, "only a model with a pool gets its keys"
        return dataclasses.replace(self._pool, num_drafts=key.prompt_lookup_num_tokens)

    def _initial_state(self, key: CacheKey) -> State:
        return self.decoder.initial_state(key.num_beams, key.max_new_tokens)

    def _decode_for(self, key: CacheKey, rows: int) -> TracedFunction:
        """The decode function of a key for any lengths; those that read prompts are traced."""
        name = naming.decode_function(self._identity, key, rows)
        if name not in self._decodes:
            self._decodes[name] = (
                self._pool_decode(name, key, rows)
                if key.is_pooled
                else self._padded_decode(name, key)
            )
        return self._decodes[name]

    def _padded_decode(self, name: str, key: CacheKey) -> TracedFunction:
        opened = dataclasses.replace(key, max_new_tokens=OPEN_SIZE)
        # In a graph nothing is allocated: only the shapes are needed.
        with tf.Graph().as_default():
            state = self._initial_state(opened)
        return TracedFunction(
            name=name,
            function=self.decoder.decode,
            specs=[
                tf.TensorSpec([], tf.int32),
                *sampling.specs(1, self.decoder.model.vocabulary_size),
                self._prefill.output_specs,
                tf.nest.map_structure(_with_open_size, state),
            ],
            variables=self.decoder.model.variables,
            structure=state,
        )

    def _pool_decode(self, name: str, key: CacheKey, rows: int) -> TracedFunction:
        pool = self._pool_of(key)
        size = pool.model.vocabulary_size
        with tf.Graph().as_default():
            state = pool.initial_state(rows)
        return TracedFunction(
            name=name,
            function=pool.decode,
            specs=[
                tf.TensorSpec([], tf.int32),
                *sampling.specs(rows, size),
                tf.TensorSpec([rows, size], tf.bool),
                tf.TensorSpec([rows, size], tf.float32),
                tf.TensorSpec([rows, grammar.FIELDS], tf.int64),
                tf.TensorSpec([rows, self.blocks_of_row + 1], tf.int64),
                tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), state),
            ],
            variables={**pool.model.variables, **pool.variables},
            structure=Decoded(state, 0, 0),
            changes=pool.memory.variables,
        )

    def _for_prompts(self, key: CacheKey) -> TracedFunction:
        if not key.is_pooled:
            return self._prefill
        assert self._read is not None, "only a model with a pool gets its keys"
        return self._read

    def _compile_reads(self, key: CacheKey) -> tuple[dict[int, Callable[..., tf.Tensor]], bool]:
        """The functions that read chunks, and whether all were restored."""
        are_restored = True
        for size in CHUNK_SIZES:
            if size not in self._compiled_reads:
                self._compiled_reads[size], is_restored = self._compiler.compile(
                    self._for_prompts(key),
                    naming.read_code_entry(self._identity, key.padded_length, size),
                    self._read_example(False, size),
                )
                are_restored &= is_restored
        return self._compiled_reads, are_restored

    def _read_example(self, run: bool, size: int) -> list:
        """Arguments of `read` of the right sizes, of tokens that belong to no row."""
        rows = chunk_rows(size)
        return [
            tf.constant(run),
            tf.zeros([rows], tf.int32),
            tf.zeros([size], tf.int32),
            tf.fill([size, 2], -1),
            tf.zeros([rows, self.blocks_of_row + 1], tf.int64),
        ]

    def _compile_prefill(self, key: CacheKey) -> tuple[Callable[..., Prefilled], bool]:
        """Prefill for a padded length, and whether it was restored."""
        length = key.padded_length
        if length in self._compiled_prefills:
            return self._compiled_prefills[length], True
        prefill, is_restored = self._compiler.compile(
            self._prefill,
            naming.prefill_code_entry(self._identity, length),
            [tf.constant(False), *self.decoder.model.example(length)],
        )
        self._compiled_prefills[length] = prefill
        # Decode has more code and takes longer, so prefill can warm up meanwhile. A long prompt
        # would take the processor from decode.
        if length <= MAX_WARM_UP_LENGTH:
            self._warm_up_prefill(length)
        return prefill, is_restored

    def _warm_up_prefill(self, length: int) -> None:
        if length not in self._warm_prefills:
            inputs = self.decoder.model.example(length)
            prefilled = self._compiled_prefills[length](tf.constant(True), *inputs)
            tf.nest.flatten(prefilled)[0].numpy()
            self._warm_prefills.add(length)

    def _decode_example(self, steps: int, key: CacheKey, rows: int = 1) -> list:
        """Arguments of decode of the right sizes, with default options and prompts of zeros."""
        size = self.decoder.model.vocabulary_size
        options = sampling.pack([GenerationOptions()] * rows, size)
        if key.is_pooled:
            seen, logits = tf.zeros([rows, size], tf.bool), tf.zeros([rows, size])
            grammars = tf.zeros([rows, grammar.FIELDS], tf.int64)
            blocks = tf.zeros([rows, self.blocks_of_row + 1], tf.int64)
            state = self._pool_of(key).initial_state(rows)
            # Rows that start from given logits do not run the model.
            state = state._replace(has_logits=tf.ones([rows], tf.bool))
            return [tf.constant(steps), *options, seen, logits, grammars, blocks, state]

        def zeros(spec: tf.TensorSpec) -> tf.Tensor:
            return tf.zeros([key.padded_length if d is None else d for d in spec.shape], spec.dtype)

        prefilled = tf.nest.map_structure(zeros, self._prefill.output_specs)
        return [tf.constant(steps), *options, prefilled, self._initial_state(key)]


def _with_open_size(x: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None if d >= OPEN_SIZE else d for d in x.shape], x.dtype)
