"""`Model`: the interface of every family to the decoding loop.

Knows the shapes of arguments and results. Must not know any architecture. Axes: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf

from xla_backend.model.families.blocks import KeysValues


class Prefilled(NamedTuple):
    """The result of running prompts.

    Attributes:
        logits: of the first new token, `[B, V]`; `Model.prefill` runs one prompt, so B is 1 there.
        seen: tokens that the repetition penalty counts as repeated, `[B, V]` bool.
        context: what `step` needs of the prompts: any nest of tensors, shared by all beams. The
            first axis of each is B or G.
    """

    logits: tf.Tensor
    seen: tf.Tensor
    context: Any


class Chunk(NamedTuple):
    """The result of running a chunk of a prompt, C positions.

    Attributes:
        logits: of the token after its last one, `[1, V]`.
        kv: keys and values of its positions, `[H, C, D]` a layer.
    """

    logits: tf.Tensor
    kv: list[KeysValues]


def as_batch(prefilled: Sequence[Prefilled]) -> Prefilled:
    """Concatenates the results of several prompts into one for a batch."""
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
        """The most tokens of prompt and output together; None where only memory limits them."""

    @property
    def variables(self) -> Mapping[str, tf.Variable]:
        """All weights, by names that are the same at each load."""

    def input_specs(self) -> list[tf.TensorSpec]:
        """The arguments of `prefill`. A None in a shape is the padded length."""

    def encode(self, prompt: Any, padded_length: int) -> list[tf.Tensor]:
        """A prompt (token ids, or a window of a recording) as arguments of `prefill`, padded."""

    def example(self, padded_length: int) -> list[tf.Tensor]:
        """Arguments of `prefill` of the right sizes, with any values."""

    def prefilled_structure(self) -> Prefilled:
        """A nest of the same structure as the result of `prefill`, with any leaves."""

    def prefill(self, *inputs: tf.Tensor) -> Prefilled:
        """Runs the prompt."""

    def step(
        self,
        token_ids: tf.Tensor,
        index: tf.Tensor,
        context: Any,
        kv_cache: list[KeysValues],
        kv_cache_bias: tf.Tensor,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        """Runs the current token of each beam.

        Args:
            token_ids: `[K, B]` int32, the current tokens.
            index: scalar int32, the place of these tokens among the new ones, from 0.
            context: from `prefill`, for the batch.
            kv_cache: keys and values of the new tokens so far, `[G, N, K, D]` a layer.
            kv_cache_bias: broadcastable to `[K, B, N * K]`; hides the tokens of other beams and
                places that are not yet written.

        Returns:
            Logits `[B * K, V]`, text by text, and the keys and values of the current tokens,
            `[K, G, D]` a layer, for place `index` of `kv_cache`.
        """

    def empty_kv_cache(self, batch_size: int, num_beams: int, length: int) -> list[KeysValues]:
        """Zeros for the keys and values of N = length new tokens, `[G, N, K, D]` a layer."""


@runtime_checkable
class GrowingModel(Model, Protocol):
    """A model that can run several positions at once behind those that are known.

    So a prompt can also run in chunks, each behind what is kept of those before it, and drafts of
    the next tokens can be verified in one pass.

    A position's keys and values depend on the tokens up to it alone, not on the slot where they
    lie: so they serve every prompt that begins with the same tokens.
    """

    def extend_specs(self) -> list[Any]:
        """The arguments of `extend`: a None is C, or the slots S."""

    def extend(
        self, token_ids: tf.Tensor, kept: tf.Tensor, count: tf.Tensor, prompt: list[KeysValues]
    ) -> Chunk:
        """Runs further tokens of a prompt.

        Args:
            token_ids: `[C]` int32.
            kept: scalar int32, the positions before them, whose keys and values are known.
            count: scalar int32, how many of the tokens are the prompt's; what the others give
                means nothing.
            prompt: keys and values `[H, S, D]` a layer, of which the first `kept` slots are read.
        """

    def verify(
        self, token_ids: tf.Tensor, index: tf.Tensor, context: Any, kv_cache: list[KeysValues]
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        """Runs the current token of one text and drafts of those after it, in one pass.

        Args:
            token_ids: `[C]` int32, the current token first.
            index: scalar int32, its place among the new ones.
            context: from `prefill`, for one text.
            kv_cache: as for `step`, of one beam; its first `index` places are read.

        Returns:
            Logits `[C, V]`, of the token after each, and their keys and values, `[H, C, D]` a
            layer, for the places from `index` on of `kv_cache`.
        """

    def chunk_structure(self) -> Chunk:
        """A nest of the same structure as the result of `extend`, with any leaves."""

    def prefilled_specs(self) -> Prefilled:
        """The result of `prefill` as `tf.TensorSpec`s, a None for the slots."""

    def prefilled(
        self, token_ids: Sequence[int], prompt: list[KeysValues], logits: tf.Tensor
    ) -> Prefilled:
        """What `prefill` returns, of a prompt all of whose positions are kept, from slot 0 on."""
