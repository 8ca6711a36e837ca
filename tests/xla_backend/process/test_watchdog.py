"""Tests of `xla_backend.process.watchdog`; `test_faults` stops a real engine."""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest

from xla_backend import EngineStatus, GenerationOptions
from xla_backend.process import watchdog
from xla_backend.process.watchdog import Patience, Watchdog, describe_hang

STATES = [s for s in get_args(get_type_hints(EngineStatus)["state"]) if s != "stopped"]


@pytest.mark.parametrize("state", STATES)
def test_every_phase_has_a_limit_and_words(state: str) -> None:
    assert Patience().allowed_s(EngineStatus(state), None, is_warming=False) >= 60
    sentence = describe_hang(state, 123.4)
    assert "123 s" in sentence


def test_longer_texts_more_beams_and_what_is_made_may_take_longer() -> None:
    status = EngineStatus("generating")
    short, long, beams = (
        Patience().allowed_s(status, options, is_warming=False)
        for options in (
            GenerationOptions(max_new_tokens=1),
            GenerationOptions(max_new_tokens=100),
            GenerationOptions(max_new_tokens=100, num_beams=4),
        )
    )
    assert short < long < beams

    patience = Patience()
    waiting = patience.allowed_s(EngineStatus("ready"), None, is_warming=True)
    assert waiting > patience.tracing_s + patience.compiling_s


def watch(
    patch: pytest.MonkeyPatch,
    allowed_s: Callable[[int], float | None],
    *,
    alive_at: Collection[int] = (),
    tick_s: float = watchdog.TICK_S,
) -> list[float]:
    """A hundred ticks of a clock that only they move; returns what silences were reported.

    Args:
        allowed_s: of the number of a tick.
        alive_at: ticks that a sign of life comes before.
        tick_s: what the clock says of each.
    """
    reported: list[float] = []
    tick = 0
    dog = Watchdog(lambda: allowed_s(tick), reported.append)

    def wait(_: float) -> bool:
        nonlocal tick
        tick += 1
        if tick in alive_at:
            dog.sign_of_life()
        return tick > 100

    dog._ending = SimpleNamespace(wait=wait)
    patch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: tick * tick_s))
    dog.watch()
    return reported


def test_only_silence_that_lasts_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, lambda _: 1.6) == [2.0]
    assert watch(monkeypatch, lambda _: 1.6, alive_at=range(0, 200, 3)) == []
    assert watch(monkeypatch, lambda tick: None if tick < 50 else 0.6) == [1.0]
    # An hour passes at each tick, as on a machine that was suspended; only ticks count.
    assert watch(monkeypatch, lambda _: 2.5, tick_s=3600.0) == [3.0]
