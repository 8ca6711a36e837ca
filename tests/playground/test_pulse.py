"""`/pulse`: its marks change with what the page shows, and only then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from playground import create_app
from playground.pulse import pulse
from tests.playground.idle_engine import IdleEngine
from xla_backend import CacheKey, EngineStatus


class Engine(IdleEngine):
    """One whose state the tests set."""

    def __init__(self) -> None:
        self.status = EngineStatus("ready", since=time.perf_counter())
        self.made: list[Any] = []
        self.to_make: list[Any] = []
        self.shapes: list[Any] = []

    def entries(self) -> list[Any]:
        return self.made

    def warming(self) -> list[Any]:
        return self.to_make

    def kept_shapes(self) -> list[Any]:
        return self.shapes


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def changed(engine: Engine) -> Callable[[Callable[[], Any]], set[str]]:
    """Says which marks are others after a change."""
    context = create_app(engine).context  # type: ignore[arg-type]

    def compared(change: Callable[[], Any]) -> set[str]:
        before = pulse(context)
        assert pulse(context) == before, "nothing has happened"
        change()
        after = pulse(context)
        return {name for name in before if before[name] != after[name]}

    compared.context = context  # type: ignore[attr-defined]
    return compared


def test_the_status(engine: Engine, changed: Callable[[Callable[[], Any]], set[str]]) -> None:
    def set_status(state: str, ago_s: float = 0.0, **values: Any) -> Callable[[], None]:
        status = EngineStatus(state, since=time.perf_counter() - ago_s, **values)  # type: ignore[arg-type]
        return lambda: setattr(engine, "status", status)

    assert changed(set_status("compiling", detail="a key")) == {"status"}
    engine.status = status = EngineStatus("compiling", since=time.perf_counter())
    assert changed(lambda: time.sleep(1.0)) == {"status"}, "the clock beside it goes on"
    assert engine.status is status
    set_status("ready", 5.7)()
    assert changed(lambda: time.sleep(0.4)) == set(), "no clock is shown of what is at rest"
    assert changed(set_status("ready", 5.7, note="It was restarted.")) == {"status"}
    assert changed(set_status("starting")) == {"status", "engine"}


def test_the_engine(engine: Engine, changed: Callable[[Callable[[], Any]], set[str]]) -> None:
    key = CacheKey(16, 1, 32)
    assert changed(lambda: engine.made.append(("an entry", key))) == {"engine"}
    assert changed(lambda: engine.shapes.append("a shape")) == {"engine"}
    # The status says how many are being made ready.
    assert changed(lambda: engine.to_make.append(("gpt2-stories", key))) == {"engine", "status"}
    context = changed.context  # type: ignore[attr-defined]
    assert changed(lambda: setattr(context, "times_forgotten", 1)) == {"engine"}
    numbers = iter([1, 1, 2])
    context.watched.append(lambda: next(numbers))
    assert changed(lambda: None) == {"engine"}, "what a tab looks at besides"
