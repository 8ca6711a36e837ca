"""The table of compiled functions."""

from __future__ import annotations

import re

from playground.entries_table import entries_table
from tests.playground.samples import entry


def words(markup: str) -> str:
    """What a reader sees of some HTML."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", markup)).strip()


def test_an_entry_shows_what_the_first_call_cost_and_what_it_gained() -> None:
    text = words(entries_table([entry()]))
    assert text.endswith(
        "gpt2-stories 16 1 32 3.20 s trace 1.00 s · compile 2.00 s 100 ms median of 3 32× 3"
    )


def test_an_entry_without_a_cached_call_claims_no_gain() -> None:
    assert words(entries_table([entry(cached=None, hits=0)])).endswith("– – 0")


def test_a_model_name_stays_text() -> None:
    assert "<i>" not in entries_table([entry(model="<i>x</i>")])


def test_functions_for_several_requests_are_told_apart() -> None:
    assert "for 4 requests at once" in words(entries_table([entry(batch_size=4)]))
    assert "at once" not in words(entries_table([entry()]))


def test_an_empty_cache_is_explained() -> None:
    assert "Nothing is compiled yet" in entries_table([])
