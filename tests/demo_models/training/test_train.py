"""The rows that training sees; no training happens here."""

import numpy as np
import pytest

from demo_models.tokenization import POSITIONS, train_tokenizer
from demo_models.training.fitting import WarmupCosine
from demo_models.training.train import (
    RECIPES,
    T5_ANSWER_LENGTH,
    T5_ROUND,
    T5_SHORT_LENGTH,
    T5_WANTED_LENGTH,
    WARMUP_STEPS,
    Phase,
    QuestionRows,
    StoryRows,
    build_model,
)

PHASE = Phase(batch_size=4, length=160, epochs=2)


@pytest.fixture(scope="module")
def gpt2_tokenizer():
    return train_tokenizer("gpt2-stories")


@pytest.fixture(scope="module")
def t5_tokenizer():
    return train_tokenizer("t5-stories")


def equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def test_rows_depend_on_their_number_alone(gpt2_tokenizer):
    rows = StoryRows("gpt2-stories", gpt2_tokenizer, PHASE)
    again = StoryRows("gpt2-stories", gpt2_tokenizer, PHASE)
    assert equal(rows[3], again[3])
    assert not equal(rows[3], rows[4])
    again.on_epoch_end()
    assert equal(StoryRows("gpt2-stories", gpt2_tokenizer, PHASE, epoch=1)[0], again[0])
    assert not equal(again[0], rows[0])


def test_packed_rows_are_full_and_stay_within_the_positions(gpt2_tokenizer):
    for length in (160, POSITIONS):
        rows = StoryRows("gpt2-stories", gpt2_tokenizer, Phase(4, length, 1))
        for step in range(20):
            batch = rows[step]
            assert batch["input_ids"].shape == (4, length)
            assert batch["position_ids"].min() >= 0
            assert batch["position_ids"].max() < POSITIONS
            assert np.all(np.diff(batch["position_ids"], axis=1) == 1)


def test_packed_rows_hold_training_stories(gpt2_tokenizer):
    text = gpt2_tokenizer.decode(
        StoryRows("gpt2-stories", gpt2_tokenizer, Phase(1, POSITIONS, 1))[0]["input_ids"][0],
        skip_special_tokens=False,
    )
    assert text.count("<|endoftext|>") >= 3


def test_question_rows(t5_tokenizer):
    phase = Phase(4, 176, 1)
    rows = QuestionRows("t5-stories", t5_tokenizer, phase)
    for step in range(2 * T5_ROUND):
        batch = rows[step]
        is_summary = step % T5_ROUND == T5_ROUND - 1
        wanted = {T5_WANTED_LENGTH} if is_summary else {T5_ANSWER_LENGTH, T5_WANTED_LENGTH}
        assert batch["input_ids"].shape[1] in (T5_SHORT_LENGTH, phase.length)
        assert batch["labels"].shape[1] in wanted
        assert np.array_equal(batch["attention_mask"], batch["input_ids"] != 0)
        ends = [row[row >= 0][-1] for row in batch["labels"]]
        assert ends == [1] * phase.batch_size, "every wanted text closes with the end token"
        start = "summarize:" if is_summary else "question:"
        for row in batch["input_ids"]:
            assert t5_tokenizer.decode(row).startswith(start)
    assert equal(rows[7], QuestionRows("t5-stories", t5_tokenizer, phase)[7])


@pytest.mark.parametrize("name", RECIPES)
def test_models_are_of_two_to_three_million_parameters(name):
    assert 2_000_000 < build_model(name).count_params() < 2_500_000


def test_learning_rate_warms_up_and_cools_down():
    schedule = WarmupCosine(1.0, 3000, WARMUP_STEPS, 0.02)
    rates = [float(schedule(step)) for step in (0, 299, 1500, 3000)]
    assert rates[0] < 0.01 < rates[3] < 0.05
    assert rates[1] > rates[2] > rates[3]
