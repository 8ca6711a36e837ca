"""Shapes made ahead: where they are, and how far an order is."""

from __future__ import annotations

import pytest

from playground.shapes import Order, survey
from playground.shapes_map import progress_line, shape_map, summary_line
from tests.playground.samples import entry
from tests.playground.test_entries_table import words
from xla_backend import (
    BucketRules,
    CacheEntry,
    CacheKey,
    CacheOutcome,
    GenerationOptions,
    InvalidRequest,
    Prediction,
)

CONTEXT = 150
KEYS = (CacheKey(16, 1, 32), CacheKey(16, 1, 64))


class PredictingEngine:
    """Counts three tokens a word, holds what it is told to hold, and makes nothing ready."""

    def __init__(self, hit: CacheKey | None = None, disk: CacheKey | None = None) -> None:
        self.places = {hit: CacheOutcome.HIT, disk: CacheOutcome.DISK}
        self.in_memory: list[CacheEntry] = []
        self.in_background: list[tuple[str, CacheKey]] = []

    def predict(
        self, model: str, prompt: str, options: GenerationOptions, *, exact_key: bool
    ) -> Prediction:
        assert exact_key, "a larger function would hide where this one is"
        tokens = 3 * len(prompt.split())
        if tokens + options.max_new_tokens > CONTEXT:
            raise InvalidRequest("too long")
        key = BucketRules().key_for(tokens, options.num_beams, options.max_new_tokens, CONTEXT)
        outcome = self.places.get(key, CacheOutcome.MISS)
        expected_s = {CacheOutcome.MISS: 6.0, CacheOutcome.DISK: 1.0}.get(outcome, 0.1)
        return Prediction(outcome, key, key, tokens, expected_s)

    def entries(self) -> list[CacheEntry]:
        return self.in_memory

    def warming(self) -> list[tuple[str, CacheKey]]:
        return self.in_background

    def warm_soon(self, model: str, keys: list[CacheKey]) -> None:
        self.in_background += [(model, key) for key in keys]

    def cancel_warming(self) -> None:
        self.in_background = []

    def finish(self, key: CacheKey) -> None:
        self.in_memory.append(entry(key=key))
        self.in_background = [each for each in self.in_background if each[1] != key]


def test_every_combination_is_asked_for_as_a_request_of_that_shape_would() -> None:
    engine = PredictingEngine(hit=CacheKey(16, 1, 32), disk=CacheKey(64, 4, 32))
    shapes = survey(engine, "gpt2", [64, 16], [1, 4], [32])  # type: ignore[arg-type]
    assert {shape.key: shape.outcome for shape in shapes} == {
        CacheKey(16, 1, 32): CacheOutcome.HIT,
        CacheKey(16, 4, 32): CacheOutcome.MISS,
        CacheKey(64, 1, 32): CacheOutcome.MISS,
        CacheKey(64, 4, 32): CacheOutcome.DISK,
    }
    assert summary_line(shapes).startswith(
        '<p class="shape-summary"><strong>4 shapes</strong>: 1 in memory, 1 on disk, '
        "2 to be compiled. About 13 s"
    )


def test_what_the_context_has_no_room_for_is_said_and_never_made() -> None:
    [fits, too_long] = survey(PredictingEngine(), "gpt2", [128], [1], [64, 256])  # type: ignore[arg-type]
    assert fits.key == CacheKey(128, 1, 64)
    assert too_long.key is None
    assert "1 too long for this model" in summary_line([fits, too_long])
    assert "–" in shape_map([fits, too_long])


def test_a_padded_length_is_bounded_by_the_context_as_in_requests() -> None:
    [shape] = survey(PredictingEngine(), "gpt2", [192], [1], [16])  # type: ignore[arg-type]
    assert shape.key == CacheKey(CONTEXT, 1, 16)


def test_the_map_shows_what_is_being_made_and_what_waits() -> None:
    shapes = survey(PredictingEngine(), "gpt2", [16], [1], [16, 32, 64])  # type: ignore[arg-type]
    assert words(shape_map(shapes, KEYS)) == (
        "1 beam 16 new 32 new 64 new 16 slots MISS making waits"
    )
    assert "at least one value" in shape_map([])


@pytest.fixture
def engine() -> PredictingEngine:
    """An engine that has nothing."""
    return PredictingEngine()


@pytest.fixture
def order(engine: PredictingEngine) -> Order:
    """Two keys that were asked for."""
    order = Order(engine)  # type: ignore[arg-type]
    order.place("gpt2-stories", KEYS)
    return order


def test_an_order_counts_what_is_ready_until_all_is(engine: PredictingEngine, order: Order) -> None:
    assert "0 of 2 shapes ready" in progress_line(order.progress())
    engine.finish(KEYS[0])
    assert "1 of 2 shapes ready" in progress_line(order.progress())
    assert 'aria-valuenow="1"' in progress_line(order.progress())
    engine.finish(KEYS[1])
    progress = order.progress()
    assert progress is not None
    assert not progress.under_way
    assert "2 shapes ready. Their next requests are HITs." in progress_line(progress)


def test_an_order_that_is_cancelled_says_what_was_made(
    engine: PredictingEngine, order: Order
) -> None:
    engine.finish(KEYS[0])
    order.cancel()
    assert "Cancelled: 1 of 2 shapes ready" in progress_line(order.progress())
    assert engine.warming() == []


def test_a_second_order_joins_the_one_under_way(engine: PredictingEngine, order: Order) -> None:
    order.place("gpt2-stories", [CacheKey(32, 1, 32)])
    assert "0 of 3 shapes" in progress_line(order.progress())
    for key in (*KEYS, CacheKey(32, 1, 32)):
        engine.finish(key)
    order.place("gpt2-stories", [CacheKey(32, 2, 32)])
    assert "0 of 1 shape ready" in progress_line(order.progress())


def test_an_order_that_the_engine_lost_is_not_under_way_for_ever(
    engine: PredictingEngine, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.in_background = []
    assert "0 of 2" in progress_line(order.progress()), "the engine may not have said yet"
    monkeypatch.setattr("playground.shapes._TOLD_WITHIN_S", 0.0)
    assert "Press Make ready for the rest" in progress_line(order.progress())
    order.drop()
    assert progress_line(order.progress()) == ""
