"""Mixers of a layer: attention with rotary positions, a short convolution, a state that each token
changes, or attention in parallel with such a state.

Knows how each runs any tokens over a `Memory`, and what it remembers. Axes: see `blocks`; here H
are the heads of keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from xla_backend.kernels.attention import attention, earlier
from xla_backend.kernels.attention.recurrence import Heads
from xla_backend.kernels.graph.kv_operations import Memory, Softmax
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import KeysValues, Linear, Norm


class Mixer(Protocol):
    """What a layer's mixer offers."""

    @property
    def memory(self) -> tuple[int, int, Any]:
        """Of its `LayerMemory`: `block_bytes`, `row_bytes` and `remembered`."""

    def run(
        self, x: tf.Tensor, rotation: Any, memory: Memory, of_layer: Any, source: Any
    ) -> tuple[tf.Tensor, Any]:
        """Runs any tokens, `[T, E]`.

        Args:
            x: tokens. rotation: of their positions.
            memory, of_layer: see `Memory.attend`.
            source: what the layer whose keys and values it shares wrote in this call; `()` if it
                has its own.

        Returns:
            `[T, E]`, and what it wrote, as `LayerMemory.remembered`.
        """


class Rotation(NamedTuple):
    """Of the positions: cosines and sines of their angles, `[positions, 1, pairs]`.

    Attributes:
        query_scale: what queries are multiplied by, `[positions, 1, 1]`; None for nothing.
    """

    cosines: tf.Tensor
    sines: tf.Tensor
    query_scale: tf.Tensor | None


