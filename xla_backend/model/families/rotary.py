"""Decoders with rotary positions, Llama and later ones; see docs/architectures.md.

Knows the forward pass of the models that `checkpoints.architectures` describes. Axes: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from transformers import PretrainedConfig

from xla_backend.checkpoints.architectures import tensors
from xla_backend.checkpoints.architectures.forms import (
    ConvolutionForm,
    DecoderForm,
    ExpertsForm,
    FeedForwardForm,
    LayerForm,
    MixerForm,
    ParallelForm,
    Positions,
    StateForm,
)
from xla_backend.checkpoints.architectures.table import describe
from xla_backend.kernels.attention.recurrence import Heads
from xla_backend.kernels.graph.kv_operations import Memory, Softmax, only_tokens
from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import FeedForward, Linear, Norm, Repeated, WeightReader
from xla_backend.model.families.experts import Experts
from xla_backend.model.families.kernels import States
from xla_backend.model.families.mixers import (
    Attention,
    Convolution,
    DeltaRule,
    Mamba,
    Mixer,
    Parallel,
    Rotation,
    State,
    Taps,
)
from xla_backend.model.families.model import LayerMemory
from xla_backend.model.families.padded import PaddedModel


class LayerInputs(NamedTuple):
    """Adds each token's per-layer embedding to a layer's output (Gemma 4).

    Attributes:
        scale: `[1]`, of the layer's output.
    """

    gate: Linear
    out: Linear
    norm: Norm
    scale: tf.Variable


class Layer(NamedTuple):
    """One block: a mixer and a feed-forward network."""

    mixer_norm: Norm | None
    mixer: Mixer
    mixer_out_norm: Norm | None
    feed_forward_norm: Norm | None
    feed_forward: FeedForward | Experts
    feed_forward_out_norm: Norm | None
    inputs: LayerInputs | None


class LayerEmbeddings(NamedTuple):
    """Per-layer embeddings of tokens, P numbers for each layer.

    Attributes:
        embedding: `[layers * P, V]`. projection: of the first embedding. norm: of its P numbers.
    """

    embedding: Matrix
    projection: Linear
    norm: Norm


@dataclass(frozen=True)
class Rotary(PaddedModel):
    """A rotary decoder over its weights.

    Attributes:
        embedding: `[E, V]`, token embeddings and, if tied, also the head; an embedding is a column.
        head: `[E, V]`.
    """

    form: DecoderForm
    layers: tuple[Layer, ...]
    embedding: Matrix
    layer_embeddings: LayerEmbeddings | None
    final_norm: Norm
    head: Matrix
    variables: Mapping[str, tf.Variable]
    states: States

    @classmethod
    def from_checkpoint(cls, config: PretrainedConfig, read: WeightReader) -> Rotary:
        form = describe(config)
        activation = scaled = blocks.activation(form.activation)
        if form.activation_scales != (1.0, 1.0):
            before, after = form.activation_scales

            def scaled(x: tf.Tensor) -> tf.Tensor:
                return activation(x * before) * after

        def norm(name: str) -> Norm:
            return Norm(read.variable(f"{name}.weight", form.norm_offset), None, form.epsilon)

        def taps(at: str, has_bias: bool, in_state: bool) -> Taps:
            bias = read.variable(f"{at}.bias") if has_bias else None
            return Taps(read.transposed(f"{at}.weight"), bias, in_state)

        def mixer(at: str, of: MixerForm) -> Any:
            if isinstance(of, ParallelForm):
                return Parallel(mixer(at, of.attention), mixer(at, of.state), of.scales)
            if isinstance(of, ConvolutionForm):
                return Convolution(
                    into=read.linears([f"{at}.conv.in_proj"]),
                    taps=taps(f"{at}.conv.conv", of.has_bias, in_state=False),
                    out=read.linears([f"{at}.conv.out_proj"]),
                )
            if isinstance(of, StateForm):
                at = f"{at}.{tensors.STATES[of.rule]}"
                decays, step_bias = read.exponential(f"{at}.A_log"), read.variable(f"{at}.dt_bias")
                sizes = of.heads, of.key_heads, of.keys, of.values
                rule: DeltaRule | Mamba
                if of.rule == "delta":
                    into = [f"{at}.in_proj_{x}" for x in ("qkv", "z", "b", "a")]
                    own = Norm(read.variable(f"{at}.norm.weight"), None, form.epsilon)
                    rule = DeltaRule(decays, step_bias, own, activation)
                else:
                    into, skip = [f"{at}.in_proj"], read.variable(f"{at}.D")
                    scale = read.variable(f"{at}.norm.weight") if of.norm else None
                    norms = scale, of.norm == "before", form.epsilon
                    rule = Mamba(decays, step_bias, skip, *norms, of.scales, activation)
                return State(
                    into=read.linears(into),
                    taps=taps(f"{at}.conv1d", of.has_bias, in_state=True),
                    rule=rule,
                    out=read.linears([f"{at}.out_proj"]),
                    heads=Heads(*sizes, of.alternate, corrects=of.rule == "delta"),
                )
            at, shares = f"{at}.self_attn", of.source is not None
            sinks = read.variable(f"{at}.sink.weight") if form.has_sinks else None
            parts = "qkvg"[: 1 if shares else 4 if form.gates else 3]
            return Attention(
                qkv=read.linears([f"{at}.{x}_proj" for x in parts]),
                query_norm=norm(f"{at}.q_norm") if form.qk_norm else None,
                key_norm=norm(f"{at}.k_norm") if form.qk_norm and not shares else None,
                value_norm=Norm(1.0, None, form.epsilon) if form.normalizes_values else None,
                shares=shares,
                out=read.linears([f"{at}.o_proj"]),
                heads=form.heads,
                kv_heads=of.kv_heads,
                head_size=of.head_size,
                norms_all=form.qk_norm == "all",
                gates=form.gate_count(of),
                score_scale=form.score_scale,
                softmax=Softmax(form.score_cap, sinks),
            )

        def feed_forward(at: str, of: FeedForwardForm) -> FeedForward | Experts:
            if isinstance(of, ExpertsForm):
                names = [
                    [f"{at}.experts.{number}.{x}_proj" for number in range(of.count)]
                    for x in ("gate", "up", "down")
                ]
                gate, up, down = (read.parts([f"{x}.weight" for x in each]) for each in names)
                biases = None
                if form.feed_forward_bias:
                    biases = tuple(read.stack([f"{x}.bias" for x in each]) for each in names)
                router = read.linears([f"{at}.gate"])
                favoured = read.variable(f"{at}.expert_bias.bias") if of.favours else None
                shared = network(f"{at}.shared_expert") if of.shared else None
                shares = read.linears([f"{at}.shared_expert_gate"]) if of.gates_shared else None
                every = gate, up, down, biases, of, favoured, scaled
                return Experts(router, *every, shared, shares)
            return network(at)

        def network(at: str) -> FeedForward:
            return FeedForward(
                up=read.linears([f"{at}.{x}_proj" for x in ("gate", "up")]),
                down=read.linears([f"{at}.down_proj"]),
                activation=scaled,
                is_gated=True,
            )

        def inputs(at: str) -> LayerInputs:
            return LayerInputs(
                gate=read.linears([f"{at}.per_layer_input_gate"]),
                out=read.linears([f"{at}.per_layer_projection"]),
                norm=norm(f"{at}.post_per_layer_input_norm"),
                scale=read.variable(f"{at}.layer_scale.weight"),
            )

        def layer(at: str, of: LayerForm) -> Layer:
            before, after, before_inner, after_inner = (
                norm(f"{at}.{name}") if name else None for name in tensors.norms(form)
            )
            return Layer(
                mixer_norm=before,
                mixer=mixer(at, of.mixer),
                mixer_out_norm=after,
                feed_forward_norm=before_inner,
                feed_forward=feed_forward(f"{at}.mlp", of.feed_forward),
                feed_forward_out_norm=after_inner,
                inputs=inputs(at) if form.layer_inputs else None,
            )

        embedding, further = read.matrix("model.embed_tokens.weight"), None
        if form.layer_inputs:
            further = LayerEmbeddings(
                read.matrix("model.embed_tokens_per_layer.weight"),
                read.linears(["model.per_layer_model_projection"]),
                norm("model.per_layer_projection_norm"),
            )
        return cls(
            form=form,
            layers=tuple(layer(f"model.layers.{i}", of) for i, of in enumerate(form.layers)),
            embedding=embedding,
            layer_embeddings=further,
            final_norm=norm("model.norm"),
            head=read.matrix("lm_head.weight") if "lm_head.weight" in read else embedding,
            variables=read.variables,
            states=read.kernels.states,
        )

    @property
    def vocabulary_size(self) -> int:
        return self.form.vocabulary_size

    @property
    def context_length(self) -> int:
        return self.form.context_length

    @property
    def layer_memory(self) -> list[LayerMemory]:
        found = []
        for layer, form in zip(self.layers, self.form.layers, strict=True):
            of_block, of_row, remembered = layer.mixer.memory
            sees = form.mixer.window, form.mixer.source
            found.append(LayerMemory(of_block, of_row, *sees, remembered))
        return found

    def run(
        self,
        token_ids: tf.Tensor,
        places: tf.Tensor,
        memory: Memory,
        of_layers: Sequence[Any],
        only_last: bool = False,
    ) -> tuple[tf.Tensor, list[Any]]:
        rotations = self._rotations(tf.maximum(places[:, 1], 0))

        def block(
            layer: Layer,
            x: tf.Tensor,
            rotation: Rotation | None,
            memory: Memory,
            of_layer: Any,
            source: Any,
            own: tf.Tensor | None,
            only_last: bool,
        ) -> tuple[tf.Tensor, Any]:
            normed = layer.mixer_norm(x) if layer.mixer_norm else x
            mixed, written = layer.mixer.run(normed, rotation, memory, of_layer, source)
            if only_last:
                x, mixed = x[-1, None], mixed[-1, None]
                own = None if own is None else own[-1, None]
            return self._finish(layer, x, mixed, own), written

        each = Repeated(block)
        all_written: list[Any] = []
        x, inputs = self._embed(token_ids)
        x = only_tokens(x, places)
        for number, (form, of_layer) in enumerate(zip(self.form.layers, of_layers, strict=True)):
            of = form.mixer
            source = () if of.source is None else all_written[of.source]
            is_last = only_last and number == len(self.layers) - 1
            operands = x, rotations[of.positions], memory, of_layer
            x, written = each(self.layers[number], *operands, source, inputs[number], is_last)
            all_written.append(written)
        return x, all_written

    def _rotations(self, places: tf.Tensor) -> dict[Positions | None, Rotation | None]:
        """The angles of positions, `[positions]` int32, for each kind of layer."""

        def rotation(of: Positions | None) -> Rotation | None:
            if of is None:
                return None
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

    def _embed(self, token_ids: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
        """Embeddings of tokens, and their per-layer embeddings."""
        x = self.embedding.columns(token_ids)
        x = x if self.form.embedding_scale == 1.0 else x * self.form.embedding_scale
        further, count, size = self.layer_embeddings, len(self.layers), self.form.layer_inputs
        if further is None:
            return x, [None] * count
        projected = further.projection(x) * self.form.width**-0.5
        projected = further.norm(tf.reshape(projected, [-1, count, size]))
        own = tf.reshape(further.embedding.columns(token_ids), [-1, count, size]) * size**0.5
        return x, tf.unstack((projected + own) * 0.5**0.5, axis=1)

    def _finish(
        self, layer: Layer, x: tf.Tensor, mixed: tf.Tensor, own: tf.Tensor | None
    ) -> tf.Tensor:
        """The rest of a layer after its mixer: `[positions, E]`."""
        x += self._added(layer.mixer_out_norm, mixed)
        normed = layer.feed_forward_norm(x) if layer.feed_forward_norm else x
        x += self._added(layer.feed_forward_out_norm, layer.feed_forward(normed))
        if layer.inputs is None:
            return x
        gate = blocks.activation(self.form.activation)(layer.inputs.gate(x))
        x += layer.inputs.norm(layer.inputs.out(gate * own))
        return x * layer.inputs.scale

    def _added(self, norm: Norm | None, y: tf.Tensor) -> tf.Tensor:
        y = norm(y) if norm else y
        return y if self.form.residual_scale == 1.0 else y * self.form.residual_scale

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        logits = self.head.multiply(self.final_norm(x))
        if self.form.logit_scale != 1.0:
            logits *= self.form.logit_scale
        return blocks.soft_cap(logits, self.form.logit_cap)
