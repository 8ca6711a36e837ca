"""The line below the button: the prediction for a request, before the click.

Knows the words for a `Prediction`. Must not know how it is made.
"""

import htpy as h

from playground.ui.header import explained
from playground.ui.markup import rendered
from playground.ui.outcomes import EXPECTATION, badge, no_badge
from playground.ui.quantities import about, count
from playground.ui.wording import CONTINUING, Wording
from xla_backend import CacheOutcome, Prediction

ONE_SHAPE = "one shape for all lengths"
SCATTERED = 1.5
"""Ratio of the ends from which a range is shown; else one number is."""
USELESS = 4.0
"""Ratio above which a range says nothing: texts of all lengths are in it."""


@rendered
def prediction_line(prediction: Prediction, wording: Wording = CONTINUING) -> h.Node:
    """The prediction as HTML, in the model's words."""
    return _line(prediction, _expectation(prediction), _shape(prediction, wording))


@rendered
def window_prediction_line(prediction: Prediction) -> h.Node:
    """The prediction for a recording: for its first window, as all windows have one shape."""
    key = prediction.key
    shape = (
        f"A window is {key.padded_length} frames of sound · {count(key.num_beams, 'beam')}"
        f" · {key.max_new_tokens} new{_instead(prediction)}"
    )
    return _line(prediction, _expectation(prediction, " for the first window"), shape)


@rendered
def no_prediction_line(reason: str) -> h.Node:
    """The line when there is nothing to predict, with the reason."""
    return box(no_badge("…"), reason, more="unknown")


@rendered
def awaited_prediction_line(meanwhile: str) -> h.Node:
    """The line before the first answer; the page's script recognizes it."""
    return box(no_badge("…"), meanwhile, more="unknown awaited")


def _line(prediction: Prediction, what: str, shape: str) -> h.Element:
    return box(badge(prediction.outcome), what, explained(shape, "prediction-key"))


def box(mark: h.Node, what: str, shape: h.Node = None, more: str = "") -> h.Element:
    """A prediction: its badge, sentence and shape."""
    return h.div(class_=["prediction", more])[mark, h.div[h.p(".prediction-what")[what], shape]]


def _expectation(prediction: Prediction, whose: str = "") -> str:
    what = EXPECTATION[prediction.outcome]
    if prediction.expected_s is None:
        return f"{what}; not measured yet."
    if prediction.outcome is CacheOutcome.MISS:
        estimate = f"{what}: about {expected(prediction)}{whose}, judging by earlier ones."
        return f"{estimate} {_avoided(prediction)}".strip()
    return f"{what}: about {expected(prediction)}{whose}."


def _avoided(prediction: Prediction) -> str:
    """What would avoid the compile, if a function in memory is near."""
    miss = prediction.miss
    return miss.sentence("would be") if miss and miss.nearest else ""


def expected(prediction: Prediction) -> str:
    """The expected time, a range if earlier times scatter; empty if unknown."""
    if prediction.expected_s is None:
        return ""
    low_s, high_s = prediction.low_s, prediction.high_s
    if low_s is None or high_s is None or not SCATTERED * low_s <= high_s <= USELESS * low_s:
        return about(prediction.expected_s)
    return f"{about(low_s)} to {about(high_s)}"


def _shape(prediction: Prediction, wording: Wording) -> str:
    key = prediction.key
    if key.is_pooled:
        prompt = count(prediction.prompt_tokens, "token")
        return " · ".join([f"{prompt} of {key.padded_length}", ONE_SHAPE, *key.variants])
    padding = max(0, key.padded_length - prediction.prompt_tokens)
    return " · ".join(
        [
            f"{prediction.prompt_tokens} {wording.input} + {padding} padding = "
            f"{key.padded_length} slots",
            count(key.num_beams, "beam"),
            f"{key.max_new_tokens} new{_instead(prediction)}",
            *key.variants,
        ]
    )


def _instead(prediction: Prediction) -> str:
    own = prediction.requested_key
    if prediction.key == own:
        return ""
    return f" (your own shape: {own.padded_length} slots, {own.max_new_tokens} new)"