class Attention(NamedTuple):
    """Causal self-attention. Its state is keys and values.

    Attributes:
        qkv: yields queries, keys, values, and gates of what is attended; queries alone if `shares`.
        shares: whether its keys and values are another layer's.
        norms_all: whether the norms of queries and keys are of all heads as one.
        gates: their number; each is for as many numbers of a head.
    """

    qkv: Linear
    query_norm: Norm | None
    key_norm: Norm | None
    value_norm: Norm | None
    out: Linear
    shares: bool
    heads: int
    kv_heads: int
    head_size: int
    norms_all: bool
    gates: int
    score_scale: float
    softmax: Softmax

    @property
    def memory(self) -> tuple[int, int, KeysValues]:
        size = 0 if self.shares else attention.layer_bytes(self.kv_heads, self.head_size)
        each = tf.TensorSpec([self.kv_heads, None, self.head_size])
        return size, 0, KeysValues(each, each)

    def run(
        self, x: tf.Tensor, rotation: Rotation, memory: Memory, of_layer: Any, source: Any
    ) -> tuple[tf.Tensor, KeysValues]:
        """See `Mixer.run`. What another layer wrote is written again, in its place."""
        q, own, gates = self._inputs(x, rotation)
        kv = KeysValues(*(source or own))
        return self._out(memory.attend(q, *kv, of_layer, self.softmax), gates), kv

    def _out(self, attended: tf.Tensor, gates: tf.Tensor) -> tf.Tensor:
        """`[positions, heads * D] -> [positions, E]`; of a padded prompt maybe only the last."""
        if self.gates:
            gates = gates[-tf.shape(attended)[0] :]
            apart = tf.reshape(attended, [-1, self.gates, attended.shape[-1] // self.gates])
            attended = tf.reshape(apart * tf.sigmoid(gates)[..., None], tf.shape(attended))
        return self.out(attended)

    def _inputs(
        self, x: tf.Tensor, rotation: Rotation
    ) -> tuple[tf.Tensor, list[tf.Tensor], tf.Tensor]:
        """Scaled queries, and keys and values, `[positions, heads, D]`, with their positions;
        gates, `[positions, gates]`."""
        counts = [self.heads] + [self.kv_heads] * (0 if self.shares else 2)
        parts: Iterable[tf.Tensor]
        sizes = [*(n * self.head_size for n in counts), self.gates]
        *parts, gates = tf.split(self.qkv(x), sizes, axis=-1)
        norms = (self.query_norm, self.key_norm, self.value_norm)
        if self.norms_all:
            parts = _normed(parts, norms)
        parts = [tf.reshape(y, [-1, n, self.head_size]) for y, n in zip(parts, counts, strict=True)]
        q, *kv = parts if self.norms_all else _normed(parts, norms)
        q *= self.score_scale
        if rotation.query_scale is not None:
            q *= rotation.query_scale
        angles = rotation.cosines, rotation.sines
        rotated = [blocks.rotate(k, *angles) for k in kv[:1]]
        return blocks.rotate(q, *angles), rotated + kv[1:], gates


class Inputs(NamedTuple):
    """The inputs of a convolution at earlier positions, as of one head."""

    inputs: tf.Tensor


class Recurrent(NamedTuple):
    """What a mixer with a state remembers.

    Attributes:
        inputs: of its convolution, see `Inputs`.
        state: after the last token, as of one head and one position.
    """

    inputs: tf.Tensor
    state: tf.Tensor


class Taps(NamedTuple):
    """A convolution along positions.

    Attributes:
        weights: `[taps, E]`, that of the position itself last.
        in_state: whether a row's state has what it remembers, not its blocks.
    """

    weights: tf.Variable
    bias: tf.Variable | None
    in_state: bool

    @property
    def remembered(self) -> tf.TensorSpec:
        return tf.TensorSpec([1, None, self.weights.shape[1]])

    def run(self, given: tf.Tensor, memory: Memory, of_layer: Any, offset: int = 0) -> tf.Tensor:
        """Of any tokens, `[T, E]`; `offset`: see `Memory.before`."""
        count = self.weights.shape[0] - 1
        in_state = earlier.lines_in_state(count + 1) if self.in_state else 0
        # The lines one, two, ... positions before each.
        before = tf.split(memory.before(given, of_layer, count, in_state, offset), count, axis=1)
        taps = tf.unstack(tf.convert_to_tensor(self.weights))[::-1]
        total = given * taps[0]
        for tap, earlier_one in zip(taps[1:], before, strict=True):
            total += earlier_one * tap
        return total if self.bias is None else total + self.bias


class Convolution(NamedTuple):
    """A short convolution along positions between two gates (LFM2).

    Attributes:
        into: yields the first gate, the second gate, and the convolution's input.
    """

    into: Linear
    taps: Taps
    out: Linear

    @property
    def memory(self) -> tuple[int, int, Inputs]:
        return earlier.layer_bytes(self.taps.weights.shape[1]), 0, Inputs(self.taps.remembered)

    def run(
        self, x: tf.Tensor, rotation: None, memory: Memory, of_layer: Any, source: Any
    ) -> tuple[tf.Tensor, Inputs]:
        first, second, given = tf.split(self.into(x), 3, axis=-1)
        given *= first
        mixed = self.taps.run(given, memory, of_layer)
        return self.out(second * mixed), Inputs(given[:, None])


class DeltaRule(NamedTuple):
    """What tokens do to a state by the gated delta rule (Qwen3.5).

    Attributes:
        decays: `[heads]`, the negative logarithm of what a step of 1 leaves of a state.
        step_bias: `[heads]`. norm: of what each head reads.
    """

    decays: tf.Variable
    step_bias: tf.Variable
    norm: Norm
    activation: Callable[[tf.Tensor], tf.Tensor]

    def split(
        self, projected: tf.Tensor, inputs: int, of: Heads
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The input of the convolution, gates of what is read, factors of each head."""
        sizes = [inputs, of.total * of.values, 2 * of.total]
        return tuple(tf.split(projected, sizes, axis=-1))

    def lines(self, mixed: tf.Tensor, factors: tf.Tensor, of: Heads) -> tf.Tensor:
        mixed, keys = self.activation(mixed), of.key_heads * of.keys
        q, k, v = tf.split(mixed, [keys, keys, of.total * of.values], axis=-1)

        def normed(y: tf.Tensor) -> tf.Tensor:
            y = tf.reshape(y, [-1, of.key_heads, of.keys])
            y *= tf.math.rsqrt(tf.reduce_sum(y * y, axis=-1, keepdims=True) + 1e-6)
            return tf.reshape(y, [-1, keys])

        share, step = tf.split(factors, 2, axis=-1)
        decay = tf.exp(-self.decays * tf.math.softplus(step + self.step_bias))
        return tf.concat([normed(q) * of.keys**-0.5, normed(k), v, decay, tf.sigmoid(share)], -1)

    def finish(self, read: tf.Tensor, lines: tf.Tensor, gate: tf.Tensor, of: Heads) -> tf.Tensor:
        """What is projected: `[positions, heads * values]`."""
        read = self.norm(tf.reshape(read, [-1, of.total, of.values]))
        return tf.reshape(read, [-1, of.total * of.values]) * self.activation(gate)


class Mamba(NamedTuple):
    """The same by Mamba-2.

    Attributes:
        decays, step_bias: as in `DeltaRule`.
        skip: `[heads]`, how much of a token's own value is read besides.
        scale: `[heads * values]`, of norms, one for each head of keys; None for no norms.
        norms_first: whether these are before the gates.
        scales: factors of gates, values, keys, queries and steps; None for none.
    """

    decays: tf.Variable
    step_bias: tf.Variable
    skip: tf.Variable
    scale: tf.Variable | None
    norms_first: bool
    epsilon: float
    scales: tuple[float, ...] | None
    activation: Callable[[tf.Tensor], tf.Tensor]

    def split(
        self, projected: tf.Tensor, inputs: int, of: Heads
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        width, keys = of.total * of.values, of.key_heads * of.keys
        if self.scales is not None:
            projected *= tf.repeat(self.scales, [width, width, keys, keys, of.total])
        gate, given, step = tf.split(projected, [width, inputs, of.total], axis=-1)
        return given, gate, step

    def lines(self, mixed: tf.Tensor, factors: tf.Tensor, of: Heads) -> tf.Tensor:
        keys = of.key_heads * of.keys
        v, k, q = tf.split(self.activation(mixed), [of.total * of.values, keys, keys], axis=-1)
        step = tf.math.softplus(factors + self.step_bias)
        return tf.concat([q, k, v, tf.exp(-self.decays * step), step], axis=-1)

    def finish(self, read: tf.Tensor, lines: tf.Tensor, gate: tf.Tensor, of: Heads) -> tf.Tensor:
        width, begin = of.total * of.values, 2 * of.key_heads * of.keys
        read += lines[:, begin : begin + width] * tf.repeat(self.skip, of.values)
        if self.scale is None:
            return read * self.activation(gate)
        if not self.norms_first:
            read *= self.activation(gate)
        groups = tf.reshape(read, [-1, of.key_heads, width // of.key_heads])
        read = tf.reshape(Norm(1.0, None, self.epsilon)(groups), [-1, width]) * self.scale
        return read * self.activation(gate) if self.norms_first else read


class State(NamedTuple):
    """A short convolution, then a state that each token changes; see `attention.recurrence`.

    Attributes:
        into: yields what `rule` splits.
    """

    into: Linear
    taps: Taps
    rule: DeltaRule | Mamba
    out: Linear
    heads: Heads

    @property
    def memory(self) -> tuple[int, int, Recurrent]:
        size = self.heads.row_bytes + earlier.row_bytes(*self.taps.weights.shape)
        state = tf.TensorSpec([1, 1, self.heads.numbers])
        return 0, size, Recurrent(self.taps.remembered, state)

    def run(
        self, x: tf.Tensor, rotation: None, memory: Memory, of_layer: Any, source: Any
    ) -> tuple[tf.Tensor, Recurrent]:
        projected, width = self.into(x), self.taps.weights.shape[1]
        given, gate, factors = self.rule.split(projected, width, self.heads)
        mixed = self.taps.run(given, memory, of_layer, offset=self.heads.row_bytes)
        lines = self.rule.lines(mixed, factors, self.heads)
        read, state = memory.advance(lines, of_layer, self.heads)
        read = self.rule.finish(read, lines, gate, self.heads)
        return self.out(read), Recurrent(given[:, None], state)


class Parallel(NamedTuple):
    """Attention and a state of one input, whose outputs are added (Falcon-H1).

    What it remembers and where it lies in memory are pairs of theirs.

    Attributes:
        scales: factors of what they yield.
    """

    attention: Attention
    state: State
    scales: tuple[float, float]

    @property
    def memory(self) -> tuple[int, int, tuple[KeysValues, Recurrent]]:
        (of_block, _, kv), (_, of_row, state) = self.attention.memory, self.state.memory
        return of_block, of_row, (kv, state)

    def run(
        self,
        x: tf.Tensor,
        rotation: Rotation,
        memory: Memory,
        of_layer: tuple[Any, Any],
        source: Any,
    ) -> tuple[tf.Tensor, tuple[KeysValues, Recurrent]]:
        attended, kv = self.attention.run(x, rotation, memory, of_layer[0], source)
        read, state = self.state.run(x, None, memory, of_layer[1], source)
        of_attention, of_state = self.scales
        return attended * of_attention + read * of_state, (kv, state)


def _normed(parts: Iterable[tf.Tensor], norms: Iterable[Norm | None]) -> list[tf.Tensor]:
    return [norm(y) if norm else y for norm, y in zip(norms, parts, strict=False)]
