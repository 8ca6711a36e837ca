"""The maths between logits and a chosen token: penalties, temperature, top-k, top-p, drawing.

Knows one step's logits `[R, V]` and runtime controls; everything is pure TensorFlow that XLA
compiles, and nothing here depends on Python values, so that no option ever retraces. Must not know
models, caches or loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from xla_backend.options import GenerationOptions

# What a filtered-out logit becomes: finite, so that sums of scores never become NaN.
FILTERED = -1e30

# Into how many groups the vocabulary is cut to find its likeliest tokens. With 256 the best 64 of
# 50,257 take 1.3 times as long, with 1,024 less still, but the few of a beam more.
_GROUPS = 512

# Both cut-offs are looked for among so many of the likeliest tokens, which must be more than top-k:
# the usual 50 is less.
_FEW = 64

# A partial sort for more than so many is worth a table in front of it.
_TABLED = 16

# A sum over so many stays one kernel.
_SUMMED = 32

# Sums over the vocabulary are sums over lines of so many tokens: the processor's vector lanes.
_LANES = 256


class Controls(NamedTuple):
    """The options as tensors, so that changing them never retraces: `[R]`, one value a row.

    Where there is one value only, `[1]`, it counts for all rows.
    """

    temperature: tf.Tensor
    top_p: tf.Tensor
    repetition_penalty: tf.Tensor
    length_penalty: tf.Tensor
    top_k: tf.Tensor
    do_sample: tf.Tensor
    early_stopping: tf.Tensor
    seed: tf.Tensor
    token_limit: tf.Tensor


# `early_stopping` as a number.
STOP_WHEN_UNLIKELY, STOP_WHEN_ENOUGH, STOP_WHEN_IMPOSSIBLE = 0, 1, 2


def pack(options: Sequence[GenerationOptions]) -> tuple[np.ndarray, np.ndarray]:
    """The options of texts side by side, `[B, 4]` and `[B, 5]`: two arguments instead of nine."""
    reals, integers = zip(*map(_numbers, options), strict=True)
    return np.array(reals, np.float32), np.array(integers, np.int32)


def _numbers(options: GenerationOptions) -> tuple[tuple[float, ...], tuple[int, ...]]:
    early_stopping = (
        STOP_WHEN_IMPOSSIBLE if options.early_stopping == "never" else int(options.early_stopping)
    )
    reals = (
        # Greedy divides by 1: the compiled branch it skips must not hold a division by zero.
        options.temperature if options.do_sample else 1.0,
        options.top_p,
        options.repetition_penalty,
        options.length_penalty,
    )
    integers = (
        options.top_k,
        int(options.do_sample),
        early_stopping,
        options.seed,
        options.max_new_tokens,
    )
    return reals, integers


def unpack(reals: tf.Tensor, integers: tf.Tensor) -> Controls:
    """The inverse of `pack`, inside a compiled function: one value a text."""
    return Controls(*tf.unstack(reals, num=4, axis=1), *tf.unstack(integers, num=5, axis=1))


def for_each_row(controls: Controls, rows: int) -> Controls:
    """The values of texts, `[B]`, for the rows of each: `[B * R]`, text by text."""
    if controls.seed.shape[0] == 1:
        return controls
    return Controls(*(tf.repeat(values, rows) for values in controls))


def where_sampling(
    controls: Controls, sampled: Callable[[], Any], greedy: Callable[[], Any]
) -> Any:
    """What each text of `[B, ...]` tensors gets: the first where it samples, else the second.

    While no text samples, nothing but the second is computed.
    """

    def each() -> Any:
        if controls.do_sample.shape[0] == 1:
            return sampled()  # all texts sample, as it is only one
        return tf.nest.map_structure(
            lambda x, y: tf.where(controls.do_sample[:, None] > 0, x, y), sampled(), greedy()
        )

    return tf.cond(tf.reduce_any(controls.do_sample > 0), each, greedy)


def penalize(scores: tf.Tensor, seen: tf.Tensor, penalty: tf.Tensor) -> tf.Tensor:
    """Repetition penalty of the CTRL paper (arXiv:1909.05858), as Hugging Face applies it.

    Args:
        scores: `[R, V]`, logits or log-probabilities.
        seen: `[R, V]` bool, tokens that already occurred.
        penalty: `[R]` or `[1]`; positive scores of seen tokens are divided by it, negative
            multiplied.
    """
    is_off = tf.reduce_all(tf.equal(penalty, 1.0))
    penalty = penalty[:, None]
    return tf.cond(
        is_off,
        lambda: scores,
        lambda: tf.where(
            seen, tf.where(scores > 0.0, scores * (1.0 / penalty), scores * penalty), scores
        ),
    )


def filter_scores(scores: tf.Tensor, controls: Controls) -> tf.Tensor:
    """Temperature, then top-k, then top-p (arXiv:1904.09751), in Hugging Face's order.

    A token stays while fewer than `top_k` tokens beat it, and while the tokens that beat it hold
    less than `top_p` of the probability; tokens of equal score stay or go together. How each text's
    cut-off is found depends on its own options and scores alone: texts beside it change nothing.

    Returns:
        `[R, V]` with filtered entries at `FILTERED`.
    """
    scores, _, is_kept = _cut(scores, controls)
    return tf.where(is_kept, scores, FILTERED)


def weigh(scores: tf.Tensor, controls: Controls) -> tf.Tensor:
    """What `filter_scores` leaves, for `draw`: `[R, V]`, in proportion to the probabilities.

    The likeliest token has 1, what is filtered out 0.
    """
    _, mass, is_kept = _cut(scores, controls)
    return tf.where(is_kept, mass, 0.0)


def _cut(scores: tf.Tensor, controls: Controls) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Scores over the temperature, in proportion to what probability, and whether they stay."""
    scores = scores / controls.temperature[:, None]
    best = likeliest(scores, min(_FEW, scores.shape[1]))
    of_best = tf.gather(scores, best, batch_dims=1)
    keys, keys_of_best = _ordered_bits(scores), _ordered_bits(of_best)
    mass, mass_of_best = tf.exp(scores - of_best[:, :1]), tf.exp(of_best - of_best[:, :1])
    is_among, among_best = _cut_among(keys_of_best, mass_of_best, controls)
    threshold = tf.cond(
        tf.reduce_all(is_among),
        lambda: among_best,
        lambda: tf.where(is_among, among_best, _cut_by_search(keys, mass, controls)),
    )
    return scores, mass, keys >= threshold[:, None]


