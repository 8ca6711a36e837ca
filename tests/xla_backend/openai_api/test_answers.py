"""A result's fields in the answers of the protocols."""

import dataclasses

import pytest

from tests.playground.samples import result
from xla_backend.interface.results import PrefixMiss
from xla_backend.openai_api.answers import timings


@pytest.mark.parametrize(
    "miss",
    [
        PrefixMiss("new salt", 0),
        PrefixMiss("evicted", 64, 3, 0.0, at=0.0, by_others=True),
        PrefixMiss("differs", 0, 9, 0.5, 0, "user", "date", "a", "b", "c"),
        PrefixMiss("other model", 0, model="gpt2"),
    ],
)
def test_a_miss_has_what_is_known_of_it_and_no_more(miss: PrefixMiss) -> None:
    """Zero is a number like others."""
    answer = timings(dataclasses.replace(result(), prefix_miss=miss)).model_dump()["cache_miss"]
    known = {
        each.name
        for each in dataclasses.fields(miss)
        if getattr(miss, each.name) != each.default or each.name == "tokens"
    }
    assert answer == miss.to_json()
    assert answer.keys() == {"reason", *(known - {"seconds"}), *(["ms"] * ("seconds" in known))}
