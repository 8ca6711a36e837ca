"""The Shapes tab, as a visitor uses it."""

import json
from typing import cast

import pytest

from playground import create_app
from playground.page import Page
from playground.tabs.shapes.clear_controls import ALL, MEMORY, ONE
from tests.playground.fake_backend import FakeBackend
from tests.playground.reader import words
from tests.playground.visitor import Visitor
from xla_backend import CacheKey

MODEL = "gpt2-stories"
SMALL, LARGE = CacheKey(16, 2, 16), CacheKey(32, 2, 16)


@pytest.fixture(scope="module")
def page() -> Page:
    return create_app(FakeBackend(), admin=True)


@pytest.fixture
def engine(page: Page) -> FakeBackend:
    engine = cast(FakeBackend, page.context.backend)
    vars(engine).update(vars(FakeBackend()))
    return engine


@pytest.fixture
def visitor(page: Page, engine: FakeBackend) -> Visitor:
    """One who has chosen two shapes."""
    visitor = Visitor(page)
    visitor.put("beams", [2])
    visitor.put("new_slots", [16])
    visitor.put("padded_lengths", [16, 32])
    return visitor


def looks(visitor: Visitor, part: str) -> str:
    """What a part says once the page's script has had the tab look for news."""
    visitor.press("shapes_is_new")
    return words(visitor.reads(part))


def test_what_is_asked_for_is_made_one_by_one(visitor: Visitor, engine: FakeBackend) -> None:
    visitor.press("make_ready")
    assert engine.prefetching() == [(MODEL, SMALL), (MODEL, LARGE)]
    assert "2 shapes to compile" in visitor.reads("shapes_notice")
    assert "16 2 16 compiling – – – gpt2-stories 32 2 16 queued" in looks(visitor, "entries")
    engine.make_ready(MODEL, SMALL)
    visitor.press("cancel_making")
    assert engine.prefetching() == []
    visitor.press("make_ready")
    engine.make_ready(MODEL, LARGE)
    visitor.press("make_ready")
    assert "nothing to compile" in visitor.reads("shapes_notice")


@pytest.mark.parametrize(("what", "left"), [(MEMORY, {SMALL, LARGE}), (ONE, {LARGE}), (ALL, set())])
def test_what_is_cleared_is_said_and_confirmed(
    visitor: Visitor, engine: FakeBackend, what: str, left: set[CacheKey]
) -> None:
    for key in (SMALL, LARGE):
        engine.make_ready(MODEL, key)
        engine.on_disk.add((MODEL, key))
    if what == ONE:
        value = json.dumps([MODEL, SMALL.to_dict()])
        assert "Remove" in looks(visitor, "entries")
        visitor.select("entries", {"shape": value})
    else:
        visitor.put("clear_what", what)
        visitor.press("clear_shapes")
    said = visitor.reads("clear_sentence")
    assert "everybody who uses this page" in said
    assert "2 functions are removed from memory." in said
    visitor.press("clear_not")
    assert len(engine.cached_functions()) == 2, "it was not confirmed"
    visitor.press("clear_now")
    assert "Cleared" in visitor.reads("clear_notice")
    assert engine.cached_functions() == []
    assert {key for _, key in engine.on_disk} == left