def _cut_among(keys: tf.Tensor, mass: tf.Tensor, controls: Controls) -> tuple[tf.Tensor, tf.Tensor]:
    """Whether the lowest key that stays can be told from the likeliest, and which it is; `[R]`.

    Args:
        keys, mass: `[R, N]`, of the likeliest tokens, best first.
    """
    rows, count = keys.shape
    last = tf.broadcast_to(tf.clip_by_value(controls.top_k, 1, count) - 1, [rows])
    lowest = tf.gather(keys, last, batch_dims=1)
    # Where the last one is equal to it, more may be that are not among the likeliest.
    is_among = (controls.top_k > 0) & (lowest > keys[:, -1])
    limit = controls.top_p * _sum_few(tf.where(keys >= lowest[:, None], mass, 0.0))
    beats = keys[:, None, :] > keys[:, :, None]
    above = _sum_few(tf.where(beats, mass[:, None, :], 0.0))
    is_kept = (above < limit[:, None]) | (controls.top_p >= 1.0)[:, None]
    is_kept &= keys >= lowest[:, None]
    # The best stays whatever the limit is, which rounding can make 0.
    return is_among, tf.reduce_min(tf.where(is_kept, keys, keys[:, :1]), axis=-1)


def _cut_by_search(keys: tf.Tensor, mass: tf.Tensor, controls: Controls) -> tf.Tensor:
    """The lowest key that stays, `[R]`, whatever `top_k` is.

    By bisection over the ordered bits of the floats: some 30 masked sums at most, where sorting
    50,257 entries takes ten times longer.

    Args:
        keys, mass: `[R, V]`.
    """
    best = tf.reduce_max(keys, axis=-1)

    # A loop of two rounds instead of two calls: XLA compiles its body once. The second one need not
    # look below what the first has cut off.
    def cut(is_second: tf.Tensor, lowest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        is_top_p = is_second > 0
        left = tf.where(keys >= lowest[:, None], mass, 0.0)
        limit = tf.where(is_top_p, controls.top_p * _sum(left), tf.cast(controls.top_k, tf.float32))
        is_off = tf.where(is_top_p, controls.top_p >= 1.0, controls.top_k <= 0)
        threshold = _smallest_with_less_above(
            keys, tf.where(is_top_p, left, 1.0), limit, lowest, tf.where(is_off, lowest, best)
        )
        return is_second + 1, threshold

    start = (0, tf.fill([keys.shape[0]], tf.int32.min))
    return tf.while_loop(lambda i, _: i < 2, cut, start)[1]


def draw(weights: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """One token a row, each as often as it has weight, by inverting the running sum of weights.

    Args:
        weights: `[R, V]`, none negative.
        uniform: `[R]` in (0, 1), the noise.

    Returns:
        `[R]` int32.
    """
    rows, size = weights.shape
    lanes = 2 ** round(math.log2(size) / 2)  # about as many as there are lines
    lines = -(-size // lanes)
    weights = tf.reshape(tf.pad(weights, [[0, 0], [0, lines * lanes - size]]), [rows, lines, lanes])
    # First the lane, then the line in it: two short sums instead of one over the vocabulary.
    in_lane = tf.reduce_sum(weights, axis=1)
    lane, left = _fall_into(in_lane, uniform * _sum_few(in_lane))
    line, _ = _fall_into(tf.gather(weights, lane, axis=2, batch_dims=1), left)
    return line * lanes + lane


def _fall_into(weights: tf.Tensor, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where in `[R, N]` a share, `[R]`, of the weights falls, counted from the end.

    Returns:
        The smallest index behind which less than `share` is left, never one without weight, and how
        much of the share is its own; both `[R]`.
    """
    places = tf.range(weights.shape[1])
    # Not a running sum: one without weight changes no bit of these, and so is never fallen into.
    is_from = places[None, :] >= tf.range(weights.shape[1] + 1)[:, None]
    sums = _sum_few(tf.where(is_from, weights[:, None, :], 0.0))
    share, behind = tf.minimum(share, sums[:, 0]), sums[:, 1:]
    index = _sum_few(tf.cast(behind >= share[:, None], tf.int32))
    return index, share - tf.gather(behind, index, batch_dims=1)


def noise(seed: tf.Tensor, step: tf.Tensor, size: int) -> tf.Tensor:
    """Uniform numbers in (0, 1), `[B, size]`, a pure function of seed `[B]` and step.

    A counter hashed twice by MurmurHash3's 32-bit finaliser (Appleby, public domain). TensorFlow's
    own stateless generators unroll into so much code that compiling them took a second.
    """

    def mix(x: tf.Tensor) -> tf.Tensor:
        x = (x ^ tf.bitwise.right_shift(x, 16)) * 0x85EBCA6B
        x = (x ^ tf.bitwise.right_shift(x, 13)) * 0xC2B2AE35
        return x ^ tf.bitwise.right_shift(x, 16)

    seed, step = tf.cast(seed, tf.uint32), tf.cast(step, tf.uint32)
    stream = mix(mix(seed + 0x9E3779B9) ^ step)
    stream = stream[:, None]
    bits = mix(mix(tf.cast(tf.range(size), tf.uint32) * 0x9E3779B9 + stream) + stream)
    # 23 bits and a half step: never 0, never 1.
    return (tf.cast(tf.bitwise.right_shift(bits, 9), tf.float32) + 0.5) * 2.0**-23


def likeliest(scores: tf.Tensor, count: int) -> tf.Tensor:
    """The `count` highest scores of each row, best first: `[R, V] -> [R, count]` int32.

    They lie in the groups whose maxima are highest, so only the members of those are compared: 50
    microseconds for the best 64 of 50,257, 10 of 2,048. Of equal scores any may come.
    """
    rows, size = scores.shape
    each = size // _GROUPS
    # Neighbours belong to different groups: maxima of columns use the processor's vector lanes.
    whole = each * _GROUPS
    candidates = tf.broadcast_to(tf.range(whole, size)[None, :], [rows, size - whole])
    if each:
        maxima = tf.reduce_max(tf.reshape(scores[:, :whole], [rows, each, _GROUPS]), axis=1)
        all_groups = tf.broadcast_to(tf.range(_GROUPS)[None, :], [rows, _GROUPS])
        groups = _highest(maxima, all_groups, count)
        members = groups[:, None, :] + tf.range(each)[None, :, None] * _GROUPS
        members = tf.reshape(members, [rows, each * count])
        candidates = tf.concat([members, candidates], axis=1)
    return _highest(scores, candidates, count)


def _highest(scores: tf.Tensor, among: tf.Tensor, count: int) -> tf.Tensor:
    """The `count` indices with the highest scores, best first: `[R, count]` int32.

    Args:
        scores: `[R, V]`. among: `[R, N]` int32, the indices in question, none twice.
    """
    if count > _TABLED:
        among = _highest_in_front(scores, among, count)
    best = tf.math.top_k(tf.gather(scores, among, batch_dims=1), count)[1]
    return tf.gather(among, best, batch_dims=1)


def _highest_in_front(scores: tf.Tensor, among: tf.Tensor, count: int) -> tf.Tensor:
    """The same indices in another order, for a partial sort.

    It takes the first `count` it is given, and what is higher takes their places: each time a
    branch that no processor can guess. Given the highest of every column of a table with `count`
    columns first, it needs half the time.
    """
    lines = among.shape[1] // count
    table = tf.reshape(among[:, : lines * count], [-1, lines, count])
    in_table = tf.gather(scores, table, batch_dims=1)
    # Not what equals the maximum: in a column with NaN that would be nothing.
    is_lower = in_table < tf.reduce_max(in_table, axis=1, keepdims=True)
    highest = tf.reduce_max(tf.where(is_lower, -1, table), axis=1, keepdims=True)
    others = tf.where(tf.equal(table, highest), table[:, :1], table)[:, 1:]
    table = tf.reshape(tf.concat([highest, others], axis=1), [-1, lines * count])
    return tf.concat([table, among[:, lines * count :]], axis=1)


def _smallest_with_less_above(
    keys: tf.Tensor, weights: tf.Tensor, limit: tf.Tensor, low: tf.Tensor, high: tf.Tensor
) -> tf.Tensor:
    """By bisection in [low, high], `[R]`: the smallest key above which weights sum to < limit.

    Or a smaller one, if no key lies between: what is at least as large is the same.

    Args:
        keys: `[R, V]` int32. weights: `[R, V]`, none negative. limit: broadcastable to `[R]`.
    """

    def halve(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Written so that the sum of two int32 cannot overflow.
        middle = (low & high) + tf.bitwise.right_shift(low ^ high, 1)
        above = _sum(tf.where(keys > middle[:, None], weights, 0.0))
        beyond = tf.minimum(middle + 1, high)
        # Just the limit: what lies above is what is wanted, and the search is over.
        high = tf.where(above < limit, middle, tf.where(tf.equal(above, limit), beyond, high))
        return tf.where(above < limit, low, beyond), high

    return tf.while_loop(lambda low, high: tf.reduce_any(low < high), halve, (low, high))[1]


def _ordered_bits(x: tf.Tensor) -> tf.Tensor:
    """float32 to int32 such that the order is the same."""
    # Minus zero equals zero, but not in its bits. (XLA would strike out an addition of 0.)
    bits = tf.bitcast(tf.where(tf.equal(x, 0.0), 0.0, x), tf.int32)
    return tf.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def _sum(x: tf.Tensor) -> tf.Tensor:
    """`[R, V] -> [R]`, in two stages so that the first can use the processor's vector lanes."""
    rows, size = x.shape
    whole = size // _LANES * _LANES
    total = tf.reduce_sum(x[:, whole:], axis=-1)
    if whole:
        blocks = tf.reshape(x[:, :whole], [rows, whole // _LANES, _LANES])
        total += tf.reduce_sum(tf.reduce_sum(blocks, axis=1), axis=-1)
    return total


def _sum_few(x: tf.Tensor) -> tf.Tensor:
    """`[..., N] -> [...]`, for an N of some hundreds at most.

    XLA makes three kernels of a sum over more than 32, and none with what comes before it in one.
    """
    size = x.shape[-1]
    parts = -(-size // _SUMMED)
    x = tf.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[0, parts * _SUMMED - size]])
    x = tf.reshape(x, [*x.shape[:-1], parts, _SUMMED])
    return tf.add_n(tf.unstack(tf.reduce_sum(x, axis=-1), axis=-1))
