"""An inspection as text for a terminal."""

import pytest

from xla_backend.inspection import table


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (494_233_000, "494.2 MB"), (2e9, "2.0 GB")],
)
def test_amounts_have_prefixes(count: float, text: str) -> None:
    assert table.amount(count, "B") == text
