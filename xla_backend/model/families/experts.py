"""Routed experts: gated feed-forward networks of which a router chooses some for each token.

Knows how tokens are routed, so that only chosen experts are read. T tokens, E the model's width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xla_backend.checkpoints.architectures.forms import ExpertsForm
from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.model.families.blocks import FeedForward, Linear

_FEW = 16
"""Up to this many tokens, an expert multiplies all: gathering the tokens that chose it costs more
than multiplying the others."""


class Experts(NamedTuple):
    """The feed-forward network of a layer.

    Attributes:
        router: yields a logit for each expert. gate, up, down: the matrices of all experts.
        biases: of these three, `[experts, out]`; None without any.
        form: how many are chosen, and how.
        favoured: `[experts]`, added to scores before the choice.
        shared: a network that every token has besides. share: yields the logit of its gate.
    """

    router: Linear
    gate: Matrix
    up: Matrix
    down: Matrix
    biases: tuple[tf.Variable, ...] | None
    form: ExpertsForm
    favoured: tf.Variable | None
    activation: Callable[[tf.Tensor], tf.Tensor]
    shared: FeedForward | None
    share: Linear | None

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """`[T, E] -> [T, E]`. Rows that are NaN have no expert, and stay NaN."""
        shares = self._shares(x)
        is_chosen = shares > 0
        count = shares.shape[1]
        # Experts in ascending order, so that a token's sum always has the same order.
        is_used = tf.cast(tf.reduce_any(is_chosen, axis=0), tf.int32)
        _, used = tf.math.top_k(is_used * 2 * count - tf.range(count), count)

        def add(step: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            expert = tf.gather(used, step)
            own = tf.gather(is_chosen, expert, axis=1)
            share = tf.gather(shares, expert, axis=1)[:, None]
            found = tf.cond(
                tf.shape(x)[0] > _FEW,
                lambda: self._apart(x, own, expert),
                lambda: self._one(x, expert),
            )
            return step + 1, y + tf.where(own[:, None], share * found, 0.0)

        number = tf.reduce_sum(is_used)
        y = tf.while_loop(lambda step, y: step < number, add, (0, x * 0.0))[1]
        if self.shared is None:
            return y
        own = self.shared(x)
        return y + (own if self.share is None else own * tf.sigmoid(self.share(x)))

    def _shares(self, x: tf.Tensor) -> tf.Tensor:
        """The weight of each expert for each token, `[T, experts]`; 0 for those not chosen."""
        logits = self.router(x)
        scores = logits if self.form.sigmoid_scale is None else tf.sigmoid(logits)
        favoured = scores if self.favoured is None else scores + self.favoured
        _, places = tf.math.top_k(favoured, self.form.chosen)
        is_chosen = tf.reduce_any(places[:, :, None] == tf.range(logits.shape[1]), axis=1)
        of = is_chosen if self.form.sums_to_one else True
        if self.form.sigmoid_scale is None:
            masked = tf.where(of, logits, -np.inf)
            shares = tf.exp(logits - tf.reduce_logsumexp(masked, axis=1, keepdims=True))
        else:
            shares = scores * self.form.sigmoid_scale
            if self.form.sums_to_one:
                total = tf.reduce_sum(tf.where(of, scores, 0.0), axis=1, keepdims=True)
                shares /= total + 1e-6
        return tf.where(is_chosen, shares, 0.0)

    def _one(self, x: tf.Tensor, expert: tf.Tensor) -> tf.Tensor:
        """An expert's network for all rows."""
        gate, up = self._multiplied(0, x, expert), self._multiplied(1, x, expert)
        if self.form.clamp is None:
            return self._multiplied(2, self.activation(gate) * up, expert)
        limit, steepness = self.form.clamp
        gate, up = tf.minimum(gate, limit), tf.clip_by_value(up, -limit, limit)
        return self._multiplied(2, gate * tf.sigmoid(steepness * gate) * (up + 1.0), expert)

    def _multiplied(self, which: int, x: tf.Tensor, expert: tf.Tensor) -> tf.Tensor:
        y = (self.gate, self.up, self.down)[which].multiply(x, expert)
        return y + tf.gather(self.biases[which], expert) if self.biases else y

    def _apart(self, x: tf.Tensor, own: tf.Tensor, expert: tf.Tensor) -> tf.Tensor:
        """The same for some rows, which are put first; the others are not multiplied."""
        order = tf.argsort(tf.cast(~own, tf.int32), stable=True)
        rows = tf.where(own[:, None], x, np.float32(np.nan))
        found = self._one(tf.gather(rows, order), expert)
        return tf.gather(found, tf.argsort(order))
