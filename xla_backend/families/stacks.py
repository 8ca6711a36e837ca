"""Encoder and decoder stacks with cross-attention, as T5 and Whisper are built of them.

Knows pre-norm layers, and which keys and values a decoder keeps: those of the encoder's output and
of the decoder prompt are shared by all rows, those of new tokens are each row's own. Must not know
embeddings, positions, heads or checkpoints: the families bring those. Axes: see `blocks`; L is the
length of the decoder prompt, the tokens that are given before the first new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from xla_backend.families import blocks
from xla_backend.families.blocks import FeedForward, KeysValues, Linear, Norm, Repeated


class EncoderLayer(NamedTuple):
    """Self-attention over the whole input, and a feed-forward network."""

    attention_norm: Norm
    qkv: Linear
    attention_out: Linear
    feed_forward_norm: Norm
    feed_forward: FeedForward


class DecoderLayer(NamedTuple):
    """Causal self-attention, attention to the encoder's output, and a feed-forward network."""

    attention_norm: Norm
    qkv: Linear
    attention_out: Linear
    cross_norm: Norm
    cross_query: Linear
    cross_keys_values: Linear
    cross_out: Linear
    feed_forward_norm: Norm
    feed_forward: FeedForward


class Context(NamedTuple):
    """What a step needs of the input.

    Attributes:
        cross_bias: `[B, P]`, hides the encoder's padding.
        cross: keys and values of the encoder's output, `[G, P, D]` a layer.
        prompt: keys and values of the decoder prompt, `[G, L, D]` a layer.
    """

    cross_bias: tf.Tensor
    cross: list[KeysValues]
    prompt: list[KeysValues]


@dataclass(frozen=True)
class Encoder:
    """Layers over an embedded input.

    Attributes:
        score_scale: what queries are multiplied with; T5's are not.
    """

    layers: tuple[EncoderLayer, ...]
    heads: int
    score_scale: float
    final_norm: Norm

    def __call__(self, x: tf.Tensor, bias: tf.Tensor | float) -> tf.Tensor:
        """Runs the whole input, `[P, E] -> [P, E]`; `bias` is broadcastable to `[H, P, P]`."""

        def block(layer: EncoderLayer, x: tf.Tensor, bias: tf.Tensor | float) -> tf.Tensor:
            q, k, v = tf.split(layer.qkv(layer.attention_norm(x)), 3, axis=-1)
            q, k, v = (blocks.split_heads(y, self.heads) for y in (q * self.score_scale, k, v))
            x += layer.attention_out(blocks.attend_all(q, KeysValues(k, v), bias))
            return x + layer.feed_forward(layer.feed_forward_norm(x))

        each = Repeated(block)
        for layer in self.layers:
            x = each(layer, x, bias)
        return self.final_norm(x)


