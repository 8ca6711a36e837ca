"""The soak in short, a real engine with hardly any room; its arithmetic, report and drawing."""

from __future__ import annotations

import random
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import soak
from benchmarks.soak import Answered, Soak
from tests.checkpoints import gpt2
from xla_backend.process.memory_bound import MIN_ROOM

MB = 10**6


def test_the_limit_holds_and_no_request_fails(tmp_path: Path) -> None:
    model = str(gpt2(tmp_path / "model", seed=71, n_layer=1, n_positions=512))
    run = soak.soak(model, requests=36, keys=20, room=MIN_ROOM)
    assert run.errors == []
    assert run.keys == 20
    assert run.restarts >= 1
    assert run.most <= run.limit
    assert run.took("disk"), "what an earlier engine had made came back from the store"
    for answer in run.answers:
        assert answer.reported_s <= answer.took_s
    text = soak.report(run, "the test")
    assert "The limit held" in text
    assert "0 of 36 requests failed" in text
    ElementTree.fromstring(soak.drawing(run))


def test_a_limit_that_is_passed_is_said() -> None:
    answers = [
        Answered(0.0, 2.0, "miss", "padded 16", 1.9),
        Answered(2.0, 0.1, "error", "it broke"),
    ]
    run = Soak(limit=100 * MB, answers=answers, sizes={1: [(0.0, 90 * MB), (1.0, 101 * MB)]})
    run.took_s = 2.1
    text = soak.report(run, "the test")
    assert "DID NOT HOLD" in text
    assert "1 of 2 requests failed" in text
    assert run.errors == ["it broke"]
    ElementTree.fromstring(soak.drawing(run))


def test_requests_are_spread_over_all_keys() -> None:
    asked = soak.spread_requests(random.Random(1), requests=500, keys=200)
    assert len(asked) == 500
    assert len(set(asked)) == 200
