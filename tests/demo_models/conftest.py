"""What the tests of the demo models share: a voice.

Knows espeak-ng by way of `speech`. Must not import what needs TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from demo_models import speech


@pytest.fixture(scope="session")
def say() -> Callable[..., speech.Clip]:
    """Speaks a phrase; a machine without espeak-ng skips what needs it."""
    try:
        return speech.speaker().say
    except speech.SpeechUnavailable as error:
        pytest.skip(str(error))
