"""Decoder-only models: GPT-2 and OPT.

Knows their checkpoints and their forward pass: a padded prompt at once (`prefill`), then token by
token (`step`); or any tokens over blocks of KV memory (`run`). `padded_length` is the number of
slots for the prompt; those of its padding, on the left, are masked. Positions count from the first
real token. Axes: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from transformers import GPT2Config, OPTConfig, PretrainedConfig

from xla_backend.kernels.attention.attention import layer_bytes
from xla_backend.kernels.graph.kv_operations import in_blocks, only_tokens
from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import (
    MASKED,
    CausalMask,
    KeysValues,
    Linear,
    Norm,
    Repeated,
    WeightReader,
)
from xla_backend.model.families.model import Memory, Prefilled


class PlainLayer(NamedTuple):
    """One block: causal self-attention and a feed-forward network."""

    attention_norm: Norm
    qkv: Linear
    attention_out: Linear
    feed_forward_norm: Norm
    up: Linear
    down: Linear
    score_scale: float


class PromptContext(NamedTuple):
    """What a step needs from the prompts.

    Attributes:
        first: `[B]` int32, the slot of each prompt's first token.
        length: `[B]` int32, its number of tokens.
        prompt: keys and values `[G, S, D]` per layer, or another state of a layer.
    """

    first: tf.Tensor
    length: tf.Tensor
    prompt: list[Any]

    def distances(self, index: tf.Tensor) -> tf.Tensor:
        """The distance of each slot from the new token at place `index`: `[B, S]` int32."""
        return (self.length + self.first + index)[:, None] - self._slots

    def bias(self) -> tf.Tensor:
        """The bias that hides padding: `[B, S]`."""
        slots = self._slots - self.first[:, None]
        return tf.where((slots >= 0) & (slots < self.length[:, None]), 0.0, MASKED)

    @property
    def _slots(self) -> tf.Tensor:
        """The prompt's slots, `[S]`; some layer has keys for each."""
        # A layer's may be a pair, of which the first has them.
        found = (part for each in self.prompt for part in (each, each[0]))
        keys = next(part.keys for part in found if isinstance(part, KeysValues))
        return tf.range(tf.shape(keys)[1])


class PaddedPrompt:
    """The prompt of a decoder-only model, padded on the left.

    Padding is NaN, except keys and values, so that products skip it.

    Attributes:
        layers: one each.
    """

    layers: tuple[Any, ...]

    def input_specs(self) -> list[tf.TensorSpec]:
        """Token ids `[S]` and how many of them are padding, both int32."""
        return [tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)]

    def encode(self, token_ids: list[int], padded_length: int) -> list[tf.Tensor]:
        """The prompt padded on the left; the model never sees the token used as padding."""
        padding = padded_length - len(token_ids)
        return [tf.constant([0] * padding + token_ids, tf.int32), tf.constant(padding)]

    def example(self, padded_length: int) -> list[tf.Tensor]:
        """See `Model.example`."""
        return self.encode([0] * padded_length, padded_length)

    def prefilled_structure(self) -> Prefilled:
        """See `Model.prefilled_structure`."""
        return Prefilled(0, 0, PromptContext(0, 0, [KeysValues(0, 0) for _ in self.layers]))