@dataclass(frozen=True)
class Decoder:
    """Layers over the text, prompt at once (`prefill`) and then token by token (`step`).

    Attributes:
        score_scale: what queries are multiplied with; T5's are not.
    """

    layers: tuple[DecoderLayer, ...]
    heads: int
    score_scale: float
    final_norm: Norm

    def prefill(
        self, x: tf.Tensor, bias: tf.Tensor | float, encoded: tf.Tensor, cross_bias: tf.Tensor
    ) -> tuple[tf.Tensor, Context]:
        """Runs the decoder prompt.

        Args:
            x: its embeddings, `[L, E]`.
            bias: of its positions for one another, broadcastable to `[H, L, L]`; must be causal.
            encoded: the encoder's output, `[P, E]`.
            cross_bias: `[1, P]`, hides the encoder's padding.

        Returns:
            `[L, E]`, and what steps need.
        """

        def block(
            layer: DecoderLayer,
            x: tf.Tensor,
            bias: tf.Tensor | float,
            encoded: tf.Tensor,
            cross_bias: tf.Tensor,
        ) -> tuple[tf.Tensor, KeysValues, KeysValues]:
            q, k, v = self._self_attention_inputs(layer, x)
            q, k, v = (blocks.split_heads(y, self.heads) for y in (q, k, v))
            own = KeysValues(k, v)
            x += layer.attention_out(blocks.attend_all(q, own, bias))

            k, v = tf.split(layer.cross_keys_values(encoded), 2, axis=-1)
            cross = KeysValues(*(blocks.split_heads(y, self.heads) for y in (k, v)))
            q = blocks.split_heads(self._cross_query(layer, x), self.heads)
            x += layer.cross_out(blocks.attend_all(q, cross, cross_bias))
            return x + layer.feed_forward(layer.feed_forward_norm(x)), own, cross

        each = Repeated(block)
        context = Context(cross_bias, [], [])
        for layer in self.layers:
            x, own, cross = each(layer, x, bias, encoded, cross_bias)
            context.prompt.append(own)
            context.cross.append(cross)
        return self.final_norm(x), context

    def step(
        self,
        x: tf.Tensor,
        context: Context,
        new: list[KeysValues],
        prompt_bias: tf.Tensor | float,
        new_bias: tf.Tensor,
        own_bias: tf.Tensor | float,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        """Runs one token a row.

        Args:
            x: embeddings of the tokens, `[R * B, E]`.
            context: from `prefill`, of one text or of several side by side.
            new: keys and values of the new tokens so far, `[G, N, R, D]` a layer.
            prompt_bias: broadcastable to `[R, G, L]`.
            new_bias: broadcastable to `[R, G, N * R]`.
            own_bias: of the tokens for themselves, broadcastable to `[R, G, 1]`.

        Returns:
            `[B * R, E]`, text by text, and keys and values of the tokens themselves, `[R, G, D]` a
            layer.
        """
        texts = context.cross_bias.shape[0]
        heads_of_rows = [x.shape[0] // texts, texts * self.heads, -1]
        cross_bias = blocks.for_each_head(context.cross_bias, self.heads)

        def block(
            layer: DecoderLayer,
            x: tf.Tensor,
            of_text: tuple[KeysValues, KeysValues, KeysValues],
            biases: tuple[tf.Tensor | float, ...],
        ) -> tuple[tf.Tensor, KeysValues]:
            prompt, cross, new = of_text
            prompt_bias, cross_bias, new_bias, own_bias = biases
            inputs = self._self_attention_inputs(layer, x)
            rows = inputs[0].shape
            q, k, v = (tf.reshape(y, heads_of_rows) for y in inputs)
            own = KeysValues(k, v)
            mixed = blocks.attend_prompt_and_new(
                q, prompt, prompt_bias, new, new_bias, own, own_bias
            )
            x += layer.attention_out(tf.reshape(mixed, rows))
            q = tf.reshape(self._cross_query(layer, x), heads_of_rows)
            mixed = blocks.attend_shared(q, cross, cross_bias)
            x += layer.cross_out(tf.reshape(mixed, rows))
            return x + layer.feed_forward(layer.feed_forward_norm(x)), own

        each = Repeated(block)
        biases = (prompt_bias, cross_bias, new_bias, own_bias)
        written = []
        for layer, *of_text in zip(self.layers, context.prompt, context.cross, new, strict=True):
            x, own = each(layer, x, tuple(of_text), biases)
            written.append(own)
        return self.final_norm(blocks.texts_first(x, texts)), written

    def context_structure(self) -> Context:
        """A nest shaped like a `Context`; its leaves mean nothing."""
        leaves = [KeysValues(0, 0) for _ in self.layers]
        return Context(0, leaves, list(leaves))

    def empty_new(self, texts: int, rows: int, slots: int) -> list[KeysValues]:
        """See `Model.empty_new`."""
        width = self.layers[0].qkv.kernel.shape[1] // 3
        empty = tf.zeros([texts * self.heads, slots, rows, width // self.heads])
        return [KeysValues(empty, empty) for _ in self.layers]

    def _self_attention_inputs(self, layer: DecoderLayer, x: tf.Tensor) -> list[tf.Tensor]:
        """Scaled queries, keys and values, `[..., H * D]` each."""
        q, k, v = tf.split(layer.qkv(layer.attention_norm(x)), 3, axis=-1)
        return [q * self.score_scale, k, v]

    def _cross_query(self, layer: DecoderLayer, x: tf.Tensor) -> tf.Tensor:
        return layer.cross_query(layer.cross_norm(x)) * self.score_scale
