"""`Model`: the interface of every family to the decoding loop.

Knows the shapes of arguments and results. Axes: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf

from xla_backend.kernels.graph.kv_operations import Memory
from xla_backend.model.families.blocks import KeysValues
from xla_backend.model.families.kernels import States


class Prefilled(NamedTuple):
    """The result of running a prompt.

    Attributes:
        logits: of the first new token, `[B, V]`.
        seen: tokens that the repetition penalty counts as repeated, `[B, V]` bool.
        context: what `step` needs of the prompt: any nest of tensors, shared by all beams.
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
            token_ids: `[K]` int32, the current tokens.
            index: scalar int32, the place of these tokens among the new ones, from 0.
            kv_cache: keys and values of the new tokens so far, `[H, N, K, D]` a layer.
            kv_cache_bias: broadcastable to `[K, 1, N * K]`; hides the tokens of other beams and
                places that are not yet written.

        Returns:
            Logits `[K, V]`, and the keys and values of the current tokens,
            `[K, H, D]` a layer, for place `index` of `kv_cache`.
        """

    def empty_kv_cache(self, num_beams: int, length: int) -> list[KeysValues]:
        """Zeros for the keys and values of N = length new tokens, `[H, N, K, D]` a layer."""


class LayerMemory(NamedTuple):
    """What a layer remembers, and where.

    Attributes:
        block_bytes: what it takes of a block of KV memory. row_bytes: of a row's state.
        window: how many positions it sees, itself included; None: all before it.
        source: the number of the layer whose keys and values it shares; None without one.
        remembered: a nest of specs `[H, positions, D]`: positions None if it has that of each, 1 if
            it has that of the last.
    """

    block_bytes: int
    row_bytes: int
    window: int | None
    source: int | None
    remembered: Any


@runtime_checkable
class PooledModel(Model, Protocol):
    """A decoder-only model that runs any tokens of any rows in one call, over a memory.

    With that of rows one compiled function serves every length of prompt and text: the next tokens
    of several rows, a chunk of one row's prompt, or a token and the drafts after it.

    Attributes:
        layer_memory: of each layer.
        states: how texts without rows change them; None for a model without states.
    """

    @property
    def layer_memory(self) -> list[LayerMemory]: ...

    @property
    def states(self) -> States | None: ...

    def run(
        self,
        token_ids: tf.Tensor,
        places: tf.Tensor,
        memory: Memory,
        of_layers: Sequence[Any],
        only_last: bool = False,
    ) -> tuple[tf.Tensor, list[Any]]:
        """Runs tokens.

        Args:
            token_ids: `[T]` int32.
            places: `[T, 2]` int32, the row and the position of each; see `Memory`.
            memory: with these places.
            of_layers: what `Memory` calls `layer`, of each.
            only_last: whether only the last token's hidden state is wanted.

        Returns:
            The last hidden state of each, `[T, E]`, and what each layer wrote, `[T, H, D]` each.
        """

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """The logits of the tokens that follow hidden states: `[n, E] -> [n, V]`."""
