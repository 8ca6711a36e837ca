"""`PaddedModel`: a decoder-only model for the functions of a shape, where no row has memory.

Knows how its forward pass (`PooledModel.run`) reads a padded prompt at once, and then the current
token of each beam, over what layers remember as values of the graph. `padded_length` is the number
of slots for the prompt; those of its padding, on the left, are masked. Padding is NaN, except in
what is remembered, so that products skip it. Axes: see `blocks`; here H are the heads of keys and
values, each of which R neighbouring heads of queries share.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from xla_backend.kernels.attention.recurrence import Heads
from xla_backend.kernels.graph.kv_operations import PLAIN, Softmax
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import MASKED, CausalMask, KeysValues
from xla_backend.model.families.kernels import States
from xla_backend.model.families.model import LayerMemory, PooledModel, Prefilled


class PromptContext(NamedTuple):
    """What a step needs from the prompt.

    Attributes:
        padding: `[1]` int32, the number of slots before its first token.
        length: `[1]` int32, its number of tokens.
        prompt: what each layer remembers of it, `[H, S, D]`.
    """

    padding: tf.Tensor
    length: tf.Tensor
    prompt: list[Any]


class PaddedModel:
    """The padded form of a `PooledModel`, which has this as a base."""

    def input_specs(self) -> list[tf.TensorSpec]:
        """Token ids `[S]` and how many of them are padding, both int32."""
        return [tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)]

    def encode(self, token_ids: list[int], padded_length: int) -> list[tf.Tensor]:
        """The prompt padded on the left; the model never sees the token used as padding."""
        padding = padded_length - len(token_ids)
        return [tf.constant([0] * padding + token_ids, tf.int32), tf.constant(padding)]

    def example(self, padded_length: int) -> list[tf.Tensor]:
        return self.encode([0] * padded_length, padded_length)

    def prefilled_structure(self: PooledModel) -> Prefilled:
        return Prefilled(0, 0, PromptContext(0, 0, [of.remembered for of in self.layer_memory]))

    def prefill(self: PooledModel, token_ids: tf.Tensor, padding: tf.Tensor) -> Prefilled:
        length = tf.shape(token_ids)[0]
        slots = tf.range(length)
        positions = slots - padding
        places = tf.stack([tf.minimum(positions, 0), positions], axis=1)
        mask = CausalMask(padding)
        memory, layers = _OfPrompt(mask, self.states), self.layer_memory
        # Only the logits of the last position are needed. So the rest of the last layer runs for it
        # alone, and the head, the largest matrix, too.
        of_layers = [_layer(of, is_last=at == len(layers)) for at, of in enumerate(layers, 1)]
        x, written = self.run(token_ids, places, memory, of_layers, True)

        def remembered(of: tf.TensorSpec, x: tf.Tensor) -> tf.Tensor:
            return blocks.swap(mask.without_padding(x) if of.shape[1] is None else x)

        prompt = [
            tf.nest.map_structure(remembered, of.remembered, x)
            for of, x in zip(layers, written, strict=True)
        ]
        return Prefilled(
            logits=self.logits(x),
            seen=blocks.occurring(token_ids, positions >= 0, self.vocabulary_size),
            context=PromptContext(padding[None], (length - padding)[None], prompt),
        )

    def step(
        self: PooledModel,
        token_ids: tf.Tensor,
        index: tf.Tensor,
        context: PromptContext,
        kv_cache: list[Any],
        kv_cache_bias: tf.Tensor,
    ) -> tuple[tf.Tensor, list[Any]]:
        num_beams = token_ids.shape[0]
        position = tf.tile(context.length + index, [num_beams])
        places = tf.stack([tf.zeros_like(position), position], axis=1)
        of_layers = [
            _layer(*of) for of in zip(self.layer_memory, context.prompt, kv_cache, strict=True)
        ]
        memory = _OfBeams(index, context.padding, kv_cache_bias, self.states)
        x, written = self.run(token_ids, places, memory, of_layers)
        return self.logits(x), written

    def empty_kv_cache(self: PooledModel, num_beams: int, length: int) -> list[Any]:
        def empty(of: tf.TensorSpec) -> tf.Tensor:
            heads, positions, size = of.shape
            return tf.zeros([heads, positions or length, num_beams, size])

        return [tf.nest.map_structure(empty, of.remembered) for of in self.layer_memory]


class _OfPrompt(NamedTuple):
    """The `Memory` of a whole prompt, before which nothing is."""

    mask: CausalMask
    states: States | None

    def attend(
        self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, layer: _Layer, softmax: Softmax = PLAIN
    ) -> tf.Tensor:
        kv = KeysValues(*(blocks.swap(self.mask.without_padding(x)) for x in (k, v)))
        mask, q = self.mask._replace(window=layer.window), blocks.swap(q)
        if not layer.is_last:
            return blocks.attend_causally(q, kv, mask, softmax)
        length = tf.shape(k)[0]
        bias = mask.bias(length[None] - 1, length)
        return blocks.attend_all(q[:, -1, None], kv, bias, softmax)

    def before(
        self, lines: tf.Tensor, layer: _Layer, count: int, in_state: int = 0, offset: int = 0
    ) -> tf.Tensor:
        length = tf.shape(lines)[0]
        # Before the prompt there are zeros, and in place of padding.
        padded = tf.pad(self.mask.without_padding(lines), [[count, 0], [0, 0]])
        starts = range(count - 1, -1, -1)
        return tf.concat([padded[begin : begin + length] for begin in starts], axis=1)

    def advance(self, lines: tf.Tensor, layer: _Layer, heads: Heads) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Memory`; padding leaves a state of zeros."""
        assert self.states is not None, "its model has some"
        lines = self.mask.without_padding(lines)
        read, state = self.states.read_all(lines, heads)
        return read, state[None, None]


