"""`Engine`: one loaded model with its tokenizer, and the compiled functions that run it.

Knows how a key becomes compiled functions and how they are driven, step by step. Must not know
requests, queues or other models: `backend` brings those together.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tensorflow as tf

from xla_backend import families, first_use, naming, sampling
from xla_backend.buckets import CacheKey
from xla_backend.compiler import Compiler
from xla_backend.decoding import Beams, Chosen, Decoder, Text, chosen
from xla_backend.families.model import Prefilled, side_by_side
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
    """What runs the requests of one key, alone or several side by side.

    Attributes:
        prefill, decode: compiled for the key's sizes. Prompts run one after the other: their many
            tokens keep the processor busy, other than one token a text does.
        state: the state before the first token; reused by every run, never written to.
    """

    prefill: Callable[..., Prefilled]
    decode: Callable[..., Text | Beams]
    state: Text | Beams

    @property
    def batch_size(self) -> int:
        """How many texts `decode` writes side by side."""
        return self.state.done.shape[0]


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
        self._decodes: dict[tuple[int, int], TracedFunction] = {}
        self._compiled_prefills: dict[int, Callable[..., Prefilled]] = {}
        self._rehearsed_prefills: set[int] = set()
        self._building = threading.Lock()
        self._slot_bytes: int | None = None

    @property
    def identity(self) -> str:
        """See `naming.identity`."""
        return self._identity

    def trace(self, key: CacheKey, batch_size: int = 1) -> tuple[float, bool]:
        """The first half of `build`, for work that goes in steps.

        Returns:
            The seconds it took, and whether nothing had to be traced.
        """
        with self._building:
            start = time.perf_counter()
            is_restored = self._compiler.trace(self._prefill)
            is_restored &= self._compiler.trace(self._decode_for(key.num_beams, batch_size))
            return time.perf_counter() - start, is_restored

    def build(
        self,
        key: CacheKey,
        on_step: Callable[[Literal["trace", "compile"]], None],
        batch_size: int = 1,
    ) -> Built[KeyFunctions]:
        """Makes the functions of a key ready to run, from the store or by tracing and compiling.

        Prefill is compiled beside the tracing of decode: XLA does not need Python's lock.

        Args:
            key: which sizes.
            on_step: told when each step begins.
            batch_size: for how many texts side by side.
        """
        # One key at a time: two would fight for the processor and for the shared prefill.
        with self._building, ThreadPoolExecutor(1) as beside:
            on_step("trace")
            start = time.perf_counter()
            is_restored = [self._compiler.trace(self._prefill)]
            prefill = beside.submit(self._compile_prefill, key)
            decode = self._decode_for(key.num_beams, batch_size)
            is_restored.append(self._compiler.trace(decode))
            trace_s = time.perf_counter() - start

            on_step("compile")
            start = time.perf_counter()
            state = self._decoder.initial_state(key.num_beams, key.max_new_tokens, batch_size)
            run_decode, decode_is_restored = self._compile_decode(decode, key, state)
            run_prefill, prefill_is_restored = prefill.result()
            is_restored += [decode_is_restored, prefill_is_restored]
            compile_s = time.perf_counter() - start
        outcome = CacheOutcome.DISK if all(is_restored) else CacheOutcome.MISS
        return Built(KeyFunctions(run_prefill, run_decode, state), outcome, trace_s, compile_s)

    def rehearse(self, functions: KeyFunctions, key: CacheKey) -> None:
        """Has the functions of a key do once what only their first run does, and a step of text.

        A product of several rows prepares itself when it first runs, each in its own 2 ms.
        """
        self._rehearse_prefill(key.padded_length)
        batch_size = functions.batch_size
        options = _packed([GenerationOptions()] * batch_size)
        prefilled = self._nothing_prefilled(key, batch_size)
        state = functions.decode(tf.constant(1), *options, prefilled, functions.state)
        state.count.numpy()

    def start(
        self,
        functions: KeyFunctions,
        key: CacheKey,
        prompts: Sequence[list[int] | Heard],
        options: Sequence[GenerationOptions],
    ) -> Run:
        """Runs prompts: token ids, or what a speech model hears. At most `functions.batch_size`."""

        def prefill(prompt: list[int] | Heard) -> Prefilled:
            inputs = self._decoder.model.encode(prompt, key.padded_length)
            return functions.prefill(tf.constant(True), *inputs)

        return Run(functions, [prefill(prompt) for prompt in prompts], options)

    def most_side_by_side(self, key: CacheKey) -> int:
        """How many texts of a key may run side by side without filling the memory."""
        if self._slot_bytes is None:
            with tf.Graph().as_default():  # nothing is allocated
                slot = tf.nest.flatten(self._decoder.model.empty_new(1, 1, 1))
            self._slot_bytes = sum(x.dtype.size * x.shape.num_elements() for x in slot)
        slots = key.padded_length + key.num_beams * key.max_new_tokens
        return max(1, MOST_KEYS_VALUES // (slots * self._slot_bytes))

    def is_eos(self, token_id: int) -> bool:
        """Whether a token ends the text."""
        return token_id in self._decoder.eos_token_ids

    def tokens(self, run: Run, text: int = 0) -> tuple[Token, ...]:
        """The tokens of one of a run's texts so far, with their own texts."""
        read = self.tokenizer.token_text
        return tuple(
            Token(
                id,
                read(id),
                logprob,
                tuple(LikelyToken(*one) for one in zip(ids, map(read, ids), logprobs, strict=True)),
            )
            for id, logprob, ids, logprobs in zip(
                *(values.tolist() for values in run.chosen(text)), strict=True
            )
        )

    def language_heard(self, run: Run) -> str:
        """Code of the language that a speech model thinks it hears."""
        languages = self.speech.decoder_prompt.languages
        logits = run.prefilled.context.language_logits.numpy()[0]
        return max(languages, key=lambda code: logits[languages[code]])

    def _decode_for(self, num_beams: int, batch_size: int) -> TracedFunction:
        """The decode function for a number of beams and texts; prefill has been traced."""
        sizes = (num_beams, batch_size)
        if sizes not in self._decodes:
            # In a graph nothing is allocated: only the shapes are wanted.
            with tf.Graph().as_default():
                state = self._decoder.initial_state(num_beams, OPEN_SLOTS, batch_size)
            self._decodes[sizes] = TracedFunction(
                name=naming.decode_function(self._identity, num_beams, batch_size),
                function=self._decoder.decode,
                specs=[
                    tf.TensorSpec([], tf.int32),
                    tf.TensorSpec([batch_size, 4], tf.float32),
                    tf.TensorSpec([batch_size, 5], tf.int32),
                    self._prefilled_specs(batch_size),
                    tf.nest.map_structure(_with_open_slots, state),
                ],
                variables=self._decoder.model.variables,
                structure=state,
            )
        return self._decodes[sizes]

    def _prefilled_specs(self, batch_size: int) -> Prefilled:
        """What prompts side by side leave behind."""

        def repeated(spec: tf.TensorSpec) -> tf.TensorSpec:
            first, *others = spec.shape
            return tf.TensorSpec([batch_size * first, *others], spec.dtype)

        return tf.nest.map_structure(repeated, self._prefill.output_specs)

    def _compile_prefill(self, key: CacheKey) -> tuple[Callable[..., Prefilled], bool]:
        length = key.padded_length
        if length in self._compiled_prefills:
            return self._compiled_prefills[length], True
        prefill, is_restored = self._compiler.compile(
            self._prefill,
            naming.prefill_code_entry(self._identity, length),
            [tf.constant(False), *self._decoder.model.example(length)],
        )
        self._compiled_prefills[length] = prefill
        # Decode has more code and takes longer. What the first prompt would have to wait for is
        # done meanwhile, unless running the example itself would keep both cores from decode.
        if self.speech is None and length <= REHEARSED_LENGTH:
            self._rehearse_prefill(length)
        return prefill, is_restored

    def _rehearse_prefill(self, length: int) -> None:
        if length not in self._rehearsed_prefills:
            inputs = self._decoder.model.example(length)
            prefilled = self._compiled_prefills[length](tf.constant(True), *inputs)
            tf.nest.flatten(prefilled)[0].numpy()
            self._rehearsed_prefills.add(length)

    def _nothing_prefilled(self, key: CacheKey, batch_size: int) -> Prefilled:
        """What prompts of nothing would leave behind."""

        def zeros(spec: tf.TensorSpec) -> tf.Tensor:
            return tf.zeros([key.padded_length if d is None else d for d in spec.shape], spec.dtype)

        return tf.nest.map_structure(zeros, self._prefilled_specs(batch_size))

    def _compile_decode(
        self, decode: TracedFunction, key: CacheKey, state: Text | Beams
    ) -> tuple[Callable[..., Text | Beams], bool]:
        batch_size = state.done.shape[0]
        prefilled = self._nothing_prefilled(key, batch_size)
        options = _packed([GenerationOptions()] * batch_size)
        return self._compiler.compile(
            decode,
            naming.decode_code_entry(self._identity, key, batch_size),
            [tf.constant(0), *options, prefilled, state],
        )


