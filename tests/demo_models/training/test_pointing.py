"""Where the wanted words stand, and a head that learns to look there."""

import numpy as np
import tensorflow as tf
import tf_keras
from transformers import T5Config, TFT5ForConditionalGeneration

from demo_models.training.pointing import PointingReader, places

CONTEXT, END, PAD = 9, 1, 0


def test_only_places_in_the_story_count_and_those_that_follow_the_word_before():
    ids = [[5, 6, CONTEXT, 7, 5, 6, 7, 6, END, PAD]]
    labels = [[7, 6, 5, 8, END, -100]]
    there = places(tf.constant(ids), tf.constant(labels), CONTEXT).numpy()[0]
    assert there.shape == (6, 10)
    found = [np.flatnonzero(row).tolist() for row in there]
    assert found == [
        [3, 6],  # 7, twice
        [7],  # 6 after a 7; not the one after the 5, nor the question's
        [4],  # 5: the story's; none follows a 6
        [],  # 8 is nowhere
        [],  # the end token is no word
        [],
    ]


def test_without_a_question_all_of_the_text_is_the_story():
    there = places(tf.constant([[5, 6, END]]), tf.constant([[6, END]]), CONTEXT).numpy()[0]
    assert there.tolist() == [[0, 1, 0], [0, 0, 0]]


def test_the_head_learns_to_look_at_what_is_copied():
    tf_keras.utils.set_random_seed(1)
    config = T5Config(
        vocab_size=40, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_decoder_layers=3, num_heads=2
    )
    model = TFT5ForConditionalGeneration(config)
    model.build_in_name_scope()
    trained = PointingReader(model, CONTEXT)
    trained.compile(tf_keras.optimizers.Adam(3e-3))
    # The question's word tells which of the story's words is wanted: the one after it.
    rng = np.random.default_rng(1)
    story = np.stack([rng.permutation(np.arange(10, 40))[:8] for _ in range(64)])
    asked = rng.integers(0, 7, 64)
    rows = np.arange(64)
    ids = np.column_stack(
        [story[rows, asked], np.full(64, CONTEXT), story, np.full(64, END)]
    ).astype(np.int32)
    labels = np.column_stack([story[rows, asked + 1], np.full(64, END)]).astype(np.int32)
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}
    data = tf.data.Dataset.from_tensors(batch).repeat(150)
    before = {name: float(value) for name, value in trained(batch).items()}
    trained.fit(data, epochs=1, verbose=0)
    after = {name: float(value) for name, value in trained(batch).items()}
    assert before["pointing"] > 1.5  # of ten places: log(10) is 2.3
    assert after["pointing"] < 0.5 * before["pointing"]
    assert after["loss"] < before["loss"]
    assert after["correct"] > before["correct"]
