"""The load that `make load` puts on the page, in a short form."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import load
from tests.playground.served import Site, the_site

SHORT = tuple(
    {"prompt": prompt, "max_new_tokens": 12, **options}
    for prompt in ("Once", "The owl", "One day the fox", "It was raining")
    for options in ({}, {"temperature": 1.0, "seed": 1}, {"temperature": 1.0, "seed": 2})
)


@pytest.fixture(scope="session")
def site(
    request: pytest.FixtureRequest, small_gpt2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Site:
    """The app with random models, which the tests of the page share."""
    return the_site(request.config, small_gpt2, tmp_path_factory)


def test_everybody_gets_their_own_answer_in_turn(site: Site) -> None:
    run = load.load(site.url, visitors=30, seconds=6, cases=SHORT)
    assert not run.problems
    assert min(run.by_visitor) >= 1
    assert max(place for asked in run.asked for place in asked.places) >= 10
    assert len({asked.case for asked in run.asked}) > 6
    assert "| another text than alone | 0 |" in load.report(run, "the command")


@pytest.mark.parametrize(
    ("places", "is_true"),
    [
        ([0], True),
        ([3, 3, 2, 1, 0], True),
        ([], False),
        ([3, 1, 0], False),
        ([2, 3, 2, 1, 0], False),
        ([3, 2], False),
    ],
)
def test_places_that_cannot_be_are_seen(places: list[int], is_true: bool) -> None:
    assert load.are_true(places) is is_true


def test_an_answer_that_is_another_s_and_one_that_failed_are_told() -> None:
    run = load.Load(2, 1.0, memory=[(float(i), 100, 100 + i) for i in range(12)])
    run.asked = [
        load.Asked(0, 0, 0.5, 0.1, "hit", (0,)),
        load.Asked(1, 0, 0.5, 0.1, "hit", (0,), "another text than alone"),
        load.Asked(1, 0, 0.5, problem="failed: no"),
    ]
    text = load.report(run, "the command")
    assert "| failed | 1 |" in text
    assert "| another text than alone | 1 |" in text
    assert run.by_visitor == [1, 2]
    assert 0.0 < run.grew(2) < 0.1
    assert run.grew(1) == 0.0
