"""Mixers of a layer: attention with rotary positions, a short convolution, a state that each token
changes, or attention in parallel with such a state.

Knows each in the three ways that a model runs (a padded prompt at once, `prefill`; token by token,
`step`; any tokens over blocks of memory, `run`), and its state of earlier positions in each. Must
not know the rest of a layer, nor architectures. Axes: see `blocks`; here H are the heads of keys
and values, each of which R neighbouring heads of queries share, so that keys and values are never
repeated in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from xla_backend.kernels.attention import attention, earlier
from xla_backend.kernels.attention.recurrence import Heads
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import CausalMask, KeysValues, Linear, Norm
from xla_backend.model.families.kernels import States
from xla_backend.model.families.model import Memory


class Mixer(Protocol):
    """What a layer's mixer offers.

    Its state is a nest of tensors; its class defines `rotation` (of positions) and `visible` (the
    positions that a step sees). `source` is the state in this call of the layer whose keys and
    values it shares; `()` if it has its own.
    """

    @property
    def block_bytes(self) -> int:
        """Bytes that it uses of a block of memory."""

    @property
    def row_bytes(self) -> int:
        """Bytes that it takes of a row's state."""

    @property
    def structure(self) -> Any:
        """A nest as what it remembers, with any leaves."""

    def empty(self, batch_size: int, num_beams: int, length: int) -> Any:
        """Zeros for the state of N new tokens, `[.., N, K, ..]`."""

    def prefill(
        self, x: tf.Tensor, rotation: Any, mask: CausalMask, source: Any, only_last: bool
    ) -> tuple[tf.Tensor, Any]:
        """Runs a prompt, `[S, E]`, all of it or only its last position; also returns its state."""

    def run(
        self,
        x: tf.Tensor,
        rotation: Any,
        places: tf.Tensor,
        memory: Memory,
        of_layer: tf.Tensor,
        source: Any,
    ) -> tuple[tf.Tensor, Any]:
        """Runs any tokens, `[T, E]`, see `kv_operations.attend`.

        Also returns other layers' source.
        """

    def step(
        self, x: tf.Tensor, rotation: Any, prompt: Any, cached: Any, visible: Any, source: Any
    ) -> tuple[tf.Tensor, Any]:
        """Runs the current tokens, `[K * B, E]`; also returns their state, `[K, .., ..]`.

        Args:
            x: tokens. rotation: of their positions.
            prompt, cached: the states of the prompt and of the new tokens.
            visible: which of these the tokens see.
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
        sinks: `[heads]`, see `blocks.attend_all`.
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
    sinks: tf.Variable | None
    score_scale: float
    score_cap: float | None

    @property
    def block_bytes(self) -> int:
        """See `Mixer.block_bytes`."""
        return 0 if self.shares else attention.layer_bytes(self.kv_heads, self.head_size)

    @property
    def row_bytes(self) -> int:
        """See `Mixer.row_bytes`."""
        return 0

    @property
    def structure(self) -> KeysValues:
        """See `Mixer.structure`."""
        return KeysValues(0, 0)

    def empty(self, batch_size: int, num_beams: int, length: int) -> KeysValues:
        """See `Mixer.empty`."""
        zeros = tf.zeros([batch_size * self.kv_heads, length, num_beams, self.head_size])
        return KeysValues(zeros, zeros)

    def prefill(
        self, x: tf.Tensor, rotation: Rotation, mask: CausalMask, source: Any, only_last: bool
    ) -> tuple[tf.Tensor, KeysValues]:
        """See `Mixer.prefill`."""
        # Keys and values `[H, S, D]`, queries `[H * R, S, D]`.
        q, own, gates = self._inputs(x, rotation)
        own = [_swap(mask.without_padding(y)) for y in own]
        q, kv = _swap(q), KeysValues(*(source or own))
        cap, sinks = self.score_cap, self.sinks
        if not only_last:
            return self._out(blocks.attend_causally(q, kv, mask, cap, sinks), gates), kv
        length = tf.shape(x)[0]
        bias = mask.bias(length[None] - 1, length)
        attended = blocks.attend_all(q[:, -1, None], kv, bias, cap, sinks)
        return self._out(attended, gates[-1, None]), kv

    def run(
        self,
        x: tf.Tensor,
        rotation: Rotation,
        places: tf.Tensor,
        memory: Memory,
        of_layer: tf.Tensor,
        source: Any,
    ) -> tuple[tf.Tensor, KeysValues]:
        """See `Mixer.run`. What another layer wrote is written again, in its place."""
        q, own, gates = self._inputs(x, rotation)
        kv = KeysValues(*(source or map(_flat, own)))
        attended = memory.attend(
            *(_flat(q), *kv, places, of_layer),
            heads=self.heads,
            kv_heads=self.kv_heads,
            score_cap=self.score_cap,
            sinks=self.sinks,
        )
        return self._out(attended, gates), kv

    def step(
        self,
        x: tf.Tensor,
        rotation: Rotation,
        prompt: KeysValues,
        cached: KeysValues,
        visible: tuple[tf.Tensor, tf.Tensor],
        source: Any,
    ) -> tuple[tf.Tensor, KeysValues]:
        """See `Mixer.step`; `visible`: biases of prompt and new tokens, see `for_queries`."""
        q, kv, gates = self._inputs(x, rotation)
        groups, size = prompt.keys.shape[0], self.head_size
        shared, num_beams = self.heads // self.kv_heads, cached.keys.shape[2]
        own = (tf.reshape(y, [num_beams, groups, size]) for y in kv)
        current = KeysValues(*(source or own))
        # The R queries of a head of keys are like R beams, `[K * R, G, D]`.
        q = _swap_middle(tf.reshape(q, [num_beams, groups, shared, size]))
        q = tf.reshape(q, [num_beams * shared, groups, size])
        repeated = KeysValues(*(tf.repeat(y, shared, axis=0) for y in current))
        prompt_bias, cache_bias = visible
        sinks = self.sinks
        if sinks is not None:
            sinks = tf.transpose(tf.reshape(sinks, [groups, shared]))
            sinks = tf.tile(sinks, [num_beams, 1])[..., None]
        attended = blocks.attend_step(
            *(q, prompt, prompt_bias, cached, cache_bias, repeated, 0.0, self.score_cap, sinks)
        )
        attended = _swap_middle(tf.reshape(attended, [num_beams, shared, groups, size]))
        attended = tf.reshape(attended, [x.shape[0], self.heads * size])
        return self._out(attended, gates), current

    def for_queries(self, bias: tf.Tensor) -> tf.Tensor:
        """`[K, B, ...]` to broadcastable `[K * R, G, ...]`."""
        bias = blocks.for_each_head(bias, self.kv_heads)
        shared = self.heads // self.kv_heads
        return bias if bias.shape[0] == 1 else tf.repeat(bias, shared, axis=0)

    def _out(self, attended: tf.Tensor, gates: tf.Tensor) -> tf.Tensor:
        """`[positions, heads * D] -> [positions, E]`."""
        if self.gates:
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
    """The state of a convolution: its inputs at earlier positions.

    `[B, taps - 1, E]` of the end of a prompt; `[B, N, K, E]` of new tokens; `[K, B, E]` of the
    current token of each beam.
    """

    inputs: tf.Tensor


class Recurrent(NamedTuple):
    """What a mixer with a state remembers.

    Attributes:
        inputs: of its convolution, see `Inputs`.
        state: `[B, numbers]` after a prompt; `[B, 1, K, numbers]` after the last new token;
            `[K, B, numbers]` after the current one.
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
    def row_bytes(self) -> int:
        """See `Mixer.row_bytes`."""
        return earlier.row_bytes(*self.weights.shape) if self.in_state else 0

    def prefill(self, given: tf.Tensor, mask: CausalMask) -> tuple[tf.Tensor, tf.Tensor]:
        """Of a prompt, `[S, E]`, and the last inputs."""
        length, count = tf.shape(given)[0], self.weights.shape[0] - 1
        # Before the prompt there are zeros, and in place of padding.
        padded = tf.pad(mask.without_padding(given), [[count, 0], [0, 0]])
        before = [padded[count - back : count - back + length] for back in range(1, count + 1)]
        last = tf.reshape(padded[length:], [1, count, self.weights.shape[1]])
        return self._convolved(padded[count:], before), last

    def run(
        self, given: tf.Tensor, places: tf.Tensor, memory: Memory, of_layer: tf.Tensor
    ) -> tf.Tensor:
        """Of any tokens, `[T, E]`."""
        count = self.weights.shape[0] - 1
        in_state = earlier.lines_in_state(count + 1) if self.in_state else 0
        before = memory.before(given, places, of_layer, count, in_state)
        return self._convolved(given, tf.split(before, count, axis=1))

    def step(
        self,
        given: tf.Tensor,
        prompt: tf.Tensor,
        cached: tf.Tensor,
        visible: tuple[tf.Tensor, tf.Tensor],
    ) -> tf.Tensor:
        """Of the current tokens, `[K * B, E]`; see `Convolution.step`."""
        index, _ = visible
        count = self.weights.shape[0] - 1

        def before(back: int) -> tf.Tensor:
            """`[K * B, E]`."""
            at = index - back
            of_prompt = tf.gather(prompt, tf.clip_by_value(at + count, 0, count - 1), axis=1)
            # The inputs of all beams, `[B, K, E]`.
            of_beams = tf.gather(cached, tf.maximum(at, 0), axis=1)
            found = tf.where(at >= 0, _own(of_beams, at, visible), of_prompt[None])
            return tf.reshape(found, given.shape)

        return self._convolved(given, [before(back) for back in range(1, count + 1)])

    def _convolved(self, given: tf.Tensor, before: list[tf.Tensor]) -> tf.Tensor:
        """The convolution, from each position and those one, two, ... before it."""
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
    def block_bytes(self) -> int:
        """See `Mixer.block_bytes`."""
        return earlier.layer_bytes(self.taps.weights.shape[1])

    @property
    def row_bytes(self) -> int:
        """See `Mixer.row_bytes`."""
        return 0

    @property
    def structure(self) -> Inputs:
        """See `Mixer.structure`."""
        return Inputs(0)

    def empty(self, batch_size: int, num_beams: int, length: int) -> Inputs:
        """See `Mixer.empty`."""
        return Inputs(tf.zeros([batch_size, length, num_beams, self.taps.weights.shape[1]]))

    def prefill(
        self, x: tf.Tensor, rotation: None, mask: CausalMask, source: Any, only_last: bool
    ) -> tuple[tf.Tensor, Inputs]:
        """See `Mixer.prefill`; the state is the last inputs."""
        given, gate = self._inputs(x)
        mixed, last = self.taps.prefill(given, mask)
        if only_last:
            mixed, gate = mixed[-1, None], gate[-1, None]
        return self.out(gate * mixed), Inputs(last)

    def run(
        self,
        x: tf.Tensor,
        rotation: None,
        places: tf.Tensor,
        memory: Memory,
        of_layer: tf.Tensor,
        source: Any,
    ) -> tuple[tf.Tensor, tuple[()]]:
        """See `Mixer.run`."""
        given, gate = self._inputs(x)
        return self.out(gate * self.taps.run(given, places, memory, of_layer)), ()

    def step(
        self,
        x: tf.Tensor,
        rotation: None,
        prompt: Inputs,
        cached: Inputs,
        visible: tuple[tf.Tensor, tf.Tensor],
        source: Any,
    ) -> tuple[tf.Tensor, Inputs]:
        """See `Mixer.step`.

        `visible`: the place of these tokens among the new ones; and a bias that is 0 for those new
        tokens that are a beam's own, broadcastable to `[K, B, N * K]`.
        """
        given, gate = self._inputs(x)
        mixed = self.taps.step(given, prompt.inputs, cached.inputs, visible)
        return self.out(gate * mixed), Inputs(_by_beam(given, cached.inputs))

    def _inputs(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The input of the convolution, and the gate of its output."""
        first, second, given = tf.split(self.into(x), 3, axis=-1)
        return first * given, second


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
    corrects: bool = True

    def split(
        self, projected: tf.Tensor, inputs: int, of: Heads
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The input of the convolution, gates of what is read, factors of each head."""
        sizes = [inputs, of.total * of.values, 2 * of.total]
        return tuple(tf.split(projected, sizes, axis=-1))

    def lines(self, mixed: tf.Tensor, factors: tf.Tensor, of: Heads) -> tf.Tensor:
        """See `kv_operations.advance`."""
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
    corrects: bool = False

    def split(
        self, projected: tf.Tensor, inputs: int, of: Heads
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """See `DeltaRule.split`."""
        width, keys = of.total * of.values, of.key_heads * of.keys
        if self.scales is not None:
            projected *= tf.repeat(self.scales, [width, width, keys, keys, of.total])
        gate, given, step = tf.split(projected, [width, inputs, of.total], axis=-1)
        return given, gate, step

    def lines(self, mixed: tf.Tensor, factors: tf.Tensor, of: Heads) -> tf.Tensor:
        """See `kv_operations.advance`."""
        keys = of.key_heads * of.keys
        v, k, q = tf.split(self.activation(mixed), [of.total * of.values, keys, keys], axis=-1)
        step = tf.math.softplus(factors + self.step_bias)
        return tf.concat([q, k, v, tf.exp(-self.decays * step), step], axis=-1)

    def finish(self, read: tf.Tensor, lines: tf.Tensor, gate: tf.Tensor, of: Heads) -> tf.Tensor:
        """See `DeltaRule.finish`."""
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
        by_values: computes states of padded texts.
    """

    into: Linear
    taps: Taps
    rule: DeltaRule | Mamba
    out: Linear
    heads: Heads
    by_values: States

    @property
    def block_bytes(self) -> int:
        """See `Mixer.block_bytes`."""
        return 0

    @property
    def row_bytes(self) -> int:
        """See `Mixer.row_bytes`."""
        return self.heads.row_bytes + self.taps.row_bytes

    @property
    def structure(self) -> Recurrent:
        """See `Mixer.structure`."""
        return Recurrent(0, 0)

    def empty(self, batch_size: int, num_beams: int, length: int) -> Recurrent:
        """See `Mixer.empty`."""
        inputs = tf.zeros([batch_size, length, num_beams, self.taps.weights.shape[1]])
        return Recurrent(inputs, tf.zeros([batch_size, 1, num_beams, self.heads.numbers]))

    def prefill(
        self, x: tf.Tensor, rotation: None, mask: CausalMask, source: Any, only_last: bool
    ) -> tuple[tf.Tensor, Recurrent]:
        """See `Mixer.prefill`."""
        given, gate, factors = self._inputs(x)
        mixed, last = self.taps.prefill(given, mask)
        of = self.heads
        # Padding leaves a state of zeros.
        lines = mask.without_padding(self.rule.lines(mixed, factors, of))
        read, state = self.by_values.read_all(lines, of, corrects=self.rule.corrects)
        if only_last:
            read, lines, gate = read[-1, None], lines[-1, None], gate[-1, None]
        return self._finish(read, lines, gate), Recurrent(last, state[None])

    def run(
        self,
        x: tf.Tensor,
        rotation: None,
        places: tf.Tensor,
        memory: Memory,
        of_layer: tf.Tensor,
        source: Any,
    ) -> tuple[tf.Tensor, tuple[()]]:
        """See `Mixer.run`."""
        given, gate, factors = self._inputs(x)
        after_state = of_layer + tf.constant([self.heads.row_bytes, 0, 0], tf.int64)
        mixed = self.taps.run(given, places, memory, after_state)
        lines, corrects = self.rule.lines(mixed, factors, self.heads), self.rule.corrects
        read = memory.advance(lines, places, of_layer, self.heads, corrects=corrects)
        return self._finish(read, lines, gate), ()

    def step(
        self,
        x: tf.Tensor,
        rotation: None,
        prompt: Recurrent,
        cached: Recurrent,
        visible: tuple[tf.Tensor, tf.Tensor],
        source: Any,
    ) -> tuple[tf.Tensor, Recurrent]:
        """See `Mixer.step`; `visible` as in `Convolution.step`."""
        given, gate, factors = self._inputs(x)
        mixed = self.taps.step(given, prompt.inputs, cached.inputs, visible)
        lines, of = self.rule.lines(mixed, factors, self.heads), self.heads
        states = tf.reshape(cached.state, [-1, of.numbers])
        source = _states_before(visible, *cached.state.shape[:3:2])
        read_from = lines, prompt.state, states, source, of
        state = self.by_values.step(*read_from, corrects=self.rule.corrects)
        read = state[:, : of.total * of.values]
        current = (_by_beam(y, cached.inputs) for y in (given, state))
        return self._finish(read, lines, gate), Recurrent(*current)

    def _inputs(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return self.rule.split(self.into(x), self.taps.weights.shape[1], self.heads)

    def _finish(self, read: tf.Tensor, lines: tf.Tensor, gate: tf.Tensor) -> tf.Tensor:
        """`[positions, heads * values] -> [positions, E]`."""
        return self.out(self.rule.finish(read, lines, gate, self.heads))


class Parallel(NamedTuple):
    """Attention and a state of one input, whose outputs are added (Falcon-H1).

    What it remembers, what a step sees and where it lies in memory are pairs of theirs.

    Attributes:
        scales: factors of what they yield.
    """

    attention: Attention
    state: State
    scales: tuple[float, float]

    @property
    def block_bytes(self) -> int:
        """See `Mixer.block_bytes`."""
        return self.attention.block_bytes

    @property
    def row_bytes(self) -> int:
        """See `Mixer.row_bytes`."""
        return self.state.row_bytes

    @property
    def structure(self) -> tuple[KeysValues, Recurrent]:
        """See `Mixer.structure`."""
        return self.attention.structure, self.state.structure

    def empty(self, batch_size: int, num_beams: int, length: int) -> tuple[KeysValues, Recurrent]:
        """See `Mixer.empty`."""
        sizes = batch_size, num_beams, length
        return self.attention.empty(*sizes), self.state.empty(*sizes)

    def prefill(
        self, x: tf.Tensor, rotation: Rotation, mask: CausalMask, source: Any, only_last: bool
    ) -> tuple[tf.Tensor, tuple[Any, Any]]:
        """See `Mixer.prefill`."""
        return self._added(
            self.attention.prefill(x, rotation, mask, source, only_last),
            self.state.prefill(x, None, mask, source, only_last),
        )

    def run(
        self,
        x: tf.Tensor,
        rotation: Rotation,
        places: tf.Tensor,
        memory: Memory,
        of_layer: tuple[tf.Tensor, tf.Tensor],
        source: Any,
    ) -> tuple[tf.Tensor, tuple[Any, Any]]:
        """See `Mixer.run`."""
        of_attention, of_state = of_layer
        return self._added(
            self.attention.run(x, rotation, places, memory, of_attention, source),
            self.state.run(x, None, places, memory, of_state, source),
        )

    def step(
        self,
        x: tf.Tensor,
        rotation: Rotation,
        prompt: tuple[KeysValues, Recurrent],
        cached: tuple[KeysValues, Recurrent],
        visible: tuple[Any, Any],
        source: Any,
    ) -> tuple[tf.Tensor, tuple[Any, Any]]:
        """See `Mixer.step`."""
        return self._added(
            self.attention.step(x, rotation, prompt[0], cached[0], visible[0], source),
            self.state.step(x, None, prompt[1], cached[1], visible[1], source),
        )

    def _added(
        self, attended: tuple[tf.Tensor, Any], read: tuple[tf.Tensor, Any]
    ) -> tuple[tf.Tensor, tuple[Any, Any]]:
        of_attention, of_state = self.scales
        return attended[0] * of_attention + read[0] * of_state, (attended[1], read[1])


def _own(of_beams: tf.Tensor, at: tf.Tensor, visible: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Of what all beams had at a place among the new tokens, `[B, K, E]`, each beam's own:
    `[K, B, E]`."""
    num_beams = of_beams.shape[1]
    if num_beams == 1:
        return tf.transpose(of_beams, [1, 0, 2])
    columns = tf.maximum(at, 0) * num_beams + tf.range(num_beams)
    is_own = tf.gather(visible[1], columns, axis=2) == 0.0
    return tf.reduce_sum(tf.where(is_own[..., None], of_beams[None], 0.0), axis=2)


def _states_before(
    visible: tuple[tf.Tensor, tf.Tensor], batch_size: int, num_beams: int
) -> tf.Tensor:
    """The `source` of `kv_operations.step`, `[K * B]`, of states `[B * K, ..]`."""
    index, bias = visible
    own, texts = tf.constant(0), tf.range(batch_size)[None]
    if num_beams > 1:
        beams = tf.range(num_beams)
        columns = tf.maximum(index - 1, 0) * num_beams + beams
        own = tf.reduce_sum(tf.where(tf.gather(bias, columns, axis=2) == 0.0, beams, 0), axis=2)
    source = tf.where(index > 0, texts * num_beams + own, -1 - texts)
    return tf.reshape(tf.broadcast_to(source, [num_beams, batch_size]), [-1])


def _by_beam(x: tf.Tensor, cached: tf.Tensor) -> tf.Tensor:
    """`[K * B, E]` to `[K, B, E]`, for what is cached as `[B, N, K, ..]`."""
    return tf.reshape(x, [cached.shape[2], cached.shape[0], x.shape[-1]])


def _normed(parts: Iterable[tf.Tensor], norms: Iterable[Norm | None]) -> list[tf.Tensor]:
    return [norm(y) if norm else y for norm, y in zip(norms, parts, strict=False)]


def _flat(x: tf.Tensor) -> tf.Tensor:
    """`[positions, heads, D]` to `[positions, heads * D]`."""
    return tf.reshape(x, [-1, x.shape[1] * x.shape[2]])


def _swap(x: tf.Tensor) -> tf.Tensor:
    """Swaps the first two of three axes."""
    return tf.transpose(x, [1, 0, 2])


def _swap_middle(x: tf.Tensor) -> tf.Tensor:
    """Swaps the middle two of four axes."""
    return tf.transpose(x, [0, 2, 1, 3])
