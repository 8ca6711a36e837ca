"""`Model`: the interface of every family to the decoding loop.

Knows the shapes of arguments and results. Axes: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf

from xla_backend.kernels.graph.kv_operations import Addresses
from xla_backend.kernels.xla.kv_pages import Pages
from xla_backend.model.families.blocks import KeysValues

Memory = Addresses | Pages
"""The KV memory of a call's rows: for machine code of our own, or for XLA alone."""


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
        """The padded arguments of `prefill`, for token ids or a window of a recording."""

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
class PooledModel(Model, Protocol):
    """A decoder-only model that runs any tokens of any rows in one call, over blocks of KV memory.

    So one compiled function serves every length of prompt and text: the next tokens of several
    rows, a chunk of one row's prompt, or a token and the drafts after it.

    Attributes:
        layer_bytes: what each layer takes of a block of KV memory.
        row_bytes: of what a row remembers besides its blocks.
    """

    @property
    def layer_bytes(self) -> list[int]: ...

    @property
    def row_bytes(self) -> int: ...

    def run(self, token_ids: tf.Tensor, places: tf.Tensor, memory: Memory) -> tf.Tensor:
        """Runs tokens, and writes their keys and values into their rows' blocks.

        Args:
            token_ids: `[T]` int32.
            places: `[T, 2]` int32, the row and the position of each; see `kv_operations.attend`.
            memory: of the rows.

        Returns:
            The last hidden state of each, `[T, E]`.
        """

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """The logits of the tokens that follow hidden states: `[n, E] -> [n, V]`."""
