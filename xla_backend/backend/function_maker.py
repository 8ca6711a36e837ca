"""`FunctionMaker`: the functions of a key, made ready at once or in an idle moment.

Knows how making goes from step to step, and what is told and kept of it. Must not know which
functions a request needs: `kept_functions` does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from xla_backend.compilation.function_cache import Built, FunctionCache, Slot
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.results import CacheOutcome, EngineStatus
from xla_backend.scheduling.engine_access import EngineAccess
from xla_backend.scheduling.history import History

if TYPE_CHECKING:
    from xla_backend.model.engine import Engine
    from xla_backend.model.functions import KeyFunctions

BATCH_PATIENCE_S = 3.0
"""After so long without an idle moment, functions for several requests are made beside them: an
engine that is never idle is the one that needs them."""


class FunctionMaker:
    """Makes functions and puts them into the cache; each once, however many ask for it."""

    def __init__(
        self, cache: FunctionCache[KeyFunctions], history: History, access: EngineAccess
    ) -> None:
        """Makes nothing yet."""
        self._cache = cache
        self._history = history
        self._access = access

    def now(
        self, engine: Engine, key: CacheKey, enter: Callable[[str], None], batch_size: int = 1
    ) -> tuple[Slot[KeyFunctions], CacheOutcome]:
        """The functions of a key, made ready if need be; `enter` is told the phases."""

        def build() -> Built[KeyFunctions]:
            return engine.functions.build(key, on_step, batch_size)

        def on_step(step: Literal["trace", "compile"]) -> None:
            enter(step)
            state: Literal["tracing", "compiling"] = "tracing" if step == "trace" else "compiling"
            self._access.tell(EngineStatus(state, str(key)))

        # Waiting for another thread that makes the same key ready is waiting in a queue.
        enter("queue")
        return self._cache.get(engine.info.name, key, build, batch_size)

    def later(self, engine: Engine, key: CacheKey, batch_size: int = 1) -> None:
        """Has the functions of a key made ready in idle moments."""
        name = (engine.info.name, key, batch_size)
        job = partial(self._make_in_background, engine, key, batch_size)
        patience_s = math.inf if batch_size == 1 else BATCH_PATIENCE_S
        self._access.background.add(name, job, patience_s)

    def _make_in_background(
        self,
        engine: Engine,
        key: CacheKey,
        batch_size: int,
        wait_until_idle: Callable[[], None],
    ) -> None:
        wait_until_idle()
        trace_s, is_restored = engine.functions.trace(key, batch_size)
        wait_until_idle()

        def build() -> Built[KeyFunctions]:
            built = engine.functions.build(key, lambda step: None, batch_size)
            return dataclasses.replace(
                built,
                trace_s=trace_s + built.trace_s,
                outcome=built.outcome if is_restored else CacheOutcome.MISS,
            )

        if batch_size in self._cache.batch_sizes(engine.info.name, key):
            return  # a request was faster
        slot, outcome = self._cache.get(engine.info.name, key, build, batch_size)
        if outcome is CacheOutcome.HIT:
            return
        if batch_size == 1:
            self._history.record_first_call(engine.info.name, key, slot.first_call)
        wait_until_idle()
        engine.functions.warm_up(slot.built.function, key)
