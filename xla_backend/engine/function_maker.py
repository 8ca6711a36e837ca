"""`FunctionMaker`: makes the functions of a key beside the loop, now or in the background.

Knows the steps of making functions, and what is reported and recorded. Must not know which
functions a request needs: `function_resolver` does.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Literal

from xla_backend.compilation.function_cache import Built, FunctionCache, Slot
from xla_backend.engine.loop import Loop
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.results import CacheOutcome, EngineStatus
from xla_backend.prediction.history import History
from xla_backend.rows.scheduler import MAX_ROWS

if TYPE_CHECKING:
    from xla_backend.model.functions import KeyFunctions
    from xla_backend.model.loaded_model import LoadedModel

ROWS_PATIENCE_S = 3.0
"""Seconds without an idle moment after which the functions for the most rows are compiled beside
requests: a busy engine needs them. They also serve fewer rows, so the others can wait."""

DRAFTS_PATIENCE = 250
"""Chunks of text (0.08 s each) that went without drafts after which the function for drafts is made
beside requests: with it, these chunks would have saved what compiling it costs."""


class FunctionMaker:
    """Makes functions and puts them into the cache, each once."""

    def __init__(self, cache: FunctionCache[KeyFunctions], history: History, loop: Loop) -> None:
        self._cache = cache
        self._history = history
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, "maker")
        self._missed: Counter[tuple[str, CacheKey, int]] = Counter()

    def now(
        self,
        engine: LoadedModel,
        key: CacheKey,
        enter: Callable[[str], None] = lambda phase: None,
        rows: int = 1,
    ) -> Future[tuple[Slot[KeyFunctions], CacheOutcome]]:
        """The functions of a key, compiled or restored if they are not in memory, and which of the
        three it was.

        Args:
            engine, key, rows: which functions.
            enter: called with the name of each phase.
        """

        def build() -> Built[KeyFunctions]:
            try:
                with self._loop.compiling:
                    return engine.functions.build(key, on_step, rows)
            finally:
                self._loop.set_other_status("make", None)

        def on_step(step: Literal["trace", "compile"]) -> None:
            enter(step)
            state: Literal["tracing", "compiling"] = "tracing" if step == "trace" else "compiling"
            self._loop.set_other_status("make", EngineStatus(state, str(key)))

        def get() -> tuple[Slot[KeyFunctions], CacheOutcome]:
            with self._loop.background.held():
                return self._cache.get(engine.info.name, key, build, rows)

        return self._executor.submit(get)

    def later(
        self, engine: LoadedModel, key: CacheKey, rows: int = 1, is_missed: bool = False
    ) -> None:
        """Queues the functions of a key to be compiled in the background.

        `is_missed`: whether rows run now that would need them.
        """
        name = (engine.info.name, key, rows)
        job = partial(self._make_in_background, engine, key, rows)
        patience_s = ROWS_PATIENCE_S if is_missed and rows == MAX_ROWS else math.inf
        if key.prompt_lookup_num_tokens:
            self._missed[name] += 1
            if self._missed[name] == DRAFTS_PATIENCE:
                patience_s = 0.0
        self._loop.background.add(name, job, patience_s)

    def close(self) -> None:
        """Waits for the function that is being compiled, and drops the others."""
        self._executor.shutdown(cancel_futures=True)

    def _make_in_background(
        self, engine: LoadedModel, key: CacheKey, rows: int, wait_until_idle: Callable[[], None]
    ) -> None:
        wait_until_idle()
        with self._loop.compiling:
            trace_s, is_restored = engine.functions.trace(key, rows)
        wait_until_idle()

        def build() -> Built[KeyFunctions]:
            with self._loop.compiling:
                built = engine.functions.build(key, lambda step: None, rows)
            return dataclasses.replace(
                built,
                trace_s=trace_s + built.trace_s,
                outcome=built.outcome if is_restored else CacheOutcome.MISS,
            )

        if self._cache.peek(engine.info.name, key, rows) is not None:
            return  # a request was faster
        slot, outcome = self._cache.get(engine.info.name, key, build, rows)
        if outcome is CacheOutcome.HIT:
            return
        if rows == 1:
            self._history.record_first_call(engine.info.name, key, slot.first_call)
        wait_until_idle()
        engine.functions.warm_up(slot.built.function, key)
