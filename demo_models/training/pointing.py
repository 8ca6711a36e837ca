"""`PointingReader`: T5 while it is trained, told where in the story the wanted words stand.

Knows T5's attention and its rows of (text, wanted text). Must not know schedules or questions.

Most of an answer is copied from its story, and which of the story's words it takes can be read off
the two. So one head of the decoder's cross-attention gets a loss of its own: how little it looks at
those places. (Guided alignment does this for translations: arXiv:1607.01628.) Without it, answers
did not depend on the question before tens of thousands of stories had been read.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras
from transformers import TFT5ForConditionalGeneration

POINTING_LAYER, POINTING_HEAD = 2, 0  # of the decoder; what it should look for is found before


class PointingReader(tf_keras.Model):
    """The model with both losses, to `compile` and `fit`."""

    def __init__(self, reader: TFT5ForConditionalGeneration, context_id: int) -> None:
        """Takes the model to train.

        Args:
            reader: its weights are trained.
            context_id: the token between a question and its story.
        """
        super().__init__()
        self.reader = reader
        self.context_id = context_id
        self.means = [tf_keras.metrics.Mean(name) for name in ("loss", "pointing", "correct")]

    @property
    def metrics(self) -> list[tf_keras.metrics.Metric]:
        return self.means  # Keras sets them back at the start of each epoch

    def call(self, batch: dict[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        """Both losses, and the share of rows whose every token is the most likely one."""
        labels = batch["labels"]
        counted = tf.cast(labels >= 0, tf.float32)
        targets = tf.maximum(labels, 0)
        output = self.reader(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=tf.pad(targets[:, :-1], [[0, 0], [1, 0]]),
            output_attentions=True,
            use_cache=False,
            training=training,
        )
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, output.logits)
        looks = output.cross_attentions[POINTING_LAYER][:, POINTING_HEAD]
        there = places(batch["input_ids"], labels, self.context_id)
        is_there = tf.reduce_max(there, axis=-1)
        missed = -tf.math.log(tf.reduce_sum(there * looks, axis=-1) + 1e-6) * is_there
        hits = tf.cast(tf.argmax(output.logits, -1, tf.int32) == targets, tf.float32)
        return {
            "loss": tf.reduce_sum(loss * counted) / tf.reduce_sum(counted),
            "pointing": tf.reduce_sum(missed) / (tf.reduce_sum(is_there) + 1e-6),
            "correct": tf.reduce_mean(tf.reduce_min(tf.maximum(hits, 1.0 - counted), axis=1)),
        }

    def train_step(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """One step down both losses; returns the epoch's means so far."""
        with tf.GradientTape() as tape:
            values = self(batch, training=True)
            loss = values["loss"] + values["pointing"]
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        for mean in self.means:
            mean.update_state(values[mean.name])
        return {mean.name: mean.result() for mean in self.means}


def places(ids: tf.Tensor, labels: tf.Tensor, context_id: int) -> tf.Tensor:
    """Where each wanted token stands in the story.

    Where it stands several times, only those places count that follow the wanted token before it,
    if there are any.

    Args:
        ids: the text, `[B, S]`; its story begins at `context_id`, or with it where there is none.
        labels: the wanted tokens, `[B, T]`; the end token (1) and what is negative stand nowhere.
        context_id: see `PointingReader`.

    Returns:
        `[B, T, S]` float32: 1 in those places, else 0.
    """
    after = tf.cast(tf.cumsum(tf.cast(ids == context_id, tf.int32), axis=1) > 0, tf.float32)
    is_question = tf.reduce_max(after, axis=1, keepdims=True)
    in_story = after * is_question + (1.0 - is_question)
    same = tf.cast(labels[:, :, None] == ids[:, None, :], tf.float32) * in_story[:, None, :]
    same *= tf.cast(labels > 1, tf.float32)[:, :, None]
    follows = same * tf.pad(same[:, :-1, :-1], [[0, 0], [1, 0], [1, 0]])
    is_following = tf.reduce_max(follows, axis=-1, keepdims=True)
    return follows * is_following + same * (1.0 - is_following)
