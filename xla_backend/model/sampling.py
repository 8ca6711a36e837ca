"""From logits to a token: Hugging Face's logits processors, and sampling.

Knows the logits of one step and the options as tensors. All of it is pure TensorFlow that XLA
compiles; nothing depends on Python values, so no option ever retraces. Axes: B batch, V vocabulary;
with beams, B counts the beams of all texts, as in Hugging Face's logits processors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from xla_backend.interface.options import GenerationOptions

FILTERED = -1e30
"""The score of a token that was filtered out: finite, so that sums of scores never become NaN."""

_GROUPS = 512
"""The number of groups in which `top_tokens` searches the vocabulary. With 256 the best 64 of
50,257 take 1.3 times as long; with 1,024 they take less time, but the few of a beam more."""
TOP_TOKENS_SEARCHED = 64
"""The number of top tokens among which both cut-offs are searched first. The cut-off of top-k is
found there if k is smaller, as the usual 50 is."""
_MIN_TABLE = 16
"""A partial sort for more than this many is faster after `_highest_in_front`."""
_MAX_SUM = 32
"""The longest sum that XLA keeps in one kernel."""
_LANES = 256
"""Sums over the vocabulary are sums over lines of this length: the processor's vector lanes."""


class Controls(NamedTuple):
    """The options as tensors `[B]`, so that changing them never retraces.

    A single value, `[1]`, holds for the whole batch. `is_adjusted` is 0 where `adjust` changes
    nothing; `logit_bias` is `[B, V]`, and so is `ends`, bool: which tokens end a text.
    """

    temperature: tf.Tensor
    top_p: tf.Tensor
    min_p: tf.Tensor
    repetition_penalty: tf.Tensor
    presence_penalty: tf.Tensor
    frequency_penalty: tf.Tensor
    length_penalty: tf.Tensor
    top_k: tf.Tensor
    do_sample: tf.Tensor
    is_adjusted: tf.Tensor
    early_stopping: tf.Tensor
    seed: tf.Tensor
    token_limit: tf.Tensor
    min_new_tokens: tf.Tensor
    logit_bias: tf.Tensor
    ends: tf.Tensor


# The values of `early_stopping` as numbers: False, True and "never".
STOP_WHEN_UNLIKELY, STOP_WHEN_ENOUGH, STOP_WHEN_IMPOSSIBLE = 0, 1, 2


_REALS, _INTEGERS = 7, 7


