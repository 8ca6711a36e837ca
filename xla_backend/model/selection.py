"""`Selection`: the next token of each text, from logits, with its record.

Knows a model's suppressed tokens and how greedy search and sampling choose. Axes: see
`families.blocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from xla_backend.model import output, sampling
from xla_backend.model.families.blocks import dynamic_update_slice
from xla_backend.model.sampling import FILTERED, Controls


@dataclass(frozen=True)
class Selection:
    """How a model's tokens are selected.

    Attributes:
        vocabulary_size: V.
        suppressed: tokens that are never selected. suppressed_first: nor as the first one.
        first_timestamp: of a speech model, whose timestamps are the last of its tokens; None where
            there are none.
    """

    vocabulary_size: int
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    first_timestamp: int | None = None

    def suppression(self, is_first: tf.Tensor) -> tf.Tensor | float:
        """What is added to scores `[B, V]`, or broadcast, so that suppressed tokens do not come.

        Hugging Face's `SuppressTokensLogitsProcessor` and `SuppressTokensAtBeginLogitsProcessor`.

        Args:
            is_first: whether the next token is a text's first: scalar, or `[B]`.
        """
        if not self.suppressed and not self.suppressed_first:
            return 0.0
        always, first = np.zeros([2, self.vocabulary_size], np.float32)
        # A checkpoint may list tokens beyond its own vocabulary.
        for tokens, added in ((self.suppressed, always), (self.suppressed_first, first)):
            added[[token for token in tokens if 0 <= token < len(added)]] = FILTERED
        return tf.where(is_first[..., None], np.minimum(always, first), always)

    def _timed(
        self,
        scores: tf.Tensor,
        prompted: tf.Tensor,
        counts: tf.Tensor,
        follows_time: tf.Tensor,
        controls: Controls,
    ) -> tf.Tensor:
        """Scores by the rules of timestamps, for texts whose prompt ends with one.

        Hugging Face's `WhisperTimeStampLogitsProcessor`: a segment begins and ends with one, they
        never go back, and one comes where all together are likelier than any other token.

        Args:
            scores, prompted, counts, controls: as of `select`.
            follows_time: `[B]` or scalar bool, whether the last token was a timestamp.
        """
        first = self.first_timestamp
        assert first is not None
        places, numbers = tf.range(self.vocabulary_size - first), counts[:, first:]
        is_open = tf.equal(tf.reduce_sum(numbers, axis=1) % 2, 0)  # the prompt has opened the first
        earliest = tf.reduce_max(tf.where(numbers > 0, places, 0), axis=1)
        earliest += tf.cast(is_open, tf.int32)
        is_time = (places >= earliest[:, None]) & ~(is_open & follows_time)[:, None]
        times = tf.where(is_time, scores[:, first:], FILTERED)
        words = tf.where(is_open[:, None] | controls.ends[:, :first], scores[:, :first], FILTERED)
        is_likelier = tf.reduce_logsumexp(times, axis=1) > tf.reduce_max(words, axis=1)
        words = tf.where(is_likelier[:, None], FILTERED, words)
        return tf.where(prompted[:, first, None], tf.concat([words, times], axis=1), scores)

    def select(
        self,
        logits: tf.Tensor,
        is_first: tf.Tensor,
        prompted: tf.Tensor,
        counts: tf.Tensor,
        step: tf.Tensor,
        controls: Controls,
        constrain: Callable[[tf.Tensor], tf.Tensor] = lambda scores: scores,
        is_constrained: tf.Tensor | None = None,
        last: tf.Tensor | int = 0,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """One step of greedy search or sampling.

        Args:
            logits: `[B, V]`.
            is_first: whether it is a text's first token: scalar bool, or `[B]`.
            prompted: `[B, V]` bool, see `sampling.adjust`.
            counts: `[B, V]` int32, how often each token was generated.
            step: int32, the number of a text's tokens so far: scalar, or `[B]`.
            constrain: masks what a grammar forbids, before all options. Records have the model's
                own scores.
            is_constrained: scalar bool, whether it masks anything; None if it never does.
            last: `[B]` int32, the last token of each text, for timestamps.

        Returns:
            Tokens `[B]`, their records `[B, F]` (see `output`), and `counts` with the tokens.
        """
        allowed = constrain(logits)
        scores = sampling.adjust(allowed, prompted, counts, step, controls)
        scores += self.suppression(is_first)
        if self.first_timestamp is not None:
            follows_time = is_first | (last >= self.first_timestamp)
            scores = self._timed(scores, prompted, counts, follows_time, controls)

        def sampled() -> tf.Tensor:
            uniform = sampling.noise(controls.seed, step, 1)[:, 0]
            probabilities = sampling.unnormalized_probabilities(scores, controls)
            return sampling.sample(probabilities, uniform)[:, None]

        def greedy() -> tf.Tensor:
            return tf.argmax(scores, axis=-1, output_type=tf.int32)[:, None]

        token = sampling.where_sampling(controls, sampled, greedy)
        top_tokens = sampling.top_tokens(logits, min(output.TOP_TOKENS, self.vocabulary_size))
        reported = tf.concat([token, top_tokens], axis=1)
        logprobs = tf.gather(tf.nn.log_softmax(logits), reported, batch_dims=1)
        parts = token[:, 0], logprobs[:, 0], top_tokens, logprobs[:, 1:]
        forbidden = None
        if is_constrained is not None:
            nothing = tf.zeros_like(parts[1]), tf.zeros_like(parts[0])
            forbidden = tf.cond(
                is_constrained, lambda: _forbidden(logits, allowed, *parts[:3]), lambda: nothing
            )
        records = output.as_records(*parts, forbidden)
        # Slices in place of the gather keep XLA from updating in place: a third more time a token.
        times = tf.gather(counts, token, batch_dims=1) + 1
        for index in range(logits.shape[0]):
            start = tf.stack([index, token[index, 0]])
            counts = dynamic_update_slice(counts, times[index : index + 1], start)
        return token[:, 0], records, counts


def _forbidden(
    logits: tf.Tensor, allowed: tf.Tensor, token: tf.Tensor, logprob: tf.Tensor, top: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The last two fields of records: what a grammar masked in `logits`, leaving `allowed`.

    Args:
        logits, allowed: `[B, V]`. token, logprob: `[B]`, of one token. top: `[B, A]`, top tokens.
    """
    is_taken = allowed < logits
    normalizer = tf.gather(logits, token, batch_dims=1) - logprob
    mass = sampling.total(tf.where(is_taken, tf.exp(logits - normalizer[:, None]), 0.0))
    bits = tf.bitwise.left_shift(1, tf.range(top.shape[1]))
    of_top = tf.where(tf.gather(is_taken, top, batch_dims=1), bits, 0)
    return mass, tf.reduce_sum(of_top, axis=1)
