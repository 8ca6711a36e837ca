"""Scales, ticks and marks."""

import pytest

from playground.ui import charts
from playground.ui.charts import Dot
from xla_backend import CacheOutcome


def test_a_logarithmic_axis_holds_all_values_between_powers_of_ten() -> None:
    assert charts.decades([0.02, 3.0]) == pytest.approx([0.01, 0.1, 1, 10])
    assert charts.decades([1.0]) == pytest.approx([1, 10])


def test_a_dot_lies_where_its_value_is() -> None:
    series = [Dot(0.1, CacheOutcome.MISS, "a"), Dot(0.01, CacheOutcome.HIT, "<b>")]
    chart = str(charts.dots(series, "Caption", "Summary", str))
    assert "left:25.00%;bottom:100.00%" in chart
    assert "left:75.00%;bottom:0.00%" in chart
    assert '<b>"' not in chart
