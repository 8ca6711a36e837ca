"""`Generation`: the text of one request with a padded key, step by step."""

from __future__ import annotations

import tensorflow as tf

from xla_backend.interface.options import GenerationOptions
from xla_backend.model import sampling
from xla_backend.model.families.model import Prefilled
from xla_backend.model.functions import PaddedFunctions
from xla_backend.model.output import Output


class Generation:
    """One text while it is generated.

    Attributes:
        prefilled: the result of running the prompt.
        is_done: whether it has ended. length: how many tokens it has.
    """

    def __init__(
        self,
        functions: PaddedFunctions,
        prefilled: Prefilled,
        options: GenerationOptions,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self._decode = functions.decode
        self._state = functions.state
        self.prefilled = prefilled
        size = self._state.counts.shape[-1]
        self._options = sampling.pack([options], size, eos_token_ids)
        self.is_done = False
        self.length = 0

    def advance(self, steps: int) -> None:
        """Adds up to `steps` tokens, and waits for them."""
        self._state = self._decode(tf.constant(steps), *self._options, self.prefilled, self._state)
        self.is_done = bool(self._state.done.numpy()[0])
        self.length = int(self._state.lengths.numpy()[0])

    def output(self) -> Output:
        """The output so far; with beams, the best."""
        return self._state.output(0)
