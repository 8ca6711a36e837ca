"""`/changes`: its marks change with what the page shows, and only then."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from playground import create_app
from playground.server.changes import changes
from tests.playground.clock import Clock
from tests.playground.fake_backend import FakeBackend
from xla_backend import CacheKey, EngineStatus, ModelInfo
from xla_backend.checkpoints.added_models import AddedModels


@pytest.fixture
def engine() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def added(tmp_path: Path) -> AddedModels:
    return AddedModels(tmp_path / "added.json")


@pytest.fixture
def changed(engine: FakeBackend, added: AddedModels) -> Callable[[Callable[[], Any]], set[str]]:
    """Says which marks are others after a change."""
    context = create_app(engine, admin=True, added=added).context

    def compared(change: Callable[[], Any]) -> set[str]:
        before = changes(context)
        assert changes(context) == before, "nothing has happened"
        change()
        after = changes(context)
        return {name for name in before if before[name] != after[name]}

    compared.context = context  # type: ignore[attr-defined]
    return compared


def test_the_status_mark_follows_status_and_clock(
    engine: FakeBackend,
    changed: Callable[[Callable[[], Any]], set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, "playground.server.changes")

    def set_status(state: str, **values: Any) -> Callable[[], None]:
        status = EngineStatus(state, since=1000.0, **values)  # type: ignore[arg-type]
        return lambda: setattr(engine, "status", status)

    def wait() -> None:
        clock.now += 1.0

    assert changed(set_status("compiling", detail="a key")) == {"status"}
    assert changed(wait) == {"status"}, "the clock beside it goes on"
    set_status("ready")()
    assert changed(wait) == set(), "no clock is shown of what is at rest"
    assert changed(set_status("ready", note="It was restarted.")) == {"status"}
    assert changed(set_status("starting")) == {"status", "engine"}


def test_the_marks_follow_functions_orders_and_added_models(
    engine: FakeBackend, changed: Callable[[Callable[[], Any]], set[str]], added: AddedModels
) -> None:
    model = ModelInfo("org/model", "decoder-only", "hub", "")
    assert changed(lambda: added.add(model)) == {"offered"}
    key = CacheKey(16, 1, 32)
    assert changed(lambda: engine.make_ready("gpt2-stories", key)) == {"engine"}
    assert changed(lambda: engine.compare_function("dense", 5)) == {"engine"}
    # The status says how many are being made ready.
    assert changed(lambda: engine.prefetch("t5-stories", [key])) == {"engine", "status"}
    context = changed.context  # type: ignore[attr-defined]
    assert changed(lambda: setattr(context, "times_cleared", 1)) == {"engine"}
    numbers = iter([1, 1, 2])
    context.watched.append(lambda: next(numbers))
    assert changed(lambda: None) == {"engine"}, "what a tab looks at besides"
