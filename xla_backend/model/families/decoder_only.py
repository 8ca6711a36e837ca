"""Decoder-only models with learned positions: GPT-2 and OPT.

Knows their checkpoints and their forward pass. Positions count from the first token. Axes: see
`blocks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from transformers import GPT2Config, OPTConfig

from xla_backend.kernels.attention.attention import layer_bytes
from xla_backend.kernels.graph.kv_operations import Memory, only_tokens
from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import KeysValues, Linear, Norm, Repeated, WeightReader
from xla_backend.model.families.model import LayerMemory
from xla_backend.model.families.padded import PaddedModel


class PlainLayer(NamedTuple):
    """One block: causal self-attention and a feed-forward network."""

    attention_norm: Norm
    qkv: Linear
    attention_out: Linear
    feed_forward_norm: Norm
    up: Linear
    down: Linear


@dataclass(frozen=True)
class DecoderOnly(PaddedModel):
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
    states: None = None

    @property
    def vocabulary_size(self) -> int:
        return self.head.shape[1]

    @property
    def layer_memory(self) -> list[LayerMemory]:
        size = self.layers[0].qkv.matrix.shape[0] // self.heads
        each = tf.TensorSpec([self.heads, None, size])
        of = LayerMemory(layer_bytes(self.heads, size), 0, None, None, KeysValues(each, each))
        return [of] * len(self.layers)

    def run(
        self,
        token_ids: tf.Tensor,
        places: tf.Tensor,
        memory: Memory,
        of_layers: Sequence[Any],
        only_last: bool = False,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        def block(
            layer: PlainLayer, x: tf.Tensor, memory: Memory, of_layer: Any, only_last: bool
        ) -> tuple[tf.Tensor, KeysValues]:
            normed = layer.attention_norm(x) if self.pre_norm else x
            q, k, v = (
                tf.reshape(y, [-1, self.heads, y.shape[1] // self.heads])
                for y in tf.split(layer.qkv(normed), 3, axis=-1)
            )
            attended = memory.attend(q * q.shape[-1] ** -0.5, k, v, of_layer)
            if only_last:
                x, attended = x[-1, None], attended[-1, None]
            x += layer.attention_out(attended)
            if not self.pre_norm:
                x = layer.attention_norm(x)
            normed = layer.feed_forward_norm(x) if self.pre_norm else x
            x += layer.down(blocks.ACTIVATIONS[self.activation](layer.up(normed)))
            return (x if self.pre_norm else layer.feed_forward_norm(x)), KeysValues(k, v)

        each, written = Repeated(block), []
        x = only_tokens(self._embed(token_ids, tf.maximum(places[:, 1], 0)), places)
        for number, of_layer in enumerate(of_layers, 1):
            is_last = only_last and number == len(self.layers)
            x, kv = each(self.layers[number - 1], x, memory, of_layer, is_last)
            written.append(kv)
        return x, written

    def _embed(self, token_ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        x = self.embedding.columns(token_ids)
        if self.project_in is not None:
            x = self.project_in(x)
        return x + tf.gather(self.positions, positions + self.position_offset)

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        if self.final_norm is not None:
            x = self.final_norm(x)
        if self.project_out is not None:
            x = self.project_out(x)
        return self.head.multiply(x)


def from_gpt2(config: GPT2Config, read: WeightReader) -> DecoderOnly:
    def norm(name: str) -> Norm:
        return Norm(
            read.variable(f"{name}.weight"),
            read.variable(f"{name}.bias"),
            config.layer_norm_epsilon,
        )

    def layer(i: int) -> PlainLayer:
        at = f"transformer.h.{i}"
        return PlainLayer(
            attention_norm=norm(f"{at}.ln_1"),
            qkv=read.conv1d(f"{at}.attn.c_attn"),
            attention_out=read.conv1d(f"{at}.attn.c_proj"),
            feed_forward_norm=norm(f"{at}.ln_2"),
            up=read.conv1d(f"{at}.mlp.c_fc"),
            down=read.conv1d(f"{at}.mlp.c_proj"),
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


def from_opt(config: OPTConfig, read: WeightReader) -> DecoderOnly:
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
