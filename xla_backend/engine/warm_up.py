"""`WarmUp`: keys that are made ready before anybody asks for them.

Knows which keys are worth it, and when. Must not know how functions are made: `function_maker`
does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from xla_backend.engine.function_maker import FunctionMaker
from xla_backend.engine.loop import Loop
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.results import CacheOutcome
from xla_backend.prediction.history import History
from xla_backend.rows.scheduler import MAX_ROWS, ROW_COUNTS

if TYPE_CHECKING:
    from xla_backend.compilation.function_cache import Slot
    from xla_backend.model.engine import Engine
    from xla_backend.model.functions import KeyFunctions

WARM_ROW_COUNTS = (1, MAX_ROWS, *ROW_COUNTS[1:-1])
"""Of a pool, in which order functions for rows are made: those for most serve any number."""
START_KEYS = 8
"""How many of the most used keys a start makes ready."""


class WarmUp:
    """Makes keys ready, now or in idle moments."""

    def __init__(self, maker: FunctionMaker, history: History, loop: Loop) -> None:
        """Makes nothing ready yet."""
        self._maker = maker
        self._history = history
        self._loop = loop

    def now(
        self,
        engine: Engine,
        keys: Iterable[CacheKey],
        on_progress: Callable[[CacheKey, CacheOutcome, float], None] | None,
        rows: int,
    ) -> None:
        """See `Backend.warm`."""

        def warmed(made: tuple[Slot[KeyFunctions], CacheOutcome]) -> CacheOutcome:
            slot, outcome = made
            if outcome is not CacheOutcome.HIT:
                engine.functions.warm_up(slot.built.function, key)
            return outcome

        for key in keys:
            start = time.perf_counter()
            outcome = self._maker.now(engine, key, lambda phase: None, warmed, rows).result()
            if on_progress is not None:
                on_progress(key, outcome, time.perf_counter() - start)
        self._history.save()

    def soon(self, engine: Engine, keys: Iterable[CacheKey]) -> None:
        """Makes keys ready in the background, a pool's for all numbers of rows."""
        for key in keys:
            for rows in WARM_ROW_COUNTS if key.is_pooled and not key.variants else (1,):
                self._maker.later(engine, key, rows)

    def at_start(self, engine: Engine, first: Iterable[CacheKey]) -> None:
        """Makes some keys ready in the background, then those that were used most."""
        used = self._history.most_used(engine.info.name)[:START_KEYS]
        self.soon(engine, dict.fromkeys([*first, *used]))

    def pending(self) -> list[tuple[str, CacheKey]]:
        """Models and keys that are being made ready in idle moments, and those that wait."""
        names = cast("list[tuple[str, CacheKey, int]]", self._loop.background.pending())
        return list(dict.fromkeys((model, key) for model, key, _ in names))

    def cancel(self) -> None:
        """Gives up what waits for idle moments."""
        self._loop.background.cancel()
