"""`WarmUp`: keys that are made ready before anybody asks for them.

Knows which keys are worth it, and when. Must not know how functions are made: `function_maker`
does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from xla_backend.backend.function_maker import FunctionMaker
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.results import CacheOutcome
from xla_backend.scheduling.engine_access import READY, EngineAccess
from xla_backend.scheduling.history import History

if TYPE_CHECKING:
    from xla_backend.model.engine import Engine

START_KEYS = 8
"""How many of the most used keys a start makes ready."""


class WarmUp:
    """Makes keys ready, now or in idle moments."""

    def __init__(self, maker: FunctionMaker, history: History, access: EngineAccess) -> None:
        """Makes nothing ready yet."""
        self._maker = maker
        self._history = history
        self._access = access

    def now(
        self,
        engine: Engine,
        keys: Iterable[CacheKey],
        on_progress: Callable[[CacheKey, CacheOutcome, float], None] | None,
        batch_size: int,
    ) -> None:
        """See `Backend.warm`."""
        for key in keys:
            with (
                self._access.background.request(),
                self._access.turn(lambda phase: None),
            ):
                start = time.perf_counter()
                slot, outcome = self._maker.now(engine, key, lambda phase: None, batch_size)
                if outcome is not CacheOutcome.HIT:
                    engine.functions.warm_up(slot.built.function, key)
                self._access.tell(READY)
            if on_progress is not None:
                on_progress(key, outcome, time.perf_counter() - start)
        self._history.save()

    def soon(self, engine: Engine, keys: Iterable[CacheKey]) -> None:
        """Makes keys ready in idle moments."""
        for key in keys:
            self._maker.later(engine, key)

    def at_start(self, engine: Engine, default: CacheKey) -> None:
        """Makes one key ready in idle moments, then those that were used most."""
        used = self._history.most_used(engine.info.name)[:START_KEYS]
        self.soon(engine, dict.fromkeys([default, *used]))

    def pending(self) -> list[tuple[str, CacheKey]]:
        """Models and keys that are being made ready in idle moments, and those that wait."""
        names = cast("list[tuple[str, CacheKey, int]]", self._access.background.pending())
        return [(model, key) for model, key, _ in names]

    def cancel(self) -> None:
        """Gives up what waits for idle moments."""
        self._access.background.cancel()
