"""Encoder and decoder stacks with cross-attention, of which T5 and Whisper are built.

Knows pre-norm layers, and which keys and values a decoder keeps: beams share those of the encoder's
output and of the decoder prompt, and each beam has its own new tokens. Axes: see `blocks`; L is the
length of the decoder prompt, the tokens before the first new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import FeedForward, KeysValues, Linear, Norm, Repeated


class EncoderLayer(NamedTuple):
    """Self-attention over the whole input, and a feed-forward network."""

    attention_norm: Norm
    qkv: Linear
    attention_out: Linear
    feed_forward_norm: Norm
    feed_forward: FeedForward


class DecoderLayer(NamedTuple):
    """An `EncoderLayer`, but causal, with attention to the encoder's output in its middle."""

    attention_norm: Norm
    qkv: Linear
    attention_out: Linear
    feed_forward_norm: Norm
    feed_forward: FeedForward
    cross_norm: Norm
    cross_query: Linear
    cross_keys_values: Linear
    cross_out: Linear


class StackContext(NamedTuple):
    """What a step needs from the prompts.

    Attributes:
        cross_bias: `[B, S]`, hides the encoder's padding.
        cross: keys and values of the encoder's output, `[H, S, D]` a layer.
        prompt: keys and values of the decoder prompt, `[H, L, D]` a layer.
    """

    cross_bias: tf.Tensor
    cross: list[KeysValues]
    prompt: list[KeysValues]


@dataclass(frozen=True)
class EncoderStack:
    """Layers over an embedded input.

    Attributes:
        score_scale: the factor of queries, 1 in T5.
    """

    layers: tuple[EncoderLayer, ...]
    heads: int
    score_scale: float
    final_norm: Norm

    def __call__(self, x: tf.Tensor, bias: tf.Tensor | float) -> tf.Tensor:
        """Runs the whole input, `[S, E] -> [S, E]`; `bias` is broadcastable to `[H, S, S]`."""

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
class DecoderStack:
    """Layers over the output: the decoder prompt at once (`prefill`), then token by token (`step`).

    Attributes:
        score_scale: the factor of queries, 1 in T5.
    """

    layers: tuple[DecoderLayer, ...]
    heads: int
    score_scale: float
    final_norm: Norm

    def prefill(
        self, x: tf.Tensor, bias: tf.Tensor | float, encoded: tf.Tensor, cross_bias: tf.Tensor
    ) -> tuple[tf.Tensor, StackContext]:
        """Runs the decoder prompt: `[L, E]`, and the context for `step`.

        Args:
            x: its embeddings, `[L, E]`.
            bias: between its positions, broadcastable to `[H, L, L]`; must be causal.
            encoded: the encoder's output, `[S, E]`.
            cross_bias: `[1, S]`, hides the encoder's padding.
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
            prompt = KeysValues(k, v)
            x += layer.attention_out(blocks.attend_all(q, prompt, bias))

            k, v = tf.split(layer.cross_keys_values(encoded), 2, axis=-1)
            cross = KeysValues(*(blocks.split_heads(y, self.heads) for y in (k, v)))
            q = blocks.split_heads(self._cross_query(layer, x), self.heads)
            x += layer.cross_out(blocks.attend_all(q, cross, cross_bias))
            return x + layer.feed_forward(layer.feed_forward_norm(x)), prompt, cross

        each = Repeated(block)
        context = StackContext(cross_bias, [], [])
        for layer in self.layers:
            x, prompt, cross = each(layer, x, bias, encoded, cross_bias)
            context.prompt.append(prompt)
            context.cross.append(cross)
        return self.final_norm(x), context

    def step(
        self,
        x: tf.Tensor,
        context: StackContext,
        kv_cache: list[KeysValues],
        prompt_bias: tf.Tensor | float,
        kv_cache_bias: tf.Tensor,
        current_bias: tf.Tensor | float,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        """Runs the current token of each beam.

        Args:
            x: embeddings of the tokens, `[K, E]`.
            kv_cache: keys and values of the new tokens so far, `[H, N, K, D]` a layer.
            prompt_bias: broadcastable to `[K, H, L]`.
            kv_cache_bias: broadcastable to `[K, H, N * K]`.
            current_bias: of the current tokens for themselves, broadcastable to `[K, H, 1]`.

        Returns:
            `[K, E]`, and the keys and values of the current tokens, `[K, H, D]` a layer.
        """
        split = [x.shape[0], self.heads, -1]

        def block(
            layer: DecoderLayer,
            x: tf.Tensor,
            keys_values: tuple[KeysValues, KeysValues, KeysValues],
            biases: tuple[tf.Tensor | float, ...],
        ) -> tuple[tf.Tensor, KeysValues]:
            prompt, cross, kv_cache = keys_values
            prompt_bias, cross_bias, kv_cache_bias, current_bias = biases
            inputs = self._self_attention_inputs(layer, x)
            merged = inputs[0].shape
            q, k, v = (tf.reshape(y, split) for y in inputs)
            current = KeysValues(k, v)
            attended = blocks.attend_step(
                q, prompt, prompt_bias, kv_cache, kv_cache_bias, current, current_bias
            )
            x += layer.attention_out(tf.reshape(attended, merged))
            q = tf.reshape(self._cross_query(layer, x), split)
            attended = blocks.attend_cross(q, cross, cross_bias)
            x += layer.cross_out(tf.reshape(attended, merged))
            return x + layer.feed_forward(layer.feed_forward_norm(x)), current

        each = Repeated(block)
        biases = (prompt_bias, context.cross_bias, kv_cache_bias, current_bias)
        all_current = []
        for layer, *of_layer in zip(
            self.layers, context.prompt, context.cross, kv_cache, strict=True
        ):
            x, current = each(layer, x, tuple(of_layer), biases)
            all_current.append(current)
        return self.final_norm(x), all_current

    def context_structure(self) -> StackContext:
        """A nest of the same structure as a `StackContext`, with any leaves."""
        leaves = [KeysValues(0, 0) for _ in self.layers]
        return StackContext(0, leaves, list(leaves))

    def empty_kv_cache(self, num_beams: int, length: int) -> list[KeysValues]:
        size = self.layers[0].qkv.matrix.shape[1] // 3 // self.heads
        zeros = tf.zeros([self.heads, length, num_beams, size])
        return [KeysValues(zeros, zeros) for _ in self.layers]

    def _self_attention_inputs(self, layer: DecoderLayer, x: tf.Tensor) -> list[tf.Tensor]:
        """Scaled queries, keys and values, `[..., H * D]` each."""
        q, k, v = tf.split(layer.qkv(layer.attention_norm(x)), 3, axis=-1)
        return [q * self.score_scale, k, v]

    def _cross_query(self, layer: DecoderLayer, x: tf.Tensor) -> tf.Tensor:
        return layer.cross_query(layer.cross_norm(x)) * self.score_scale