def pack(
    options: Sequence[GenerationOptions], vocabulary_size: int, eos_token_ids: Sequence[int] = ()
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """The options of a batch in four arguments, as `specs` describes them.

    Args:
        vocabulary_size: V.
        eos_token_ids: those that end a text by themselves, see `ends`.
    """
    reals, integers = zip(*map(_numbers, options), strict=True)
    if any(each.logit_bias for each in options):
        logit_bias = np.zeros([len(options), vocabulary_size], np.float32)
        for row, each in zip(logit_bias, options, strict=True):
            for token_id, bias in each.logit_bias:
                row[token_id] = bias
    else:  # in TensorFlow's own memory, which is made faster
        logit_bias = tf.zeros([len(options), vocabulary_size])
    is_end = np.zeros([len(options), vocabulary_size], bool)
    for row, each in zip(is_end, options, strict=True):
        row[[token_id for token_id in ends(each, eos_token_ids) if 0 <= token_id < len(row)]] = True
    return (
        tf.constant(reals),
        tf.constant(integers),
        tf.convert_to_tensor(logit_bias),
        tf.convert_to_tensor(is_end),
    )


def ends(options: GenerationOptions, eos_token_ids: Sequence[int]) -> tuple[int, ...]:
    """The tokens that end a text, where these do by themselves."""
    return (*(() if options.ignore_eos else eos_token_ids), *options.stop_token_ids)


def is_counted(options: GenerationOptions) -> bool:
    """Whether an option depends on how often a token was generated."""
    return (
        options.repetition_penalty != 1.0
        or options.presence_penalty != 0.0
        or options.frequency_penalty != 0.0
    )


def specs(batch_size: int, vocabulary_size: int) -> list[tf.TensorSpec]:
    """What `pack` returns: real options, integer ones, what is added to the logits, and ends."""
    return [
        tf.TensorSpec([batch_size, _REALS], tf.float32),
        tf.TensorSpec([batch_size, _INTEGERS], tf.int32),
        tf.TensorSpec([batch_size, vocabulary_size], tf.float32),
        tf.TensorSpec([batch_size, vocabulary_size], tf.bool),
    ]


def _numbers(options: GenerationOptions) -> tuple[tuple[float, ...], tuple[int, ...]]:
    early_stopping = (
        STOP_WHEN_IMPOSSIBLE if options.early_stopping == "never" else int(options.early_stopping)
    )
    reals = (
        # The branch that greedy search skips is compiled too, and must not divide by zero.
        options.temperature or 1.0,
        options.top_p,
        options.min_p,
        options.repetition_penalty,
        options.presence_penalty,
        options.frequency_penalty,
        options.length_penalty,
    )
    integers = (
        options.top_k,
        int(options.temperature > 0.0),
        int(is_counted(options) or options.min_new_tokens > 0 or bool(options.logit_bias)),
        early_stopping,
        options.seed,
        options.max_new_tokens,
        options.min_new_tokens,
    )
    return reals, integers


def unpack(
    reals: tf.Tensor, integers: tf.Tensor, logit_bias: tf.Tensor, is_end: tf.Tensor
) -> Controls:
    """The inverse of `pack`, inside a compiled function: one value for each text."""
    texts = [*tf.unstack(reals, num=_REALS, axis=1), *tf.unstack(integers, num=_INTEGERS, axis=1)]
    return Controls._make([*texts, logit_bias, is_end])


def for_each_beam(controls: Controls, num_beams: int) -> Controls:
    """Repeats the values `[B]` of texts for their beams: `[B * K]`, text by text."""
    if controls.seed.shape[0] == 1:
        return controls
    return Controls(*(tf.repeat(values, num_beams, axis=0) for values in controls))


def are_ends(tokens: tf.Tensor, controls: Controls) -> tf.Tensor:
    """Which of the tokens, `[B]` or `[B, C]`, end their text: bool of the same shape."""
    if controls.ends.shape[0] == 1:
        return tf.gather(controls.ends[0], tokens)
    of_texts = tf.reshape(tokens, [tokens.shape[0], -1])
    return tf.reshape(tf.gather(controls.ends, of_texts, batch_dims=1), tokens.shape)


def where_sampling(
    controls: Controls, sampled: Callable[[], Any], greedy: Callable[[], Any]
) -> Any:
    """Selects from two nests of `[B, ...]`: the first for texts that sample, else the second.

    While no text samples, only the second is computed.
    """

    def each() -> Any:
        if controls.do_sample.shape[0] == 1:
            return sampled()  # the only text samples
        return tf.nest.map_structure(
            lambda x, y: tf.where(controls.do_sample[:, None] > 0, x, y), sampled(), greedy()
        )

    return tf.cond(tf.reduce_any(controls.do_sample > 0), each, greedy)


def adjust(
    scores: tf.Tensor, prompted: tf.Tensor, counts: tf.Tensor, step: tf.Tensor, controls: Controls
) -> tf.Tensor:
    """`[B * K, V]` scores with penalties, bias and minimum length, before temperature and filters.

    In this order: Hugging Face's `RepetitionPenaltyLogitsProcessor` (CTRL, arXiv:1909.05858), which
    divides the positive scores of tokens that already occurred and multiplies the negative ones;
    OpenAI's penalties for tokens that were generated, once (presence) and each time (frequency);
    OpenAI's logit bias; Hugging Face's `MinNewTokensLengthLogitsProcessor`, by which a text ends
    after so many tokens at the earliest, unless a grammar leaves nothing else. While no text has
    any of these options, nothing is computed.

    Args:
        scores: `[B * K, V]`, logits or log-probabilities, text by text.
        prompted: `[B, V]` bool, tokens that the repetition penalty counts as repeated from the
            beginning.
        counts: `[B, V]` or `[B, K, V]` int32, how often each token was generated.
        step: int32, the number of a text's tokens so far: scalar, or `[B]`.
        controls: one value a text, `[B]`.
    """

    def adjusted() -> tf.Tensor:
        # With B = 1 the options of one text hold for all rows, so B comes from `counts`.
        size = counts.shape[-1]
        of_texts = tf.reshape(scores, [counts.shape[0], -1, size])
        times = tf.reshape(counts, of_texts.shape)

        def of(option: tf.Tensor) -> tf.Tensor:
            return option[:, None, None]

        penalty, is_generated = of(controls.repetition_penalty), times > 0
        of_texts = tf.where(
            prompted[:, None] | is_generated,
            tf.where(of_texts > 0.0, of_texts * (1.0 / penalty), of_texts * penalty),
            of_texts,
        )
        of_texts -= of(controls.presence_penalty) * tf.cast(is_generated, tf.float32)
        of_texts -= of(controls.frequency_penalty) * tf.cast(times, tf.float32)
        of_texts += controls.logit_bias[:, None]
        is_early = (step < controls.min_new_tokens)[:, None] & controls.ends
        return tf.reshape(of_texts + tf.where(is_early, FILTERED, 0.0)[:, None], scores.shape)

    return tf.cond(tf.reduce_any(controls.is_adjusted > 0), adjusted, lambda: scores)


def filter_scores(scores: tf.Tensor, controls: Controls) -> tf.Tensor:
    """Hugging Face's logits processors for temperature, top-k, top-p (arXiv:1904.09751) and min-p
    (arXiv:2407.01082).

    A token is kept if fewer than `top_k` tokens have a higher score, if the tokens with a higher
    score hold less than `top_p` of the probability, and if its own is at least `min_p` times that
    of the top token. So tokens of equal score are kept or filtered out together. The result for one
    text depends on its own options and scores alone.

    Returns:
        `[B, V]`, scores divided by the temperature, or `FILTERED`.
    """
    scores, _, is_allowed = _cut(scores, controls, is_sampled=False)
    return tf.where(is_allowed, scores, FILTERED)


def unnormalized_probabilities(scores: tf.Tensor, controls: Controls) -> tf.Tensor:
    """The probabilities after `filter_scores` times a factor, for `sample`: `[B, V]`.

    The top token has 1, tokens that are filtered out have 0.
    """
    _, mass, is_allowed = _cut(scores, controls, is_sampled=True)
    return tf.where(is_allowed, mass, 0.0)


def _cut(
    scores: tf.Tensor, controls: Controls, *, is_sampled: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Scores divided by the temperature, unnormalized probabilities, and bool: which are kept.

    All `[B, V]`. Where `is_sampled`, it does not matter which of those with probability 0 are.
    """
    scores = scores / controls.temperature[:, None]
    top = top_tokens(scores, min(TOP_TOKENS_SEARCHED, scores.shape[1]))
    of_top = tf.gather(scores, top, batch_dims=1)
    keys, keys_of_top = _ordered_bits(scores), _ordered_bits(of_top)
    mass, mass_of_top = tf.exp(scores - of_top[:, :1]), tf.exp(of_top - of_top[:, :1])
    is_found, found = _cut_among_top(keys_of_top, mass_of_top, controls, is_sampled)
    threshold = tf.cond(
        tf.reduce_all(is_found),
        lambda: found,
        lambda: tf.where(is_found, found, _cut_by_bisection(keys, mass, controls)),
    )
    # As a key, so that a min-p of 0 costs nothing for each token of the vocabulary.
    least_likely = _ordered_bits(of_top[:, 0] + tf.math.log(controls.min_p))
    return scores, mass, keys >= tf.maximum(threshold, least_likely)[:, None]


def _cut_among_top(
    keys: tf.Tensor, mass: tf.Tensor, controls: Controls, is_sampled: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Whether the top tokens are enough to find the lowest key that is kept, and that key: `[B]`.

    Args:
        keys, mass: `[B, count]`, of the top tokens, best first.
    """
    batch_size, count = keys.shape
    last = tf.broadcast_to(tf.clip_by_value(controls.top_k, 1, count) - 1, [batch_size])
    lowest = tf.gather(keys, last, batch_dims=1)
    # If the last top token has the same key, tokens that are not among the top may have it too.
    is_enough = lowest > keys[:, -1]
    if is_sampled:  # under a grammar most tokens have probability 0, and then all below have it
        is_enough |= tf.equal(tf.gather(mass, last, batch_dims=1), 0.0)
    is_found = (controls.top_k > 0) & is_enough
    limit = controls.top_p * _sum_few(tf.where(keys >= lowest[:, None], mass, 0.0))
    beats = keys[:, None, :] > keys[:, :, None]
    above = _sum_few(tf.where(beats, mass[:, None, :], 0.0))
    is_allowed = (above < limit[:, None]) | (controls.top_p >= 1.0)[:, None]
    is_allowed &= keys >= lowest[:, None]
    # The top token is always kept: rounding can make the limit 0.
    return is_found, tf.reduce_min(tf.where(is_allowed, keys, keys[:, :1]), axis=-1)


def _cut_by_bisection(keys: tf.Tensor, mass: tf.Tensor, controls: Controls) -> tf.Tensor:
    """The lowest key that is kept, `[B]`, for any `top_k`.

    By bisection over the ordered bits of the floats: at most some 30 masked sums, while sorting
    50,257 entries takes ten times longer.

    Args:
        keys, mass: `[B, V]`.
    """
    best = tf.reduce_max(keys, axis=-1)

    # A loop of two rounds instead of two calls, because XLA compiles its body once. The second
    # round, top-p, starts at the cut-off of the first, top-k.
    def cut(is_second: tf.Tensor, lowest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        is_top_p = is_second > 0
        left = tf.where(keys >= lowest[:, None], mass, 0.0)
        of_left = controls.top_p * total(left)
        limit = tf.where(is_top_p, of_left, tf.cast(controls.top_k, tf.float32))
        is_off = tf.where(is_top_p, controls.top_p >= 1.0, controls.top_k <= 0)
        threshold = _smallest_with_less_above(
            keys, tf.where(is_top_p, left, 1.0), limit, lowest, tf.where(is_off, lowest, best)
        )
        return is_second + 1, threshold

    start = (0, tf.fill([keys.shape[0]], tf.int32.min))
    return tf.while_loop(lambda i, _: i < 2, cut, start)[1]


def sample(weights: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Samples tokens `[B]` int32 in proportion to the weights, by inverting their running sum.

    Args:
        weights: `[B, V]`, none negative.
        uniform: `[B]` in (0, 1), the noise.
    """
    batch_size, size = weights.shape
    lanes = 2 ** round(math.log2(size) / 2)  # about as many as there are lines
    lines = -(-size // lanes)
    weights = tf.pad(weights, [[0, 0], [0, lines * lanes - size]])
    weights = tf.reshape(weights, [batch_size, lines, lanes])
    # First the lane, then the line in it: two short sums instead of one over the vocabulary.
    in_lane = tf.reduce_sum(weights, axis=1)
    lane, left = _inverse_cdf(in_lane, uniform * _sum_few(in_lane))
    line, _ = _inverse_cdf(tf.gather(weights, lane, axis=2, batch_dims=1), left)
    return line * lanes + lane


def _inverse_cdf(weights: tf.Tensor, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Inverts the running sum from the end of the weights `[B, size]` at `share`, `[B]`.

    Returns:
        The smallest index after which the weights sum to less than `share`, which never has the
        weight 0, and the part of `share` that falls on it; both `[B]`.
    """
    places = tf.range(weights.shape[1])
    # Not by `cumsum`: a weight of 0 changes no bit of these sums, so its index is never returned.
    is_from = places[None, :] >= tf.range(weights.shape[1] + 1)[:, None]
    sums = _sum_few(tf.where(is_from, weights[:, None, :], 0.0))
    share, few_sums = tf.minimum(share, sums[:, 0]), sums[:, 1:]
    index = _sum_few(tf.cast(few_sums >= share[:, None], tf.int32))
    return index, share - tf.gather(few_sums, index, batch_dims=1)


def noise(seed: tf.Tensor, step: tf.Tensor, size: int) -> tf.Tensor:
    """Uniform numbers in (0, 1), `[B, size]`, a pure function of seed `[B]` and scalar step.

    A counter hashed twice by MurmurHash3's 32-bit finaliser (Appleby, public domain). TensorFlow's
    own stateless generators unroll into so much code that they took a second to compile.
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


def top_tokens(scores: tf.Tensor, count: int) -> tf.Tensor:
    """The tokens with the `count` highest scores, best first: `[B, V] -> [B, count]` int32.

    They lie in the `count` groups with the highest maxima, so only members of those are compared:
    50 microseconds for the best 64 of 50,257, 10 of 2,048. Equal scores come in any order.
    """
    batch_size, size = scores.shape
    each = size // _GROUPS
    # Neighbours belong to different groups, so that maxima use the processor's vector lanes.
    whole = each * _GROUPS
    candidates = tf.broadcast_to(tf.range(whole, size)[None, :], [batch_size, size - whole])
    if each:
        maxima = tf.reduce_max(tf.reshape(scores[:, :whole], [batch_size, each, _GROUPS]), axis=1)
        all_groups = tf.broadcast_to(tf.range(_GROUPS)[None, :], [batch_size, _GROUPS])
        groups = _highest(maxima, all_groups, count)
        members = groups[:, None, :] + tf.range(each)[None, :, None] * _GROUPS
        members = tf.reshape(members, [batch_size, each * count])
        candidates = tf.concat([members, candidates], axis=1)
    return _highest(scores, candidates, count)


def _highest(scores: tf.Tensor, among: tf.Tensor, count: int) -> tf.Tensor:
    """The `count` of some indices that have the highest scores, best first: `[B, count]` int32.

    Args:
        scores: `[B, V]`. among: `[B, size]` int32, the indices, all different.
    """
    if count > _MIN_TABLE:
        among = _highest_in_front(scores, among, count)
    best = tf.math.top_k(tf.gather(scores, among, batch_dims=1), count)[1]
    return tf.gather(among, best, batch_dims=1)


def _highest_in_front(scores: tf.Tensor, among: tf.Tensor, count: int) -> tf.Tensor:
    """The same indices in an order that halves the time of a partial sort.

    A partial sort takes the first `count` values and replaces them by higher ones, each time with a
    branch that no processor can predict. Here the first `count` are the maxima of the columns of a
    table with `count` columns, which leaves little to replace.
    """
    lines = among.shape[1] // count
    table = tf.reshape(among[:, : lines * count], [-1, lines, count])
    in_table = tf.gather(scores, table, batch_dims=1)
    # Not `equal` to the maximum: in a column with NaN nothing would be.
    is_lower = in_table < tf.reduce_max(in_table, axis=1, keepdims=True)
    highest = tf.reduce_max(tf.where(is_lower, -1, table), axis=1, keepdims=True)
    others = tf.where(tf.equal(table, highest), table[:, :1], table)[:, 1:]
    table = tf.reshape(tf.concat([highest, others], axis=1), [-1, lines * count])
    return tf.concat([table, among[:, lines * count :]], axis=1)


def _smallest_with_less_above(
    keys: tf.Tensor, weights: tf.Tensor, limit: tf.Tensor, low: tf.Tensor, high: tf.Tensor
) -> tf.Tensor:
    """The smallest key in [low, high], `[B]`, above which the weights sum to less than `limit`.

    By bisection. It need not be one of `keys`: what counts is which of them are at least as large.

    Args:
        keys: `[B, V]` int32. weights: `[B, V]`, none negative. limit: broadcastable to `[B]`.
    """

    def halve(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Written so that the sum of two int32 cannot overflow.
        middle = (low & high) + tf.bitwise.right_shift(low ^ high, 1)
        above = total(tf.where(keys > middle[:, None], weights, 0.0))
        beyond = tf.minimum(middle + 1, high)
        # Exactly `limit`: the keys above `middle` are the wanted ones, and the search is over.
        high = tf.where(above < limit, middle, tf.where(tf.equal(above, limit), beyond, high))
        return tf.where(above < limit, low, beyond), high

    return tf.while_loop(lambda low, high: tf.reduce_any(low < high), halve, (low, high))[1]


def _ordered_bits(x: tf.Tensor) -> tf.Tensor:
    """float32 to int32 of the same order."""
    # Minus zero equals zero, but has other bits. (XLA would remove an addition of 0.)
    bits = tf.bitcast(tf.where(tf.equal(x, 0.0), 0.0, x), tf.int32)
    return tf.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def total(x: tf.Tensor) -> tf.Tensor:
    """`[B, V] -> [B]`, in two stages so that the first can use the processor's vector lanes."""
    batch_size, size = x.shape
    whole = size // _LANES * _LANES
    added = tf.reduce_sum(x[:, whole:], axis=-1)
    if whole:
        blocks = tf.reshape(x[:, :whole], [batch_size, whole // _LANES, _LANES])
        added += tf.reduce_sum(tf.reduce_sum(blocks, axis=1), axis=-1)
    return added


def _sum_few(x: tf.Tensor) -> tf.Tensor:
    """`[..., size] -> [...]`, for a size of some hundreds at most.

    XLA makes three kernels of a longer sum than `_MAX_SUM`, and fuses none with the input.
    """
    size = x.shape[-1]
    parts = -(-size // _MAX_SUM)
    x = tf.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[0, parts * _MAX_SUM - size]])
    x = tf.reshape(x, [*x.shape[:-1], parts, _MAX_SUM])
    return tf.add_n(tf.unstack(tf.reduce_sum(x, axis=-1), axis=-1))
