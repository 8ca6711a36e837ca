"""Mixers of a layer: attention with rotary positions, or a short convolution.

Knows each in the three ways that a model runs (a padded prompt at once, `prefill`; token by token,
`step`; any tokens over blocks of memory, `run`), and its state of earlier positions in each. Must
not know the rest of a layer, nor architectures. Axes: see `blocks`; here H are the heads of keys
and values, each of which R neighbouring heads of queries share, so that keys and values are never
repeated in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from xla_backend.attention import attention, earlier
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import CausalMask, KeysValues, Linear, Norm


class Mixer(Protocol):
    """What a layer's mixer offers.

    Its state is a nest of tensors; its class defines `rotation` (of positions) and `visible` (the
    positions that a step sees). `source` is the state in this call of the layer whose keys and
    values it shares; `()` if it has its own.
    """

    @property
    def block_bytes(self) -> int:
        """Bytes that it uses of a block of memory."""

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
        memory: tf.Tensor,
        of_layer: tf.Tensor,
        source: Any,
    ) -> tuple[tf.Tensor, Any]:
        """Runs any tokens, `[T, E]`, see `attention.attend`; also returns other layers' source."""

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
        q, kv = _swap(q), KeysValues(*(source or map(_swap, own)))
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
        memory: tf.Tensor,
        of_layer: tf.Tensor,
        source: Any,
    ) -> tuple[tf.Tensor, KeysValues]:
        """See `Mixer.run`. What another layer wrote is written again, in its place."""
        q, own, gates = self._inputs(x, rotation)
        kv = KeysValues(*(source or map(_flat, own)))
        attended = attention.attend(
            *(_flat(q), *kv, places, memory, of_layer),
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


class Convolution(NamedTuple):
    """A short convolution along positions between two gates (LFM2).

    Attributes:
        into: yields the first gate, the second gate, and the convolution's input.
        taps: `[taps, E]`, the weight of the position itself last.
    """

    into: Linear
    taps: tf.Variable
    bias: tf.Variable | None
    out: Linear

    @property
    def block_bytes(self) -> int:
        """See `Mixer.block_bytes`."""
        return earlier.layer_bytes(self.taps.shape[1])

    def empty(self, batch_size: int, num_beams: int, length: int) -> Inputs:
        """See `Mixer.empty`."""
        return Inputs(tf.zeros([batch_size, length, num_beams, self.taps.shape[1]]))

    def prefill(
        self, x: tf.Tensor, rotation: None, mask: CausalMask, source: Any, only_last: bool
    ) -> tuple[tf.Tensor, Inputs]:
        """See `Mixer.prefill`; the state is the last inputs."""
        given, gate = self._inputs(x)
        length, count = tf.shape(x)[0], self.taps.shape[0] - 1
        is_token = tf.range(length)[:, None] >= mask.padding
        # Before the prompt there are zeros, and in place of padding.
        padded = tf.pad(tf.where(is_token, given, 0.0), [[count, 0], [0, 0]])
        before = [padded[count - back : count - back + length] for back in range(1, count + 1)]
        mixed = self._convolved(padded[count:], before)
        if only_last:
            mixed, gate = mixed[-1, None], gate[-1, None]
        last = tf.reshape(padded[length:], [1, count, self.taps.shape[1]])
        return self.out(gate * mixed), Inputs(last)

    def run(
        self,
        x: tf.Tensor,
        rotation: None,
        places: tf.Tensor,
        memory: tf.Tensor,
        of_layer: tf.Tensor,
        source: Any,
    ) -> tuple[tf.Tensor, tuple[()]]:
        """See `Mixer.run`."""
        given, gate = self._inputs(x)
        count = self.taps.shape[0] - 1
        before = tf.split(earlier.before(given, places, memory, of_layer, count), count, axis=1)
        return self.out(gate * self._convolved(given, before)), ()

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
        batch_size, _, num_beams, width = cached.inputs.shape
        index, bias = visible
        count = self.taps.shape[0] - 1

        def before(back: int) -> tf.Tensor:
            """`[K * B, E]`."""
            at = index - back
            of_prompt = tf.gather(prompt.inputs, tf.clip_by_value(at + count, 0, count - 1), axis=1)
            # The inputs of all beams, `[B, K, E]`, of which one is each beam's own.
            of_beams = tf.gather(cached.inputs, tf.maximum(at, 0), axis=1)
            if num_beams == 1:
                own = tf.transpose(of_beams, [1, 0, 2])
            else:
                columns = tf.maximum(at, 0) * num_beams + tf.range(num_beams)
                is_own = tf.gather(bias, columns, axis=2) == 0.0
                own = tf.where(is_own[..., None], of_beams[None], 0.0)
                own = tf.reduce_sum(own, axis=2)
            found = tf.where(at >= 0, own, of_prompt[None])
            return tf.reshape(found, [num_beams * batch_size, width])

        mixed = self._convolved(given, [before(back) for back in range(1, count + 1)])
        return self.out(gate * mixed), Inputs(tf.reshape(given, [num_beams, batch_size, width]))

    def _inputs(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The input of the convolution, and the gate of its output."""
        first, second, given = tf.split(self.into(x), 3, axis=-1)
        return first * given, second

    def _convolved(self, given: tf.Tensor, before: list[tf.Tensor]) -> tf.Tensor:
        """The convolution, from each position and those one, two, ... before it."""
        taps = tf.unstack(tf.convert_to_tensor(self.taps))[::-1]
        total = given * taps[0]
        for tap, earlier_one in zip(taps[1:], before, strict=True):
            total += earlier_one * tap
        return total if self.bias is None else total + self.bias


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
