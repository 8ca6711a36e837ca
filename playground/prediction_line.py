"""The line below the button: what this request will meet, said before the click.

Knows how a `Prediction` reads. Must not know how it is made.
"""

from __future__ import annotations

from playground.markup import escape
from playground.outcomes import EXPECTATION, badge
from playground.quantities import count, seconds
from xla_backend import CacheOutcome, Prediction


def prediction_line(prediction: Prediction) -> str:
    """The prediction as HTML."""
    return (
        f'<div class="prediction">{badge(prediction.outcome)}'
        f'<div><p class="prediction-what">{_expectation(prediction)}</p>'
        f'<p class="prediction-key">{_shape(prediction)}</p></div></div>'
    )


def no_prediction_line(reason: str) -> str:
    """The same line when there is nothing to predict: it says why."""
    return (
        '<div class="prediction unknown"><span class="badge outcome-none">…</span>'
        f'<div><p class="prediction-what">{escape(reason)}</p></div></div>'
    )


def _expectation(prediction: Prediction) -> str:
    what = EXPECTATION[prediction.outcome]
    if prediction.expected_s is None:
        return f"{what}; not measured yet."
    if prediction.outcome is CacheOutcome.MISS:
        return f"{what}: about {seconds(prediction.expected_s)}, judging by the last one."
    return f"{what}: about {seconds(prediction.expected_s)}."


def _shape(prediction: Prediction) -> str:
    key = prediction.key
    padding = max(0, key.padded_length - prediction.prompt_tokens)
    own = prediction.requested_key
    instead = ""
    if key != own:
        instead = f" (your own shape: {own.padded_length} slots, {own.max_new_tokens} new)"
    return (
        f"{prediction.prompt_tokens} prompt + {padding} padding = {key.padded_length} slots"
        f" · {count(key.num_beams, 'beam')} · {key.max_new_tokens} new{instead}"
    )
