"""Scales, ticks and marks."""

import re

import pytest

from playground.ui import charts
from playground.ui.charts import Bar, Dot
from xla_backend import CacheOutcome


def test_a_logarithmic_axis_holds_all_values_between_powers_of_ten() -> None:
    assert charts.decades([0.02, 3.0]) == pytest.approx([0.01, 0.1, 1, 10])
    assert charts.decades([1.0]) == pytest.approx([1, 10])


@pytest.mark.parametrize(
    ("highest", "ticks"),
    [
        (1.0, [0, 0.5, 1.0]),
        (900, [0, 500, 1000]),
        (7, [0, 2, 4, 6, 8]),
        (0.4, [0, 0.1, 0.2, 0.3, 0.4]),
    ],
)
def test_a_linear_axis_reaches_from_zero_to_the_highest(highest: float, ticks: list[float]) -> None:
    assert charts.steps(highest) == pytest.approx(ticks)


def test_a_dot_lies_where_its_value_is() -> None:
    series = [Dot(0.1, CacheOutcome.MISS, "a"), Dot(0.01, CacheOutcome.HIT, "<b>")]
    chart = str(charts.dots(series, "Caption", "Summary", str, is_logarithmic=True))
    assert "left:25.00%;bottom:100.00%" in chart
    assert "left:75.00%;bottom:0.00%" in chart
    assert '<b>"' not in chart


def test_every_value_is_in_one_column_and_all_share_a_scale() -> None:
    values = [0.01, 0.02, 0.02, 0.04, 0.08, 5.0]
    counts = charts.bins(values, min(values), max(values))
    assert sum(counts) == len(values)
    assert counts[0] >= 1
    assert counts[-1] == 1

    drawn = charts.bars([Bar("First", 2.0, "miss"), Bar("Later", 0.5, "hit")], 2.0, str)
    assert re.findall(r"width:([\d.]+)%", str(drawn)) == ["100.00", "25.00"]


@pytest.mark.parametrize("values", [[0.05], [0.05] * 40])
def test_equal_values_are_a_histogram_too(values: list[float]) -> None:
    chart = str(charts.histogram(values, "Caption", str, [("p50", 0.05)]))
    assert re.search(r'class="marked" style="left:50\.00%"', chart)
