"""`Selection`: the next token of each text, from logits, with what is reported of it.

Knows a model's suppressed tokens and how greedy search and sampling choose. Must not know models,
beams or loops. Axes: see `families.blocks`.
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
    """

    vocabulary_size: int
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()

    def suppression(self, is_first: tf.Tensor) -> tf.Tensor | float:
        """What is added to the scores so that suppressed tokens are not selected.

        Hugging Face's `SuppressTokensLogitsProcessor` and `SuppressTokensAtBeginLogitsProcessor`.

        Args:
            is_first: whether the next token is a text's first: scalar, or `[B]`.

        Returns:
            Broadcastable to `[B, V]`.
        """
        if not self.suppressed and not self.suppressed_first:
            return 0.0
        always, first = np.zeros([2, self.vocabulary_size], np.float32)
        # A checkpoint may list tokens beyond its own vocabulary.
        for tokens, added in ((self.suppressed, always), (self.suppressed_first, first)):
            added[[token for token in tokens if 0 <= token < len(added)]] = FILTERED
        return tf.where(is_first[..., None], np.minimum(always, first), always)

    def select(
        self,
        logits: tf.Tensor,
        is_first: tf.Tensor,
        prompted: tf.Tensor,
        counts: tf.Tensor,
        step: tf.Tensor,
        controls: Controls,
        constrain: Callable[[tf.Tensor], tf.Tensor] = lambda scores: scores,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """One step of greedy search or sampling.

        Args:
            logits: `[B, V]`.
            is_first: whether it is a text's first token: scalar bool, or `[B]`.
            prompted: `[B, V]` bool, see `sampling.adjust`.
            counts: `[B, V]` int32, how often each token was generated.
            step: int32, the number of a text's tokens so far: scalar, or `[B]`.
            controls: the options.
            constrain: takes from scores what a grammar forbids, before all options. Records are of
                what the model would have said.

        Returns:
            Tokens `[B]`, their records `[B, F]` (see `output`), and `counts` with the tokens.
        """
        scores = sampling.adjust(constrain(logits), prompted, counts, step, controls)
        scores += self.suppression(is_first)

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
        records = output.as_records(token[:, 0], logprobs[:, 0], top_tokens, logprobs[:, 1:])
        # Slices in place of the gather keep XLA from updating in place: a third more time a token.
        times = tf.gather(counts, token, batch_dims=1) + 1
        for index in range(logits.shape[0]):
            start = tf.stack([index, token[index, 0]])
            counts = dynamic_update_slice(counts, times[index : index + 1], start)
        return token[:, 0], records, counts
