"""Encoder-decoder models for text: T5, T5 v1.1 and Flan-T5.

Knows their checkpoints, their relative positions, and what stands around the stacks. The key's
`padded_length` is the encoder's input: padding stands on the right and is masked. The decoder
prompt is the one start token. Must not know how tokens are chosen. Axes: see `blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from transformers import T5Config

from xla_backend.families import blocks
from xla_backend.families.blocks import MASKED, FeedForward, KeysValues, Norm, WeightReader
from xla_backend.families.model import Prefilled
from xla_backend.families.stacks import Context, Decoder, DecoderLayer, Encoder, EncoderLayer


@dataclass(frozen=True)
class RelativePositions:
    """A stack's learned biases for how far a key stands from its query.

    Attributes:
        biases: `[H, B]`, one for each bucket of distances.
        buckets: `[most + 1]` int32, the bucket of each distance; beyond `most` all are as the last.
        later: what the bucket of a key after its query is raised by; None where none is after.
    """

    biases: tf.Variable
    buckets: np.ndarray
    later: int | None

    def __call__(self, offset: tf.Tensor) -> tf.Tensor:
        """The biases `[H, ...]` of `offset` `[...]`: the key's position minus the query's."""
        # Without a later half, later keys are masked by the caller: any bucket will do.
        distance = tf.maximum(offset, -offset) if self.later is not None else tf.maximum(-offset, 0)
        bucket = tf.gather(self.buckets, tf.minimum(distance, len(self.buckets) - 1))
        if self.later is not None:
            bucket += tf.where(offset > 0, self.later, 0)
        return tf.gather(self.biases, bucket, axis=1)


@dataclass(frozen=True)
class EncoderDecoder:
    """A T5 model over its weights.

    Attributes:
        embedding: `[E, V]`, token embeddings and, when tied, the head at once.
        head: `[E, V]`.
        head_scale: what the last hidden state is multiplied with before the head.
        start_token: the decoder prompt.
    """

    encoder: Encoder
    decoder: Decoder
    encoder_positions: RelativePositions
    decoder_positions: RelativePositions
    embedding: tf.Variable
    head: tf.Variable
    head_scale: float
    start_token: int
    variables: Mapping[str, tf.Variable]

    # Positions are relative: nothing in the architecture bounds them.
    context_length = None

    @classmethod
    def from_checkpoint(cls, config: T5Config, arrays: Mapping[str, np.ndarray]) -> EncoderDecoder:
        """The model of a checkpoint.

        Raises:
            ModelUnavailable: a weight is missing.
        """
        return _from_t5(config, WeightReader(arrays))

    @property
    def vocabulary_size(self) -> int:
        """How many logits a step yields."""
        return self.head.shape[1]

    def input_specs(self) -> list[tf.TensorSpec]:
        """Token ids `[P]` and how many of them are real, both int32."""
        return [tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)]

    def encode(self, token_ids: list[int], padded_length: int) -> list[tf.Tensor]:
        """The prompt padded on the right; the padding's token is never seen by the model."""
        padding = [0] * (padded_length - len(token_ids))
        return [tf.constant(token_ids + padding, tf.int32), tf.constant(len(token_ids))]

    def example(self, padded_length: int) -> list[tf.Tensor]:
        """See `Model.example`."""
        return self.encode([0], padded_length)

    def prefilled_structure(self) -> Prefilled:
        """See `Model.prefilled_structure`."""
        return Prefilled(0, 0, self.decoder.context_structure())

    def prefill(self, token_ids: tf.Tensor, length: tf.Tensor) -> Prefilled:
        """Runs the encoder and the start token; see `Model.prefill`."""
        slots = tf.range(tf.shape(token_ids)[0])
        hides_padding = tf.where(slots < length, 0.0, MASKED)
        bias = self.encoder_positions(slots[None, :] - slots[:, None]) + hides_padding
        encoded = self.encoder(blocks.embed(self.embedding, token_ids), bias)

        start = tf.constant([self.start_token])
        # One position has nothing to weigh against itself: its bias changes nothing.
        x, context = self.decoder.prefill(
            blocks.embed(self.embedding, start), 0.0, encoded, hides_padding[None]
        )
        seen = blocks.occurring(start, tf.constant([True]), self.vocabulary_size)
        return Prefilled(self._logits(x), seen, context)

    def step(
        self,
        token_ids: tf.Tensor,
        index: tf.Tensor,
        context: Context,
        new: list[KeysValues],
        new_bias: tf.Tensor,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        """Runs one token a row; see `Model.step`."""
        rows, texts = token_ids.shape
        slots = tf.shape(new[0].keys)[1]

        def positions(offset: tf.Tensor) -> tf.Tensor:
            return blocks.for_each_text(self.decoder_positions(offset), texts)

        # The slot of each key: every slot holds one of each row.
        slot = tf.range(slots * rows) // rows
        new_bias = positions(slot - index) + blocks.for_each_head(new_bias, self.decoder.heads)
        own_bias = positions(tf.constant([0]))
        # The start token stands one position before slot 0.
        prompt_bias = positions(tf.reshape(-1 - index, [1]))
        x = blocks.embed(self.embedding, tf.reshape(token_ids, [rows * texts]))
        x, own = self.decoder.step(x, context, new, prompt_bias, new_bias, own_bias)
        return self._logits(x), own

    def empty_new(self, texts: int, rows: int, slots: int) -> list[KeysValues]:
        """See `Model.empty_new`."""
        return self.decoder.empty_new(texts, rows, slots)

    def _logits(self, x: tf.Tensor) -> tf.Tensor:
        return blocks.project(x * self.head_scale, self.head)


def distance_buckets(count: int, most: int) -> np.ndarray:
    """The bucket of each distance from 0 to `most`, `[most + 1]` int32.

    The first half of the buckets holds one distance each, the second half logarithmically more.
    In float32 as the checkpoints were trained: at the borders a rounding decides the bucket.
    """
    exact = count // 2
    distances = np.arange(most + 1)
    ratio = np.log(np.maximum(distances, 1).astype(np.float32) / np.float32(exact))
    large = exact + (ratio / np.float32(math.log(most / exact)) * (count - exact)).astype(np.int32)
    return np.where(distances < exact, distances, np.minimum(large, count - 1)).astype(np.int32)


def _from_t5(config: T5Config, read: WeightReader) -> EncoderDecoder:
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

    def encoder_layer(at: str) -> EncoderLayer:
        return EncoderLayer(
            attention_norm=norm(f"{at}.0.layer_norm"),
            qkv=read.linears([f"{at}.0.SelfAttention.{x}" for x in "qkv"]),
            attention_out=read.linears([f"{at}.0.SelfAttention.o"]),
            feed_forward_norm=norm(f"{at}.1.layer_norm"),
            feed_forward=feed_forward(f"{at}.1"),
        )

    def decoder_layer(at: str) -> DecoderLayer:
        return DecoderLayer(
            attention_norm=norm(f"{at}.0.layer_norm"),
            qkv=read.linears([f"{at}.0.SelfAttention.{x}" for x in "qkv"]),
            attention_out=read.linears([f"{at}.0.SelfAttention.o"]),
            cross_norm=norm(f"{at}.1.layer_norm"),
            cross_query=read.linears([f"{at}.1.EncDecAttention.q"]),
            cross_keys_values=read.linears([f"{at}.1.EncDecAttention.{x}" for x in "kv"]),
            cross_out=read.linears([f"{at}.1.EncDecAttention.o"]),
            feed_forward_norm=norm(f"{at}.2.layer_norm"),
            feed_forward=feed_forward(f"{at}.2"),
        )

    def positions(stack: str, is_bidirectional: bool) -> RelativePositions:
        # The first layer's biases serve all layers.
        name = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        count = config.relative_attention_num_buckets
        half = count // 2 if is_bidirectional else None
        return RelativePositions(
            biases=read.transposed(name),
            buckets=distance_buckets(half or count, config.relative_attention_max_distance),
            later=half,
        )

    # T5 does not scale scores: its weights are initialised that much smaller.
    common = {"heads": config.num_heads, "score_scale": 1.0}
    embedding = read.transposed("shared.weight")
    start = config.decoder_start_token_id
    return EncoderDecoder(
        encoder=Encoder(
            layers=tuple(
                encoder_layer(f"encoder.block.{i}.layer") for i in range(config.num_layers)
            ),
            final_norm=norm("encoder.final_layer_norm"),
            **common,
        ),
        decoder=Decoder(
            layers=tuple(
                decoder_layer(f"decoder.block.{i}.layer") for i in range(config.num_decoder_layers)
            ),
            final_norm=norm("decoder.final_layer_norm"),
            **common,
        ),
        encoder_positions=positions("encoder", is_bidirectional=True),
        decoder_positions=positions("decoder", is_bidirectional=False),
        embedding=embedding,
        head=read.head(config, embedding),
        head_scale=config.d_model**-0.5 if config.tie_word_embeddings else 1.0,
        start_token=config.pad_token_id if start is None else start,
        variables=read.variables,
    )
