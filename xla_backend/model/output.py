"""Output tokens and their log-probabilities, in one tensor of records.

Knows the fields of a record. A step has one tensor of results, because XLA would compile as much
again for each further one. Axes: see `families.blocks`; A top tokens, F = 4 + 2 A fields.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xla_backend.model.families.blocks import dynamic_update_slice

TOP_TOKENS = 20
"""A: the number of most likely tokens whose log-probabilities are recorded."""


class Output(NamedTuple):
    """The output of one text, n tokens. All log-probabilities are those before logits processors.

    Attributes:
        tokens: `[n]` int32. logprobs: `[n]`.
        top_tokens: `[n, A]` int32, the most likely tokens in each place, best first.
        top_logprobs: `[n, A]`.
        forbidden: `[n]`, the probability of all tokens that a grammar forbade.
        top_forbidden: `[n]` int32, the top tokens that it forbade, one bit each, the first one
            lowest.
    """

    tokens: np.ndarray
    logprobs: np.ndarray
    top_tokens: np.ndarray
    top_logprobs: np.ndarray
    forbidden: np.ndarray
    top_forbidden: np.ndarray


def num_fields(vocabulary_size: int) -> int:
    """F, the number of fields of a record; a small vocabulary has fewer top tokens."""
    return 4 + 2 * min(TOP_TOKENS, vocabulary_size)


def num_top_tokens(num_fields: int) -> int:
    """A, the number of top tokens in a record."""
    return (num_fields - 4) // 2


def as_records(
    tokens: tf.Tensor,
    logprobs: tf.Tensor,
    top_tokens: tf.Tensor,
    top_logprobs: tf.Tensor,
    forbidden: tuple[tf.Tensor, tf.Tensor] | None = None,
) -> tf.Tensor:
    """Packs tokens `[...]` and top tokens `[..., A]`, as in `Output`: `[..., F]` int32.

    Floats are stored as their bits. `forbidden` has the last two fields; None for nothing.
    """
    mass, of_top = forbidden or (tf.zeros_like(logprobs), tf.zeros_like(tokens))
    ones = (x[..., None] for x in (tokens, logprobs, mass, of_top))
    parts = [*ones, top_tokens, top_logprobs]
    bits = [x if x.dtype == tf.int32 else tf.bitcast(x, tf.int32) for x in parts]
    return tf.concat(bits, axis=-1)


def write(outputs: tf.Tensor, records: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Writes the records `[B, K, F]` of a step into place `index` of outputs `[B, N, K, F]`.

    A text that has ended is written beyond its length, which is not read.
    """
    return dynamic_update_slice(outputs, records[:, None], tf.stack([0, index, 0, 0]))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """The log-probabilities `[V]` of all tokens, float64, from their logits `[V]`."""
    scores = logits - logits.max().astype(np.float64)
    return scores - np.log(np.exp(scores).sum())


def record(logits: np.ndarray, token: int) -> np.ndarray:
    """The record `[F]` of a token that was read, from the logits `[V]` before it."""
    logprobs, most = log_softmax(logits), min(TOP_TOKENS, len(logits))
    top = np.argpartition(-logits, most - 1)[:most]
    top = top[np.lexsort((top, -logits[top]))]
    found = np.zeros([num_fields(len(logits))], np.int32)
    found[0], found[4 : 4 + most] = token, top
    floats = found.view(np.float32)
    floats[1], floats[4 + most :] = logprobs[token], logprobs[top]
    return found


def read(records: np.ndarray) -> Output:
    """The inverse of `as_records`, for the records `[n, F]` of one text."""
    top = num_top_tokens(records.shape[1])
    floats = records.view(np.float32)
    tops = records[:, 4 : 4 + top], floats[:, 4 + top :]
    return Output(records[:, 0], floats[:, 1], *tops, floats[:, 2], records[:, 3])
