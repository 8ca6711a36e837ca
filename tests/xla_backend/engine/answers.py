"""What tests read from an engine's answers."""

import pytest

from xla_backend import GenerationResult, Timing
from xla_backend.interface.timing import PHASES


def ids(result: GenerationResult) -> list[int]:
    return [token.id for token in result.tokens]


def assert_adds_up(timing: Timing) -> None:
    """The promise of `Timing`: phases sum to the total."""
    phases = [getattr(timing, f"{phase}_s") for phase in PHASES]
    assert min(phases) >= 0
    assert sum(phases) == pytest.approx(timing.total_s, rel=1e-6)