class _OfBeams(NamedTuple):
    """The `Memory` of the current token of each beam.

    Attributes:
        index: see `Model.step`. padding: see `PromptContext`.
        bias: 0 for those new tokens that are a beam's own, broadcastable to `[K, 1, N * K]`.
    """

    index: tf.Tensor
    padding: tf.Tensor
    bias: tf.Tensor
    states: States | None

    def attend(
        self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, layer: _Layer, softmax: Softmax = PLAIN
    ) -> tf.Tensor:
        prompt, cached, window, _ = layer
        (num_beams, heads, size), kv_heads = q.shape, k.shape[1]
        shared, slots = heads // kv_heads, tf.shape(prompt.keys)[1]
        slot = tf.range(slots)
        of_prompt, of_cached = tf.where(slot >= self.padding, 0.0, MASKED), self.bias
        if window is not None:
            of_prompt += tf.where(slots + self.index - slot < window, 0.0, MASKED)
            of_token = tf.range(tf.shape(self.bias)[-1]) // num_beams
            of_cached += tf.where(self.index - of_token < window, 0.0, MASKED)
        # The R queries of a head of keys are like R beams, `[K * R, H, D]`.
        q = _swap_middle(tf.reshape(q, [num_beams, kv_heads, shared, size]))
        if of_cached.shape[0] > 1:
            of_cached = tf.repeat(of_cached, shared, axis=0)
        if softmax.sinks is not None:
            sinks = tf.transpose(tf.reshape(softmax.sinks, [kv_heads, shared]))
            softmax = softmax._replace(sinks=tf.tile(sinks, [num_beams, 1])[..., None])
        attended = blocks.attend_step(
            tf.reshape(q, [num_beams * shared, kv_heads, size]),
            *(prompt, of_prompt, cached, of_cached),
            KeysValues(*(tf.repeat(x, shared, axis=0) for x in (k, v))),
            softmax=softmax,
        )
        attended = _swap_middle(tf.reshape(attended, [num_beams, shared, kv_heads, size]))
        return tf.reshape(attended, [num_beams, heads * size])

    def before(
        self, lines: tf.Tensor, layer: _Layer, count: int, in_state: int = 0, offset: int = 0
    ) -> tf.Tensor:
        prompt, cached = layer.prompt.inputs[0], layer.cached.inputs[0]
        slots, num_beams = tf.shape(prompt)[0], cached.shape[1]

        def of(back: int) -> tf.Tensor:
            at = self.index - back
            found = tf.gather(cached, tf.maximum(at, 0))
            if num_beams > 1:  # `[K of tokens, E]`, of which each beam has one
                is_own = self._are_own(at)[..., None]
                found = tf.reduce_sum(tf.where(is_own, found[None], 0.0), axis=1)
            of_prompt = tf.gather(prompt, tf.clip_by_value(slots + at, 0, slots - 1))
            return tf.where(at >= 0, found, of_prompt[None])

        return tf.concat([of(back) for back in range(1, count + 1)], axis=1)

    def advance(self, lines: tf.Tensor, layer: _Layer, heads: Heads) -> tuple[tf.Tensor, tf.Tensor]:
        assert self.states is not None, "its model has some"
        states, num_beams = layer.cached.state[0, 0], layer.cached.state.shape[2]
        beams, own = tf.range(num_beams), tf.constant([0])
        if num_beams > 1:
            own = tf.reduce_sum(tf.where(self._are_own(self.index - 1), beams, 0), axis=1)
        source = tf.broadcast_to(tf.where(self.index > 0, own, -1), [num_beams])
        state = self.states.step(lines, layer.prompt.state[0], states, source, heads)
        return state[:, : heads.total * heads.values], state[:, None]

    def _are_own(self, at: tf.Tensor) -> tf.Tensor:
        """Which of all beams' tokens at a place is each beam's own: `[K, K]` bool."""
        num_beams = self.bias.shape[0]
        columns = tf.maximum(at, 0) * num_beams + tf.range(num_beams)
        return tf.gather(self.bias[:, 0], columns, axis=1) == 0.0


class _Layer(NamedTuple):
    """What a layer remembers of the prompt and of new tokens, how many positions it sees, and
    whether only the last one of a prompt has a result."""

    prompt: Any
    cached: Any
    window: int | None
    is_last: bool = False


def _layer(
    of: LayerMemory, prompt: Any = ((), ()), cached: Any = ((), ()), is_last: bool = False
) -> Any:
    """A `_Layer`, or of a pair of mixers a pair of them; before a prompt there is nothing."""
    if type(of.remembered) is tuple:
        pairs = zip(prompt, cached, strict=True)
        return tuple(_Layer(*own, of.window, is_last) for own in pairs)
    return _Layer(prompt, cached, of.window, is_last)


def _swap_middle(x: tf.Tensor) -> tf.Tensor:
    """Swaps the middle two of four axes."""
    return tf.transpose(x, [0, 2, 1, 3])
