"""Shapes made ahead: which are asked for."""

from playground.tabs.shapes.shapes import missing
from tests.playground.fake_backend import CONTEXT_LENGTH, FakeBackend
from xla_backend import CacheKey

MODEL = "gpt2-stories"


def test_every_combination_that_is_not_in_memory_is_made() -> None:
    engine = FakeBackend()
    engine.make_ready(MODEL, CacheKey(64, 1, 32))
    engine.on_disk.add((MODEL, CacheKey(64, 4, 32)))
    keys, too_long = missing(engine, MODEL, [64, 16], [1, 4], [32])
    # The larger one must not hide that the others are missing.
    assert keys == [CacheKey(16, 1, 32), CacheKey(16, 4, 32), CacheKey(64, 4, 32)]
    assert too_long == 0


def test_shapes_are_bounded_by_the_context_as_requests_are() -> None:
    assert missing(FakeBackend(), MODEL, [128], [1], [64, 256]) == ([CacheKey(128, 1, 64)], 1)
    assert missing(FakeBackend(), MODEL, [192], [1], [16]) == ([CacheKey(CONTEXT_LENGTH, 1, 16)], 0)
