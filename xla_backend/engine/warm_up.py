"""`WarmUp`: compiles keys before requests need them.

Knows which keys, and when. Must not know how functions are made: `function_maker` does.
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
    from xla_backend.model.loaded_model import LoadedModel

WARM_ROW_COUNTS = (1, MAX_ROWS, *ROW_COUNTS[1:-1])
"""The order in which a pool's functions are made: those for the most rows serve any number."""
START_KEYS = 8
"""How many of the most used keys are made at a start."""


class WarmUp:
    """Makes keys, now or in the background."""

    def __init__(self, maker: FunctionMaker, history: History, loop: Loop) -> None:
        self._maker = maker
        self._history = history
        self._loop = loop

    def now(
        self,
        engine: LoadedModel,
        keys: Iterable[CacheKey],
        on_progress: Callable[[CacheKey, CacheOutcome, float], None] | None,
        rows: int,
    ) -> None:
        """See `Backend.warm`."""
        for key in keys:
            start = time.perf_counter()
            slot, outcome = self._maker.now(engine, key, rows=rows).result()
            if outcome is not CacheOutcome.HIT:
                engine.functions.warm_up(slot.built.function, key)
            if on_progress is not None:
                on_progress(key, outcome, time.perf_counter() - start)
        self._history.save()

    def queue(self, engine: LoadedModel, keys: Iterable[CacheKey]) -> None:
        """Queues keys to be compiled in the background, a pool's for all numbers of rows."""
        for key in keys:
            for rows in WARM_ROW_COUNTS if key.is_pooled and not key.variants else (1,):
                self._maker.later(engine, key, rows)

    def at_start(self, engine: LoadedModel, first: Iterable[CacheKey]) -> None:
        """Makes some keys in the background, then the most used ones."""
        used = self._history.most_used(engine.info.name)[:START_KEYS]
        self.queue(engine, dict.fromkeys([*first, *used]))

    def pending(self) -> list[tuple[str, CacheKey]]:
        """Models and keys that are made or wait in the background."""
        names = cast("list[tuple[str, CacheKey, int]]", self._loop.background.pending())
        return list(dict.fromkeys((model, key) for model, key, _ in names))

    def cancel(self) -> None:
        self._loop.background.cancel()
