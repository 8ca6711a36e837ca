"""Shapes made ahead: where they are, and how far an order is."""

import pytest

from playground.tabs.shapes.report import progress_line, summary_line
from playground.tabs.shapes.shapes import Order, survey
from tests.playground.fake_backend import CONTEXT_LENGTH, FakeBackend
from xla_backend import CacheKey, CacheOutcome
from xla_backend.interface.results import KeyHistory

MODEL = "gpt2-stories"
KEYS = (CacheKey(16, 1, 32), CacheKey(16, 1, 64))


def test_every_combination_is_asked_for_and_counted_by_where_it_is() -> None:
    engine = FakeBackend()
    engine.make_ready(MODEL, CacheKey(64, 1, 32))
    engine.on_disk.add((MODEL, CacheKey(64, 4, 32)))
    engine.history[MODEL] = {
        CacheKey(64, beams, 32): KeyHistory(miss_s=6.0, disk_s=1.0) for beams in (1, 4)
    }
    shapes = survey(engine, MODEL, [64, 16], [1, 4], [32])
    assert {shape.key: shape.outcome for shape in shapes} == {
        CacheKey(16, 1, 32): CacheOutcome.MISS,  # the larger one must not hide where this one is
        CacheKey(16, 4, 32): CacheOutcome.MISS,
        CacheKey(64, 1, 32): CacheOutcome.HIT,
        CacheKey(64, 4, 32): CacheOutcome.DISK,
    }
    assert summary_line(shapes).startswith(
        '<p class="shape-summary"><strong>4 shapes</strong>: 1 in memory, 1 on disk, '
        "2 to be compiled. About 13 s"
    )


def test_shapes_are_bounded_by_the_context_as_requests_are() -> None:
    [fits, too_long] = survey(FakeBackend(), MODEL, [128], [1], [64, 256])
    assert fits.key == CacheKey(128, 1, 64)
    assert too_long.key is None
    assert "1 too long for this model" in summary_line([fits, too_long])

    [shape] = survey(FakeBackend(), MODEL, [192], [1], [16])
    assert shape.key == CacheKey(CONTEXT_LENGTH, 1, 16)


@pytest.fixture
def engine() -> FakeBackend:
    """An engine that has nothing."""
    return FakeBackend()


@pytest.fixture
def order(engine: FakeBackend) -> Order:
    """Two keys that were asked for."""
    order = Order(engine)
    order.place(MODEL, KEYS)
    return order


def test_an_order_that_is_cancelled_says_what_was_made(engine: FakeBackend, order: Order) -> None:
    engine.make_ready(MODEL, KEYS[0])
    order.cancel()
    assert "Cancelled: 1 of 2 shapes ready" in progress_line(order.progress())
    assert engine.prefetching() == []


def test_an_order_counts_what_is_ready_until_all_is(engine: FakeBackend, order: Order) -> None:
    assert "0 of 2 shapes ready" in progress_line(order.progress())
    engine.make_ready(MODEL, KEYS[0])
    assert "1 of 2 shapes ready" in progress_line(order.progress())
    assert 'aria-valuenow="1"' in progress_line(order.progress())
    engine.make_ready(MODEL, KEYS[1])
    progress = order.progress()
    assert not progress.under_way
    assert "2 shapes ready. Their next requests are HITs." in progress_line(progress)


def test_a_second_order_joins_the_one_under_way(engine: FakeBackend, order: Order) -> None:
    order.place(MODEL, [CacheKey(32, 1, 32)])
    assert "0 of 3 shapes" in progress_line(order.progress())
    for key in (*KEYS, CacheKey(32, 1, 32)):
        engine.make_ready(MODEL, key)
    order.place(MODEL, [CacheKey(32, 2, 32)])
    assert "0 of 1 shape ready" in progress_line(order.progress())


def test_an_order_that_the_engine_lost_is_not_under_way_for_ever(
    engine: FakeBackend, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.cancel_prefetch()
    assert "0 of 2" in progress_line(order.progress()), "the engine may not have said yet"
    monkeypatch.setattr("playground.tabs.shapes.shapes._STATUS_WITHIN_S", 0.0)
    assert "Press Compile for the rest" in progress_line(order.progress())
    order.drop()
    assert progress_line(order.progress()) == ""
