"""Encoder-decoder models for text: T5, T5 v1.1 and Flan-T5.

Knows their checkpoints, their relative positions, and the embeddings and head around the stacks.
`padded_length` is the length of the encoder's input with its padding, which is on the right and
masked. The decoder prompt is the start token. Axes: see `blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import tensorflow as tf
from transformers import T5Config

from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import MASKED, FeedForward, KeysValues, Norm, WeightReader
from xla_backend.model.families.model import Prefilled
from xla_backend.model.families.stacks import (
    DecoderLayer,
    DecoderStack,
    EncoderLayer,
    EncoderStack,
    StackContext,
)


@dataclass(frozen=True)
class RelativePositions:
    """The learned biases of a stack for the distance between a key and its query.

    Attributes:
        biases: `[H, buckets]`, one for each bucket of distances.
        buckets: `[max_distance + 1]` int32, the bucket of each distance; greater distances have the
            last bucket.
        later: added to the bucket of a key after its query; None in a causal stack.
    """

    biases: tf.Variable
    buckets: np.ndarray
    later: int | None

    def __call__(self, offset: tf.Tensor) -> tf.Tensor:
        """The biases `[H, ...]` for `offset` `[...]`: the key's position minus the query's."""
        # In a causal stack the caller masks later keys: any bucket will do.
        distance = tf.maximum(offset, -offset) if self.later is not None else tf.maximum(-offset, 0)
        bucket = tf.gather(self.buckets, tf.minimum(distance, len(self.buckets) - 1))
        if self.later is not None:
            bucket += tf.where(offset > 0, self.later, 0)
        return tf.gather(self.biases, bucket, axis=1)


@dataclass(frozen=True)
class EncoderDecoder:
    """A T5 model over its weights.

    Attributes:
        embedding: `[E, V]`, token embeddings and, if tied, also the head.
        head: `[E, V]`.
        head_scale: the factor of the last hidden state before the head.
        start_token: the decoder prompt.
    """

    encoder: EncoderStack
    decoder: DecoderStack
    encoder_positions: RelativePositions
    decoder_positions: RelativePositions
    embedding: Matrix
    head: Matrix
    head_scale: float
    start_token: int
    variables: Mapping[str, tf.Variable]

    # Positions are relative, so the architecture has no limit.
    context_length = None

    @property
    def vocabulary_size(self) -> int:
        return self.head.shape[1]

    def input_specs(self) -> list[tf.TensorSpec]:
        """Token ids `[S]` and how many of them are real, both int32."""
        return [tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)]

    def encode(self, token_ids: list[int], padded_length: int) -> list[tf.Tensor]:
        """The prompt padded on the right; the model never sees the token used as padding."""
        padding = [0] * (padded_length - len(token_ids))
        return [tf.constant(token_ids + padding, tf.int32), tf.constant(len(token_ids))]

    def example(self, padded_length: int) -> list[tf.Tensor]:
        return self.encode([0], padded_length)

    def prefilled_structure(self) -> Prefilled:
        return Prefilled(0, 0, self.decoder.context_structure())

    def prefill(self, token_ids: tf.Tensor, length: tf.Tensor) -> Prefilled:
        slots = tf.range(tf.shape(token_ids)[0])
        padding_bias = tf.where(slots < length, 0.0, MASKED)
        bias = self.encoder_positions(slots[None, :] - slots[:, None]) + padding_bias
        encoded = self.encoder(self.embedding.columns(token_ids), bias)

        start = tf.constant([self.start_token])
        # Softmax over one position is 1 with any bias.
        x, context = self.decoder.prefill(
            self.embedding.columns(start), 0.0, encoded, padding_bias[None]
        )
        seen = blocks.occurring(start, tf.constant([True]), self.vocabulary_size)
        return Prefilled(self._logits(x), seen, context)

    def step(
        self,
        token_ids: tf.Tensor,
        index: tf.Tensor,
        context: StackContext,
        kv_cache: list[KeysValues],
        kv_cache_bias: tf.Tensor,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        num_beams = token_ids.shape[0]
        slots = tf.shape(kv_cache[0].keys)[1]

        # The KV cache has one key of each beam in each slot.
        slot = tf.range(slots * num_beams) // num_beams
        kv_cache_bias = self.decoder_positions(slot - index) + kv_cache_bias
        current_bias = self.decoder_positions(tf.constant([0]))
        # The start token is one position before slot 0.
        prompt_bias = self.decoder_positions(tf.reshape(-1 - index, [1]))
        biases = prompt_bias, kv_cache_bias, current_bias
        x = self.embedding.columns(token_ids)
        x, current = self.decoder.step(x, context, kv_cache, *biases)
        return self._logits(x), current

    def empty_kv_cache(self, num_beams: int, length: int) -> list[KeysValues]:
        return self.decoder.empty_kv_cache(num_beams, length)

    def _logits(self, x: tf.Tensor) -> tf.Tensor:
        return self.head.multiply(x * self.head_scale)


def distance_buckets(count: int, max_distance: int) -> np.ndarray:
    """The bucket of each distance from 0 to `max_distance`, `[max_distance + 1]` int32.

    Each of the first half of the buckets has one distance; the ranges of the second half grow
    logarithmically. In float32, as the checkpoints were trained: at the borders rounding decides.
    """
    exact = count // 2
    distances = np.arange(max_distance + 1)
    ratio = np.log(np.maximum(distances, 1).astype(np.float32) / np.float32(exact))
    scale = np.float32(math.log(max_distance / exact))
    large = exact + (ratio / scale * (count - exact)).astype(np.int32)
    return np.where(distances < exact, distances, np.minimum(large, count - 1)).astype(np.int32)


def from_t5(config: T5Config, read: WeightReader) -> EncoderDecoder:
    def norm(name: str) -> Norm:
        return Norm(read.variable(f"{name}.weight"), None, config.layer_norm_epsilon)

    def feed_forward(at: str) -> FeedForward:
        up = ["wi_0", "wi_1"] if config.is_gated_act else ["wi"]
        return FeedForward(
            up=read.linears([f"{at}.DenseReluDense.{name}" for name in up]),
            down=read.linears([f"{at}.DenseReluDense.wo"]),
            activation=blocks.activation(config.dense_act_fn),
            is_gated=config.is_gated_act,
        )

    def encoder_layer(at: str, last: int = 1) -> EncoderLayer:
        return EncoderLayer(
            attention_norm=norm(f"{at}.0.layer_norm"),
            qkv=read.linears([f"{at}.0.SelfAttention.{x}" for x in "qkv"]),
            attention_out=read.linears([f"{at}.0.SelfAttention.o"]),
            feed_forward_norm=norm(f"{at}.{last}.layer_norm"),
            feed_forward=feed_forward(f"{at}.{last}"),
        )

    def decoder_layer(at: str) -> DecoderLayer:
        return DecoderLayer(
            *encoder_layer(at, 2),
            cross_norm=norm(f"{at}.1.layer_norm"),
            cross_query=read.linears([f"{at}.1.EncDecAttention.q"]),
            cross_keys_values=read.linears([f"{at}.1.EncDecAttention.{x}" for x in "kv"]),
            cross_out=read.linears([f"{at}.1.EncDecAttention.o"]),
        )

    def positions(stack: str, is_bidirectional: bool) -> RelativePositions:
        # All layers use the biases of the first.
        name = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        count = config.relative_attention_num_buckets
        half = count // 2 if is_bidirectional else None
        return RelativePositions(
            biases=read.transposed(name),
            buckets=distance_buckets(half or count, config.relative_attention_max_distance),
            later=half,
        )

    assert config.num_decoder_layers is not None, "T5Config says as many as in the encoder"
    embedding = read.matrix("shared.weight")
    start = config.decoder_start_token_id
    # T5 does not scale scores: its weights are initialized smaller instead.
    return EncoderDecoder(
        encoder=EncoderStack(
            layers=tuple(
                encoder_layer(f"encoder.block.{i}.layer") for i in range(config.num_layers)
            ),
            final_norm=norm("encoder.final_layer_norm"),
            heads=config.num_heads,
            score_scale=1.0,
        ),
        decoder=DecoderStack(
            layers=tuple(
                decoder_layer(f"decoder.block.{i}.layer") for i in range(config.num_decoder_layers)
            ),
            final_norm=norm("decoder.final_layer_norm"),
            heads=config.num_heads,
            score_scale=1.0,
        ),
        encoder_positions=positions("encoder", is_bidirectional=True),
        decoder_positions=positions("decoder", is_bidirectional=False),
        embedding=embedding,
        head=read.head(config, embedding),
        head_scale=config.d_model**-0.5 if config.tie_word_embeddings else 1.0,
        start_token=cast(int, config.pad_token_id if start is None else start),
        variables=read.variables,
    )
