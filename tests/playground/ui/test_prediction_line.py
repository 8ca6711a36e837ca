"""What the page says before the click."""

import pytest

from playground.ui.prediction_line import (
    awaited_prediction_line,
    no_prediction_line,
    prediction_line,
)
from tests.playground.reader import words
from tests.playground.samples import KEY
from xla_backend import CacheKey, CacheOutcome, Prediction


@pytest.mark.parametrize(
    ("outcome", "expected_s", "sentence"),
    [
        (CacheOutcome.HIT, 0.3, "HIT Already compiled: about 300 ms."),
        (CacheOutcome.HIT, None, "HIT Already compiled; not measured yet."),
        (
            CacheOutcome.MISS,
            6.0,
            "MISS New shape, must be compiled first: about 6 s, judging by earlier ones.",
        ),
        (CacheOutcome.MISS, None, "MISS New shape, must be compiled first; not measured yet."),
        (CacheOutcome.DISK, 1.0, "DISK On disk, will be restored: about 1 s."),
        (CacheOutcome.REUSED, 0.4, "REUSED A larger compiled function fits: about 400 ms."),
    ],
)
def test_the_sentence(outcome: CacheOutcome, expected_s: float | None, sentence: str) -> None:
    line = words(prediction_line(Prediction(outcome, KEY, KEY, 5, expected_s)))
    assert line.startswith(sentence)
    assert line.endswith("5 prompt + 11 padding = 16 slots · 1 beam · 32 new")


@pytest.mark.parametrize(
    ("low_s", "high_s", "said"),
    [
        (0.21, 0.64, "about 210 ms to 640 ms."),
        (0.29, 0.41, "about 310 ms."),
        (None, None, "about 310 ms."),
        (0.0004, 0.31, "about 310 ms."),
        (0.09, 5.2, "about 310 ms."),
    ],
)
def test_a_range_where_times_scatter(low_s: float | None, high_s: float | None, said: str) -> None:
    prediction = Prediction(CacheOutcome.HIT, KEY, KEY, 5, 0.3123, low_s, high_s)
    assert said in words(prediction_line(prediction))


def test_what_else_the_function_is_made_for_is_named() -> None:
    prediction = Prediction(CacheOutcome.REUSED, CacheKey(32, 1, 64), KEY, 5, 0.1)
    line = words(prediction_line(prediction))
    assert line.endswith("= 32 slots · 1 beam · 64 new (your own shape: 16 slots, 32 new)")
    key = CacheKey(256, 1, 256, is_pooled=True, prompt_lookup_num_tokens=3)
    line = words(prediction_line(Prediction(CacheOutcome.HIT, key, key, 5, 0.1)))
    assert line.endswith("5 tokens of 256 · one shape for all lengths · lookup 3")


def test_without_a_prediction_the_line_gives_the_reason_as_text() -> None:
    line = no_prediction_line("There is no model <b>'x'</b>.")
    assert "<b>" not in line
    assert "There is no model" in words(line)

    awaited, answered = awaited_prediction_line("Counting tokens"), no_prediction_line("No prompt")
    assert "Counting tokens" in awaited
    assert 'class="prediction unknown awaited"' in awaited
    assert 'class="prediction unknown"' in answered