class Run:
    """Texts under way, side by side.

    Attributes:
        prefilled: what running the prompts left behind.
        is_done: of each text, whether it has ended.
    """

    def __init__(
        self,
        functions: KeyFunctions,
        prefilled: list[Prefilled],
        options: Sequence[GenerationOptions],
    ) -> None:
        self._decode = functions.decode
        self._state = functions.state
        # Rows for which there is no text repeat the first one, and have ended before they begin.
        missing = functions.batch_size - len(prefilled)
        self.prefilled = side_by_side([*prefilled, *prefilled[:1] * missing])
        self._options = _packed([*options, *options[:1] * missing])
        self._limits = np.array([each.max_new_tokens for each in options])
        self._steps = 0
        self.is_done = np.arange(functions.batch_size) >= len(prefilled)
        if missing:
            self._state = self._state._replace(done=tf.constant(self.is_done))

    def advance(self, steps: int) -> None:
        """Adds up to `steps` tokens to each text that has not ended, and waits for them."""
        state = self._decode(tf.constant(steps), *self._options, self.prefilled, self._state)
        self.is_done = state.done.numpy()
        self._state = state
        self._steps += steps

    def steps_to_an_end(self) -> int:
        """The number of steps until the first of the texts under way has all its tokens."""
        under_way = ~self.is_done[: len(self._limits)]
        return int(self._limits[under_way].min()) - self._steps

    def end(self, text: int) -> None:
        """Adds nothing more to a text; not while `advance` is at work."""
        self.is_done = self.is_done | (np.arange(len(self.is_done)) == text)
        self._state = self._state._replace(done=tf.constant(self.is_done))

    def chosen(self, text: int = 0) -> Chosen:
        """A text so far; for beams, the best one."""
        return chosen(self._state, text)


# Bytes of keys and values in a run of several texts; while it goes on, some are there twice.
MOST_KEYS_VALUES = 384 * 10**6

REHEARSED_LENGTH = 64
"""The longest padded prompt that is run once while decode is still compiled or restored."""

# Stands for the number of new tokens while a decode function is traced for all of them: no other
# size of a state may be equal to it.
OPEN_SLOTS = 1_000_003


def _with_open_slots(x: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None if d == OPEN_SLOTS else d for d in x.shape], x.dtype)


def _packed(options: Sequence[GenerationOptions]) -> tuple[tf.Tensor, tf.Tensor]:
    reals, integers = sampling.pack(options)
    return tf.constant(reals), tf.constant(integers)


def _as_tuple(token_ids: int | list[int] | None) -> tuple[int, ...]:
    if token_ids is None:
        return ()
    return (token_ids,) if isinstance(token_ids, int) else tuple(token_ids)