@dataclass(frozen=True)
class DecoderOnly(PaddedPrompt):
    """A GPT-2 or OPT model over its weights.

    Attributes:
        embedding: `[E_in, V]`, token embeddings and, if tied, also the head, which reads all of it
            at every step; an embedding is a column.
        positions: `[max_positions + position_offset, E]`.
        head: `[E_in, V]`.
    """

    layers: tuple[PlainLayer, ...]
    heads: int
    embedding: Matrix
    positions: tf.Variable
    position_offset: int
    project_in: Linear | None
    project_out: Linear | None
    final_norm: Norm | None
    head: Matrix
    pre_norm: bool
    activation: str
    context_length: int
    variables: Mapping[str, tf.Variable]

    @classmethod
    def from_checkpoint(cls, config: PretrainedConfig, read: WeightReader) -> DecoderOnly:
        """The model of a checkpoint.

        Raises:
            ModelUnavailable: a weight is missing or the architecture is not one of this family.
        """
        readers: dict[str, Callable[..., DecoderOnly]] = {"gpt2": _from_gpt2, "opt": _from_opt}
        return readers[config.model_type](config, read)

    @property
    def vocabulary_size(self) -> int:
        """V, the number of logits."""
        return self.head.shape[1]

    def prefill(self, token_ids: tf.Tensor, padding: tf.Tensor) -> Prefilled:
        """Runs the whole prompt; see `Model.prefill`."""
        length = tf.shape(token_ids)[0]
        slots = tf.range(length)
        positions = slots - padding
        x = only_tokens(self._embed(token_ids, tf.maximum(positions, 0)), positions[:, None])

        def block(
            layer: PlainLayer, x: tf.Tensor, padding: tf.Tensor, only_last_position: bool = False
        ) -> tuple[tf.Tensor, KeysValues]:
            mask = CausalMask(padding)

            def attention(q: tf.Tensor, kv: KeysValues) -> tuple[tf.Tensor, KeysValues]:
                k, v = map(mask.without_padding, kv)
                q, k, v = (blocks.split_heads(x, self.heads) for x in (q, k, v))
                kv = KeysValues(k, v)
                if only_last_position:
                    return blocks.attend_all(q, kv, mask.bias(slots[-1:], length)), kv
                return blocks.attend_causally(q, kv, mask), kv

            return self._block(layer, x, attention, length - 1 if only_last_position else None)

        each = Repeated(block)
        prompt = []
        for layer in self.layers[:-1]:
            x, kv = each(layer, x, padding)
            prompt.append(kv)
        # Only the logits of the last position are needed. So the last layer needs the other
        # positions only as keys and values, and the head, the largest matrix, not at all.
        x, kv = block(self.layers[-1], x, padding, only_last_position=True)
        prompt.append(kv)
        return Prefilled(
            logits=self.logits(x),
            seen=blocks.occurring(token_ids, slots >= padding, self.vocabulary_size),
            context=PromptContext(padding[None], (length - padding)[None], prompt),
        )

    @property
    def layer_bytes(self) -> list[int]:
        """See `PooledModel.layer_bytes`."""
        size = self.layers[0].qkv.matrix.shape[0] // self.heads
        return [layer_bytes(self.heads, size) for _ in self.layers]

    @property
    def row_bytes(self) -> int:
        """See `PooledModel.row_bytes`."""
        return 0

    def run(self, token_ids: tf.Tensor, places: tf.Tensor, memory: Memory) -> tf.Tensor:
        """Runs tokens over blocks of KV memory; see `PooledModel.run`."""

        def block(
            layer: PlainLayer,
            x: tf.Tensor,
            places: tf.Tensor,
            memory: Memory,
            of_layer: tf.Tensor,
        ) -> tf.Tensor:
            def attention(q: tf.Tensor, kv: KeysValues) -> tuple[tf.Tensor, KeysValues]:
                operands = (q, *kv, places, of_layer)
                attended = memory.attend(
                    *operands, heads=self.heads, kv_heads=self.heads, score_cap=None
                )
                return attended, kv

            return self._block(layer, x, attention)[0]

        each = Repeated(block)
        x = only_tokens(self._embed(token_ids, tf.maximum(places[:, 1], 0)), places)
        for layer, of_layer in zip(self.layers, in_blocks(self.layer_bytes), strict=True):
            x = each(layer, x, places, memory, of_layer)
        return x

    def step(
        self,
        token_ids: tf.Tensor,
        index: tf.Tensor,
        context: PromptContext,
        kv_cache: list[KeysValues],
        kv_cache_bias: tf.Tensor,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        """Runs the current token of each beam; see `Model.step`."""
        num_beams, batch_size = token_ids.shape
        prompt = context.prompt
        positions = tf.tile(context.length + index, [num_beams])
        x = self._embed(tf.reshape(token_ids, [num_beams * batch_size]), positions)
        prompt_bias = blocks.for_each_head(context.bias(), self.heads)
        kv_cache_bias = blocks.for_each_head(kv_cache_bias, self.heads)

        def block(
            layer: PlainLayer,
            x: tf.Tensor,
            prompt: KeysValues,
            prompt_bias: tf.Tensor,
            kv_cache: KeysValues,
            kv_cache_bias: tf.Tensor,
        ) -> tuple[tf.Tensor, KeysValues]:
            def attention(q: tf.Tensor, kv: KeysValues) -> tuple[tf.Tensor, KeysValues]:
                merged, split = q.shape, [num_beams, batch_size * self.heads, -1]
                q, k, v = (tf.reshape(x, split) for x in (q, *kv))
                current = KeysValues(k, v)
                attended = blocks.attend_step(
                    q, prompt, prompt_bias, kv_cache, kv_cache_bias, current
                )
                return tf.reshape(attended, merged), current

            return self._block(layer, x, attention)

        each = Repeated(block)
        all_current = []
        for layer, of_prompt, cached in zip(self.layers, prompt, kv_cache, strict=True):
            x, current = each(layer, x, of_prompt, prompt_bias, cached, kv_cache_bias)
            all_current.append(current)
        return self.logits(blocks.batch_first(x, batch_size)), all_current

    def empty_kv_cache(self, batch_size: int, num_beams: int, length: int) -> list[KeysValues]:
        """See `Model.empty_kv_cache`."""
        size = self.layers[0].qkv.matrix.shape[0] // self.heads
        zeros = tf.zeros([batch_size * self.heads, length, num_beams, size])
        return [KeysValues(zeros, zeros) for _ in self.layers]

    def _embed(self, token_ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        x = self.embedding.columns(token_ids)
        if self.project_in is not None:
            x = self.project_in(x)
        return x + tf.gather(self.positions, positions + self.position_offset)

    def _block(
        self,
        layer: PlainLayer,
        x: tf.Tensor,
        attention: Callable[[tf.Tensor, KeysValues], tuple[tf.Tensor, KeysValues]],
        only: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, KeysValues]:
        """One layer; if only one position is needed, of the others only keys and values."""
        normed = layer.attention_norm(x) if self.pre_norm else x
        q, k, v = tf.split(layer.qkv(normed), 3, axis=-1)
        if only is not None:
            q, x = blocks.row(q, only), blocks.row(x, only)
        attended, kv = attention(q * layer.score_scale, KeysValues(k, v))
        x += layer.attention_out(attended)
        if not self.pre_norm:
            x = layer.attention_norm(x)
        normed = layer.feed_forward_norm(x) if self.pre_norm else x
        x += layer.down(blocks.ACTIVATIONS[self.activation](layer.up(normed)))
        return (x if self.pre_norm else layer.feed_forward_norm(x)), kv

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """See `PooledModel.logits`."""
        if self.final_norm is not None:
            x = self.final_norm(x)
        if self.project_out is not None:
            x = self.project_out(x)
        return self.head.multiply(x)


def _from_gpt2(config: GPT2Config, read: WeightReader) -> DecoderOnly:
    def norm(name: str) -> Norm:
        return Norm(
            read.variable(f"{name}.weight"),
            read.variable(f"{name}.bias"),
            config.layer_norm_epsilon,
        )

    def layer(i: int) -> PlainLayer:
        at = f"transformer.h.{i}"
        scale = (config.n_embd // config.n_head) ** -0.5 if config.scale_attn_weights else 1.0
        if config.scale_attn_by_inverse_layer_idx:
            scale /= i + 1
        return PlainLayer(
            attention_norm=norm(f"{at}.ln_1"),
            qkv=read.conv1d(f"{at}.attn.c_attn"),
            attention_out=read.conv1d(f"{at}.attn.c_proj"),
            feed_forward_norm=norm(f"{at}.ln_2"),
            up=read.conv1d(f"{at}.mlp.c_fc"),
            down=read.conv1d(f"{at}.mlp.c_proj"),
            score_scale=scale,
        )

    embedding = read.matrix("transformer.wte.weight")
    return DecoderOnly(
        layers=tuple(layer(i) for i in range(config.n_layer)),
        heads=config.n_head,
        embedding=embedding,
        positions=read.variable("transformer.wpe.weight"),
        position_offset=0,
        project_in=None,
        project_out=None,
        final_norm=norm("transformer.ln_f"),
        head=read.head(config, embedding),
        pre_norm=True,
        activation=config.activation_function,
        context_length=config.n_positions,
        variables=read.variables,
    )


def _from_opt(config: OPTConfig, read: WeightReader) -> DecoderOnly:
    at = "model.decoder"

    def norm(name: str) -> Norm:
        return Norm(read.variable(f"{name}.weight"), read.variable(f"{name}.bias"), 1e-5)

    def layer(i: int) -> PlainLayer:
        attention = f"{at}.layers.{i}.self_attn"
        return PlainLayer(
            attention_norm=norm(f"{attention}_layer_norm"),
            qkv=read.linears([f"{attention}.{x}_proj" for x in "qkv"]),
            attention_out=read.linears([f"{attention}.out_proj"]),
            feed_forward_norm=norm(f"{at}.layers.{i}.final_layer_norm"),
            up=read.linears([f"{at}.layers.{i}.fc1"]),
            down=read.linears([f"{at}.layers.{i}.fc2"]),
            score_scale=(config.hidden_size // config.num_attention_heads) ** -0.5,
        )

    projected = config.word_embed_proj_dim != config.hidden_size
    has_final_norm = config.do_layer_norm_before and not config._remove_final_layer_norm
    embedding = read.matrix(f"{at}.embed_tokens.weight")
    return DecoderOnly(
        layers=tuple(layer(i) for i in range(config.num_hidden_layers)),
        heads=config.num_attention_heads,
        embedding=embedding,
        positions=read.variable(f"{at}.embed_positions.weight"),
        # OPT's table has two rows for a padding index that is no longer used.
        position_offset=2,
        project_in=read.linears([f"{at}.project_in"]) if projected else None,
        project_out=read.linears([f"{at}.project_out"]) if projected else None,
        final_norm=norm(f"{at}.final_layer_norm") if has_final_norm else None,
        head=read.head(config, embedding),
        pre_norm=config.do_layer_norm_before,
        activation=config.activation_function,
        context_length=config.max_position_embeddings,
        variables=read.variables,
    )
