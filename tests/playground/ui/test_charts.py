"""Scales, ticks and marks."""

import pytest

from playground.ui import charts


def test_a_logarithmic_axis_holds_all_values_between_powers_of_ten() -> None:
    assert charts.decades([0.02, 3.0]) == pytest.approx([0.01, 0.1, 1, 10])
    assert charts.decades([1.0]) == pytest.approx([1, 10])
