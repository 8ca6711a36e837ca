"""`FunctionResolver`: chooses the functions that serve a request.

Knows the rules of keys and reuse, and what is in memory, in the store and in the history. Must not
know how functions are made (`function_maker`), nor what is generated with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xla_backend.checkpoints.speech_input import speech_key
from xla_backend.compilation import naming
from xla_backend.compilation.function_cache import FunctionCache, Slot
from xla_backend.compilation.store import Store
from xla_backend.engine.function_maker import FunctionMaker
from xla_backend.engine.request import Awaited, AwaitResult
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.requests import Prepared
from xla_backend.interface.results import CacheOutcome, FirstCall, Miss, RowRun
from xla_backend.interface.timing import Timing
from xla_backend.prediction.history import History
from xla_backend.prediction.misses import explain_miss
from xla_backend.prediction.prediction import Choice, choose

if TYPE_CHECKING:
    from xla_backend.model.functions import KeyFunctions
    from xla_backend.model.loaded_model import LoadedModel


@dataclass(frozen=True)
class Chosen:
    """The cache entry that serves a request, and where it came from."""

    slot: Slot[KeyFunctions]
    choice: Choice

    @property
    def functions(self) -> KeyFunctions:
        return self.slot.built.function


class FunctionResolver:
    """Finds the functions of requests, and records their times."""

    def __init__(
        self,
        rules: BucketRules,
        store: Store | None,
        cache: FunctionCache[KeyFunctions],
        history: History,
        maker: FunctionMaker,
    ) -> None:
        self._rules = rules
        self._store = store
        self._cache = cache
        self._history = history
        self._maker = maker

    def speech_key(self, engine: LoadedModel, options: GenerationOptions) -> CacheKey:
        """The key of a recording's windows, which all have the same length."""
        assert engine.speech is not None, "only speech models have windows"
        return speech_key(self._rules, engine.speech, options)

    def explain_miss(self, engine: LoadedModel, prepared: Prepared) -> Miss:
        """Why no function in memory serves a request now."""
        return explain_miss(prepared, self._cache.keys(engine.info.name))

    def obtain(
        self,
        engine: LoadedModel,
        needed: CacheKey,
        options: GenerationOptions,
        makes: Callable[[CacheOutcome], Callable[[str], None]],
    ) -> Generator[Awaited, Any, Chosen]:
        """The functions that serve a request, made beside the loop if none in memory do.

        If larger ones are reused, the exact ones are made in the background. See `Request.makes`.
        """
        name = engine.info.name
        if (slot := self._cache.find(name, needed)) is not None:
            return Chosen(slot, Choice(needed, CacheOutcome.HIT))
        in_memory = self._cache.keys(name)
        choice = choose(
            needed, in_memory, lambda key: self._is_stored(engine, key), options.may_reuse
        )
        if choice.outcome is CacheOutcome.REUSED:
            slot = self._cache.find(name, choice.key)
            assert slot is not None, "it is in memory"
            self._maker.later(engine, needed)
            return Chosen(slot, choice)
        made = self._maker.now(engine, needed, makes(choice.outcome))
        try:
            # The actual outcome, not the expected one: a file in the store may be damaged.
            slot, outcome = yield AwaitResult(made)
        finally:
            made.cancel()  # a stopped request needs them no more
        return Chosen(slot, dataclasses.replace(choice, outcome=outcome))

    def record(
        self,
        engine: LoadedModel,
        chosen: Chosen,
        needed: CacheKey,
        timing: Timing,
        is_complete: bool = True,
        batch_size: int = 1,
        row: RowRun | None = None,
    ) -> FirstCall:
        """Records a request's times.

        Args:
            is_complete: whether it ended by itself. The run time of a stopped request says nothing
                about others; the time of making its functions does.
            batch_size: how many ran together; predictions use only requests that ran alone.
            row: its work, if it was a text.

        Returns:
            The first call of the functions, as `GenerationResult.first_call`.
        """
        name, slot, choice = engine.info.name, chosen.slot, chosen.choice
        if is_complete:
            self._cache.record(slot, timing.run_s)
        self._history.record_request(name, needed)
        if batch_size > 1:
            return slot.first_call
        if is_complete:
            self._history.record_run(name, choice.key, timing.run_s)
            if row is not None:
                self._history.record_row(name, choice.key, row)
        if choice.outcome in (CacheOutcome.MISS, CacheOutcome.DISK):
            self._history.record_first_call(name, choice.key, slot.first_call)
        if slot.built.outcome is CacheOutcome.DISK:
            past = self._history.past()[name].get(choice.key)
            return (past.compiled if past else None) or slot.first_call
        return slot.first_call

    def _is_stored(self, engine: LoadedModel, key: CacheKey) -> bool:
        if self._store is None:
            return False
        in_memory = self._cache.keys(engine.info.name)
        return not naming.missing(engine.identity, key, in_memory, self._store.holds)
