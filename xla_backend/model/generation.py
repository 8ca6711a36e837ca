"""`Generation`: texts that are generated together, step by step.

Knows the state of one batch and its options. Must not know requests, or how functions are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from xla_backend.interface.options import GenerationOptions
from xla_backend.model import sampling
from xla_backend.model.decoding import SingleBeamState, State
from xla_backend.model.families.model import Prefilled, as_batch
from xla_backend.model.functions import KeyFunctions
from xla_backend.model.kept_prompt import KeptPrompt, as_arrays
from xla_backend.model.output import Output
from xla_backend.model.prompt_lookup import Lookup


class Generation:
    """Texts that are generated together.

    Attributes:
        prefilled: the result of running the prompts.
        is_done: `[B]` bool, which texts have ended.
    """

    def __init__(
        self,
        functions: KeyFunctions,
        prompts: Sequence[Any],
        prefilled: Sequence[Prefilled],
        options: Sequence[GenerationOptions],
    ) -> None:
        """Begins with at most `functions.batch_size` prompts, their results and options."""
        self._decode = functions.decode
        self._state = _with_prompt(functions.state, prompts[0])
        # The rest of the batch repeats the first prompt, and has ended before it begins.
        missing = functions.batch_size - len(prefilled)
        self.prefilled = as_batch([*prefilled, *[prefilled[0]] * missing])
        self._options = sampling.pack(
            [*options, *list(options[:1]) * missing], self._state.counts.shape[-1]
        )
        self._limits = np.array([each.max_new_tokens for each in options])
        self._steps = 0
        self._lengths = np.zeros(functions.batch_size, np.int32)
        self.is_done = np.arange(functions.batch_size) >= len(prefilled)
        if missing:
            self._state = self._state._replace(done=tf.constant(self.is_done))

    def advance(self, steps: int) -> None:
        """Adds up to `steps` tokens to each text that has not ended, and waits for them."""
        state = self._decode(tf.constant(steps), *self._options, self.prefilled, self._state)
        self.is_done, self._lengths = state.done.numpy(), state.lengths.numpy()
        self._state = state
        self._steps += steps

    def steps_to_first_end(self) -> int:
        """The number of steps until the first of the texts that go on reaches its limit."""
        goes_on = ~self.is_done[: len(self._limits)]
        return int(self._limits[goes_on].min()) - self._steps

    def end(self, index: int) -> None:
        """Adds nothing more to a text; must not be called during `advance`."""
        self.is_done = self.is_done | (np.arange(len(self.is_done)) == index)
        self._state = self._state._replace(done=tf.constant(self.is_done))

    def length(self, index: int = 0) -> int:
        """The number of a text's tokens so far."""
        return int(self._lengths[index])

    def keep(self, index: int, kept: KeptPrompt, slots: int) -> KeptPrompt:
        """Adds to a text's kept prompt what was generated; must not be called during `advance`.

        With several beams nothing is added: a text's positions lie in other beams' places.

        Args:
            index: which text.
            kept: of its prompt.
            slots: how many there shall be where those that it has are too few.

        Returns:
            `kept`, or a copy with more slots.
        """
        state = self._state
        if not isinstance(state, SingleBeamState):
            return kept
        # The last token was not run.
        tokens = state.output(index).tokens[:-1].tolist()
        known = kept.answer_from
        if known + len(tokens) > kept.slots:
            kept = kept.copy(known, slots)
        tokens = tokens[: kept.slots - known]
        heads = [index * count for count, _ in kept.shapes], [count for count, _ in kept.shapes]
        kv = [
            tuple(x[first : first + count, : len(tokens), 0] for x in pair)
            for pair, first, count in zip(as_arrays(state.kv_cache), *heads, strict=True)
        ]
        kept.write(known, tokens, kv)
        return kept

    def output(self, index: int = 0) -> Output:
        """The output of a text so far; with beams, the best."""
        return self._state.output(index)

    def rows(self, count: int) -> np.ndarray:
        """Of each of a text's tokens its row in the pass that brought it, `[count]`."""
        state = self._state
        if isinstance(state, SingleBeamState) and isinstance(state.lookup, Lookup):
            return state.lookup.rows.numpy()[:count]
        return np.zeros(count, np.int32)


def _with_prompt(state: State, prompt: Any) -> State:
    """The state before the first token, where drafts are looked for in a prompt, too."""
    if isinstance(state, SingleBeamState) and isinstance(state.lookup, Lookup):
        return state._replace(lookup=state.lookup.of(prompt))
    return state
