"""`Model`: what every family offers to the decoding loops, and to nobody else.

Knows the seam's shapes. Must not know any architecture. Axes: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from xla_backend.families.blocks import KeysValues


class Prefilled(NamedTuple):
    """What running the prompt leaves behind.

    Attributes:
        logits: of the first new token, `[B, V]`; `Model.prefill` runs one prompt, so B is 1 there.
        seen: tokens that the repetition penalty counts as repeated, `[B, V]` bool.
        context: what `step` needs of the prompts, any nest of tensors, the same for all rows of a
            text. The first axis of each counts texts, or texts times heads.
    """

    logits: tf.Tensor
    seen: tf.Tensor
    context: Any


def side_by_side(prefilled: Sequence[Prefilled]) -> Prefilled:
    """What `step` needs of several texts, from what each prompt left behind."""
    if len(prefilled) == 1:
        return prefilled[0]
    return tf.nest.map_structure(lambda *x: tf.concat(x, axis=0), *prefilled)


class Model(Protocol):
    """A model with its weights, ready to be traced."""

    @property
    def vocabulary_size(self) -> int:
        """V, the number of logits."""

    @property
    def context_length(self) -> int | None:
        """Most prompt and new tokens together; None where only memory bounds them."""

    @property
    def variables(self) -> Mapping[str, tf.Variable]:
        """Every weight, by a name that stays the same from load to load."""

    def input_specs(self) -> list[tf.TensorSpec]:
        """The arguments of `prefill`. A None in a shape is the padded length."""

    def encode(self, prompt: Any, padded_length: int) -> list[tf.Tensor]:
        """A prompt (token ids; what speech models hear) as arguments of `prefill`, padded."""

    def example(self, padded_length: int) -> list[tf.Tensor]:
        """Arguments of `prefill` that have a prompt's sizes; their values mean nothing."""

    def prefilled_structure(self) -> Prefilled:
        """A nest shaped like `prefill`'s result; its leaves mean nothing."""

    def prefill(self, *inputs: tf.Tensor) -> Prefilled:
        """Runs the prompt."""

    def step(
        self,
        token_ids: tf.Tensor,
        index: tf.Tensor,
        context: Any,
        new: list[KeysValues],
        new_bias: tf.Tensor,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        """Runs one token a row.

        Args:
            token_ids: `[R, B]` int32, the tokens to feed.
            index: scalar int32, which new token of their texts they are, from 0.
            context: from `prefill`, side by side.
            new: keys and values of the new tokens so far, `[G, N, R, D]` a layer.
            new_bias: broadcastable to `[R, B, N * R]`, hides from each row what is not of its beam
                so far.

        Returns:
            Logits `[B * R, V]`, text by text, and the keys and values of these tokens,
            `[R, G, D]` a layer, which belong into slot `index` of `new`.
        """

    def empty_new(self, texts: int, rows: int, slots: int) -> list[KeysValues]:
        """Room for the keys and values of `slots` new tokens in each row of each text."""
