"""Decoders with rotary positions: Llama and those after it, see docs/architectures.md.

Knows the forward pass of what `checkpoints.rotary_form` describes: a padded prompt at once
(`prefill`), then token by token (`step`); or any tokens over blocks of KV memory (`run`). Must not
know which architecture it is, nor how tokens are selected. Axes: see `blocks`; here H are the heads
of keys and values, each of which R neighbouring heads of queries share, so that keys and values are
never repeated in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf
from transformers import PretrainedConfig

from xla_backend.checkpoints.rotary_form import Positions, RotaryForm, describe, norms
from xla_backend.matmul.attention import attend, in_blocks, only_tokens
from xla_backend.matmul.matrix import Matrix
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import (
    MASKED,
    CausalMask,
    FeedForward,
    KeysValues,
    Linear,
    Norm,
    Repeated,
    WeightReader,
)
from xla_backend.model.families.decoder_only import Context, PaddedPrompt
from xla_backend.model.families.model import Prefilled


class Layer(NamedTuple):
    """One block: causal self-attention and a gated feed-forward network."""

    attention_norm: Norm | None
    qkv: Linear
    query_norm: Norm | None
    key_norm: Norm | None
    attention_out: Linear
    attention_out_norm: Norm | None
    feed_forward_norm: Norm | None
    feed_forward: FeedForward
    feed_forward_out_norm: Norm | None


class Rotation(NamedTuple):
    """Of the positions: cosines and sines of their angles, `[positions, 1, pairs]`.

    Attributes:
        query_scale: what queries are multiplied by, `[positions, 1, 1]`; None for nothing.
    """

    cosines: tf.Tensor
    sines: tf.Tensor
    query_scale: tf.Tensor | None


@dataclass(frozen=True)
class Rotary(PaddedPrompt):
    """A rotary decoder over its weights.

    Attributes:
        embedding: `[E, V]`, token embeddings and, if tied, also the head; an embedding is a column.
        head: `[E, V]`.
    """

    form: RotaryForm
    layers: tuple[Layer, ...]
    embedding: Matrix
    final_norm: Norm
    head: Matrix
    variables: Mapping[str, tf.Variable]

    @classmethod
    def from_checkpoint(cls, config: PretrainedConfig, read: WeightReader) -> Rotary:
        """The model of a checkpoint.

        Raises:
            ModelUnavailable: a weight is missing, or the configuration asks for what is not here.
        """
        form = describe(config)

        def norm(name: str) -> Norm:
            return Norm(read.variable(f"{name}.weight", form.norm_offset), None, form.epsilon)

        def layer(at: str) -> Layer:
            attention, feed_forward = f"{at}.self_attn", f"{at}.mlp"
            before, after, before_inner, after_inner = (
                norm(f"{at}.{name}") if name else None for name in norms(form)
            )
            qkv = ["qkv"] if form.is_fused else [*"qkv"]
            up = ["gate_up"] if form.is_fused else ["gate", "up"]
            return Layer(
                attention_norm=before,
                qkv=read.linears([f"{attention}.{x}_proj" for x in qkv]),
                query_norm=norm(f"{attention}.q_norm") if form.qk_norm else None,
                key_norm=norm(f"{attention}.k_norm") if form.qk_norm else None,
                attention_out=read.linears([f"{attention}.o_proj"]),
                attention_out_norm=after,
                feed_forward_norm=before_inner,
                feed_forward=FeedForward(
                    up=read.linears([f"{feed_forward}.{x}_proj" for x in up]),
                    down=read.linears([f"{feed_forward}.down_proj"]),
                    activation=blocks.activation(form.activation),
                    is_gated=True,
                ),
                feed_forward_out_norm=after_inner,
            )

        embedding = read.matrix("model.embed_tokens.weight")
        return cls(
            form=form,
            layers=tuple(layer(f"model.layers.{i}") for i in range(len(form.layers))),
            embedding=embedding,
            final_norm=norm("model.norm"),
            head=read.matrix("lm_head.weight") if "lm_head.weight" in read else embedding,
            variables=read.variables,
        )

    @property
    def vocabulary_size(self) -> int:
        """V, the number of logits."""
        return self.form.vocabulary_size

    @property
    def context_length(self) -> int:
        """See `Model.context_length`."""
        return self.form.context_length

    def prefill(self, token_ids: tf.Tensor, padding: tf.Tensor) -> Prefilled:
        """Runs the whole prompt; see `Model.prefill`."""
        length = tf.shape(token_ids)[0]
        slots = tf.range(length)
        rotations = self._rotations(tf.maximum(slots - padding, 0))

        def block(
            layer: Layer,
            x: tf.Tensor,
            rotation: Rotation,
            mask: CausalMask,
            only_last_position: bool = False,
        ) -> tuple[tf.Tensor, KeysValues]:
            # Keys and values `[H, S, D]`, queries `[H * R, S, D]`.
            q, k, v = (_swap(y) for y in self._attention_inputs(layer, x, rotation))
            kv = KeysValues(k, v)
            if not only_last_position:
                attended = blocks.attend_causally(q, kv, mask, self.form.score_cap)
                return self._finish(layer, x, attended), kv
            bias = mask.bias(slots[-1:], length)
            attended = blocks.attend_all(q[:, -1, None], kv, bias, self.form.score_cap)
            return self._finish(layer, x[-1, None], attended), kv

        each = Repeated(block)
        x, prompt = self._embed(token_ids), []
        for layer, form in zip(self.layers[:-1], self.form.layers, strict=False):
            rotation = rotations[form.mixer.positions]
            x, kv = each(layer, x, rotation, CausalMask(padding, form.mixer.window))
            prompt.append(kv)
        # Only the logits of the last position are needed: see `DecoderOnly.prefill`.
        last = self.form.layers[-1].mixer
        rotation, mask = rotations[last.positions], CausalMask(padding, last.window)
        x, kv = block(self.layers[-1], x, rotation, mask, only_last_position=True)
        prompt.append(kv)
        return Prefilled(
            logits=self.logits(x),
            seen=blocks.occurring(token_ids, slots >= padding, self.vocabulary_size),
            context=Context(padding[None], (length - padding)[None], prompt),
        )

    @property
    def kv_sizes(self) -> list[tuple[int, int]]:
        """See `PooledModel.kv_sizes`."""
        return [(self.form.kv_heads, self.form.head_size) for _ in self.layers]

    def run(self, token_ids: tf.Tensor, places: tf.Tensor, blocks: tf.Tensor) -> tf.Tensor:
        """Runs tokens over blocks of KV memory; see `PooledModel.run`."""
        rotations = self._rotations(tf.maximum(places[:, 1], 0))
        form = self.form

        def block(
            layer: Layer,
            x: tf.Tensor,
            rotation: Rotation,
            places: tf.Tensor,
            blocks: tf.Tensor,
            of_layer: tf.Tensor,
        ) -> tf.Tensor:
            q, k, v = (
                tf.reshape(y, [-1, y.shape[1] * y.shape[2]])
                for y in self._attention_inputs(layer, x, rotation)
            )
            attended = attend(
                *(q, k, v, places, blocks, of_layer),
                heads=form.heads,
                kv_heads=form.kv_heads,
                score_cap=form.score_cap,
            )
            return self._finish(layer, x, attended)

        each = Repeated(block)
        x = only_tokens(self._embed(token_ids), places)
        windows = [of_layer.mixer.window for of_layer in form.layers]
        for layer, of_layer, place in zip(
            self.layers, form.layers, in_blocks(self.kv_sizes, windows), strict=True
        ):
            x = each(layer, x, rotations[of_layer.mixer.positions], places, blocks, place)
        return x

    def step(
        self,
        token_ids: tf.Tensor,
        index: tf.Tensor,
        context: Context,
        kv_cache: list[KeysValues],
        kv_cache_bias: tf.Tensor,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        """Runs the current token of each beam; see `Model.step`."""
        num_beams, batch_size = token_ids.shape
        prompt, new = context.prompt, tf.shape(kv_cache[0].keys)[1]
        heads, shared = self.form.kv_heads, self.form.heads // self.form.kv_heads
        groups = batch_size * heads
        rotations = self._rotations(tf.tile(context.length + index, [num_beams]))
        places = tf.range(new * num_beams) // num_beams

        def for_queries(bias: tf.Tensor) -> tf.Tensor:
            """`[K, B, ...]` to broadcastable `[K * R, G, ...]`."""
            bias = blocks.for_each_head(bias, heads)
            return bias if bias.shape[0] == 1 else tf.repeat(bias, shared, axis=0)

        biases = {}
        for window in self._windows:
            of_prompt, of_cache = context.bias()[None], kv_cache_bias
            if window is not None:
                of_prompt += tf.where(context.distances(index) < window, 0.0, MASKED)
                of_cache += tf.where(index - places < window, 0.0, MASKED)
            biases[window] = (for_queries(of_prompt), for_queries(of_cache))

        def block(
            layer: Layer,
            x: tf.Tensor,
            rotation: Rotation,
            keys_values: tuple[KeysValues, KeysValues],
            biases: tuple[tf.Tensor, tf.Tensor],
        ) -> tuple[tf.Tensor, KeysValues]:
            q, k, v = self._attention_inputs(layer, x, rotation)
            size = q.shape[-1]
            current = KeysValues(*(tf.reshape(y, [num_beams, groups, size]) for y in (k, v)))
            # The R queries of a head of keys are like R beams, `[K * R, G, D]`.
            q = _swap_middle(tf.reshape(q, [num_beams, groups, shared, size]))
            q = tf.reshape(q, [num_beams * shared, groups, size])
            repeated = KeysValues(*(tf.repeat(y, shared, axis=0) for y in current))
            (of_prompt, cached), (prompt_bias, cache_bias) = keys_values, biases
            attended = blocks.attend_step(
                q, of_prompt, prompt_bias, cached, cache_bias, repeated, 0.0, self.form.score_cap
            )
            attended = _swap_middle(tf.reshape(attended, [num_beams, shared, groups, size]))
            merged = [num_beams * batch_size, heads * shared * size]
            return self._finish(layer, x, tf.reshape(attended, merged)), current

        each = Repeated(block)
        x, all_current = self._embed(tf.reshape(token_ids, [num_beams * batch_size])), []
        for layer, form, *keys_values in zip(
            self.layers, self.form.layers, prompt, kv_cache, strict=True
        ):
            rotation = rotations[form.mixer.positions]
            x, current = each(layer, x, rotation, tuple(keys_values), biases[form.mixer.window])
            all_current.append(current)
        return self.logits(blocks.batch_first(x, batch_size)), all_current

    def empty_kv_cache(self, batch_size: int, num_beams: int, length: int) -> list[KeysValues]:
        """See `Model.empty_kv_cache`."""
        groups = batch_size * self.form.kv_heads
        zeros = tf.zeros([groups, length, num_beams, self.form.head_size])
        return [KeysValues(zeros, zeros) for _ in self.layers]

    @property
    def _windows(self) -> set[int | None]:
        return {form.mixer.window for form in self.form.layers}

    def _rotations(self, places: tf.Tensor) -> dict[Positions, Rotation]:
        """For each kind of layer, the angles of positions, `[positions]` int32."""

        def rotation(of: Positions) -> Rotation:
            position = tf.cast(places, tf.float32)[:, None, None]
            angles = position * tf.constant(of.inverse_frequencies, tf.float32)
            cos, sin = tf.cos(angles), tf.sin(angles)
            if of.amplitude != 1.0:
                cos, sin = cos * of.amplitude, sin * of.amplitude
            if of.query_growth is None:
                return Rotation(cos, sin, None)
            weight, length = of.query_growth
            times = tf.cast(places // length, tf.float32)[:, None, None]
            return Rotation(cos, sin, 1.0 + weight * tf.math.log(1.0 + times))

        kinds = dict.fromkeys(layer.mixer.positions for layer in self.form.layers)
        return {kind: rotation(kind) for kind in kinds}

    def _embed(self, token_ids: tf.Tensor) -> tf.Tensor:
        x = self.embedding.columns(token_ids)
        return x if self.form.embedding_scale == 1.0 else x * self.form.embedding_scale

    def _attention_inputs(
        self, layer: Layer, x: tf.Tensor, rotation: Rotation
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Scaled queries, keys and values, `[positions, heads, D]`, with their positions."""
        form = self.form
        counts = [form.heads, form.kv_heads, form.kv_heads]
        normed = layer.attention_norm(x) if layer.attention_norm else x
        parts = tf.split(layer.qkv(normed), [n * form.head_size for n in counts], axis=-1)
        own_norms = (layer.query_norm, layer.key_norm, None)
        if form.qk_norm == "all":
            parts = [norm(y) if norm else y for norm, y in zip(own_norms, parts, strict=True)]
        q, k, v = (
            tf.reshape(y, [-1, n, form.head_size]) for y, n in zip(parts, counts, strict=True)
        )
        if layer.query_norm and layer.key_norm and form.qk_norm == "head":
            q, k = layer.query_norm(q), layer.key_norm(k)
        q *= form.score_scale
        if rotation.query_scale is not None:
            q *= rotation.query_scale
        angles = rotation.cosines, rotation.sines
        return blocks.rotate(q, *angles), blocks.rotate(k, *angles), v

    def _finish(self, layer: Layer, x: tf.Tensor, attended: tf.Tensor) -> tf.Tensor:
        """What follows attention: `[positions, E]`."""
        x += self._added(layer.attention_out_norm, layer.attention_out(attended))
        normed = layer.feed_forward_norm(x) if layer.feed_forward_norm else x
        return x + self._added(layer.feed_forward_out_norm, layer.feed_forward(normed))

    def _added(self, norm: Norm | None, y: tf.Tensor) -> tf.Tensor:
        y = norm(y) if norm else y
        return y if self.form.residual_scale == 1.0 else y * self.form.residual_scale

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """See `PooledModel.logits`."""
        logits = self.head.multiply(self.final_norm(x))
        if self.form.logit_scale != 1.0:
            logits *= self.form.logit_scale
        return blocks.soft_cap(logits, self.form.logit_cap)


def _swap(x: tf.Tensor) -> tf.Tensor:
    """Swaps the first two of three axes."""
    return tf.transpose(x, [1, 0, 2])


def _swap_middle(x: tf.Tensor) -> tf.Tensor:
    """Swaps the middle two of four axes."""
    return tf.transpose(x, [0, 2, 1, 3])
