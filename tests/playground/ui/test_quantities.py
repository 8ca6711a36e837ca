"""Every number that a visitor reads, pinned."""

from collections.abc import Callable

import pytest

from playground.ui.quantities import (
    about,
    count,
    elapsed,
    file_size,
    fine_seconds,
    of_calls,
    rate,
    seconds,
    times,
)


@pytest.mark.parametrize(
    ("write", "texts"),
    [
        (
            seconds,
            {
                0.0: "< 1 ms",
                0.0009: "< 1 ms",
                0.001: "1.0 ms",
                0.0042: "4.2 ms",
                0.00996: "10 ms",
                0.0824: "82 ms",
                0.9994: "999 ms",
                0.9996: "1.00 s",
                5.806: "5.81 s",
                9.96: "10.0 s",
                24.04: "24.0 s",
                99.6: "100 s",
            },
        ),
        (
            fine_seconds,
            {1.23e-5: "12 µs", 0.000999: "999 µs", 0.0009996: "1.0 ms", 0.0021: "2.1 ms"},
        ),
        (elapsed, {-0.2: "0 s", 3.9: "3 s", 119.9: "119 s", 125: "2 min 5 s"}),
        (rate, {None: "–", 7.26: "7.3", 9.96: "10", 24.6: "25", 3570.2: "3,570"}),
        (times, {1.04: "1.0×", 2.24: "2.2×", 28.4: "28×", 1234.5: "1,234×"}),
        (file_size, {400_000: "0.4 MB", 551_000_000: "551 MB", 1_519_000_000: "1.5 GB"}),
        (of_calls, {1: "one call", 2: "median of 2"}),
        (lambda n: count(n, "token"), {0: "0 tokens", 1: "1 token", 1200: "1,200 tokens"}),
    ],
)
def test_a_number_is_written_with_its_unit(
    write: Callable[[float | None], str], texts: dict[float | None, str]
) -> None:
    assert {value: write(value) for value in texts} == texts


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0123, "12 ms"),
        (0.00021, "1 ms"),
        (0.0041, "4.1 ms"),
        (0.996, "1 s"),
        (4.213, "4.2 s"),
        (6.0, "6 s"),
        (67.8, "68 s"),
        (99.7, "1 min 40 s"),
        (119.9, "2 min"),
        (167.0, "2 min 50 s"),
    ],
)
def test_an_estimate_has_two_digits(value: float, said: str) -> None:
    assert about(value) == said
