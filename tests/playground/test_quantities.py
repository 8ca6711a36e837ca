"""Every number that a visitor reads, pinned."""

from __future__ import annotations

import pytest

from playground import quantities


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "< 1 ms"),
        (0.0009, "< 1 ms"),
        (0.001, "1.0 ms"),
        (0.0042, "4.2 ms"),
        (0.00996, "10 ms"),
        (0.0824, "82 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (5.806, "5.81 s"),
        (9.96, "10.0 s"),
        (24.04, "24.0 s"),
        (99.6, "100 s"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert quantities.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(-0.2, "0 s"), (3.9, "3 s"), (119.9, "119 s"), (125, "2 min 5 s")]
)
def test_elapsed_counts_whole_seconds(value: float, text: str) -> None:
    assert quantities.elapsed(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (7.26, "7.3"), (9.96, "10"), (24.6, "25"), (3570.2, "3,570")]
)
def test_rate(value: float | None, text: str) -> None:
    assert quantities.rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.04, "1.0×"), (2.24, "2.2×"), (28.4, "28×"), (1234.5, "1,234×")]
)
def test_times(value: float, text: str) -> None:
    assert quantities.times(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0000123, "12 µs"), (0.000999, "999 µs"), (0.0009996, "1.0 ms"), (0.0021, "2.1 ms")],
)
def test_fine_seconds(value: float, text: str) -> None:
    assert quantities.fine_seconds(value) == text


def test_count() -> None:
    assert quantities.count(1, "beam") == "1 beam"
    assert quantities.count(0, "token") == "0 tokens"
    assert quantities.count(1200, "token") == "1,200 tokens"


@pytest.mark.parametrize(("n", "text"), [(1, "one call"), (2, "median of 2")])
def test_of_calls(n: int, text: str) -> None:
    assert quantities.of_calls(n) == text
