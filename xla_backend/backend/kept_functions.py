"""`KeptFunctions`: which functions serve a request, in truth and as a prediction.

Knows the rules of keys and reuse, and what is in memory, in the store and in the past. Must not
know how functions are made (`function_maker`), nor what is written with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from xla_backend.backend.function_maker import FunctionMaker
from xla_backend.checkpoints.prompts import drafts_of, runs_in_chunks
from xla_backend.checkpoints.speech_input import speech_key
from xla_backend.compilation import naming
from xla_backend.compilation.function_cache import FunctionCache, Slot
from xla_backend.compilation.store import Store
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.results import CacheOutcome, FirstCall, Prediction
from xla_backend.interface.timing import Timing
from xla_backend.scheduling import prediction
from xla_backend.scheduling.history import History
from xla_backend.scheduling.prediction import Choice

if TYPE_CHECKING:
    from xla_backend.model.engine import Engine
    from xla_backend.model.functions import KeyFunctions


class KeptFunctions:
    """Finds the functions of requests, and keeps their account."""

    def __init__(
        self,
        rules: BucketRules,
        store: Store | None,
        cache: FunctionCache[KeyFunctions],
        history: History,
        maker: FunctionMaker,
    ) -> None:
        """Takes the places to look in; the maker makes what is in none of them."""
        self._rules = rules
        self._store = store
        self._cache = cache
        self._history = history
        self._maker = maker

    def key(
        self,
        engine: Engine,
        prompt_tokens: int,
        options: GenerationOptions,
        cache_salt: str = "",
    ) -> CacheKey:
        """The key that fits a request best; a speech model's windows are all as long."""
        if engine.speech is not None:
            return speech_key(self._rules, engine.speech, options)
        return self._rules.key_for(
            prompt_tokens,
            options.num_beams,
            options.max_new_tokens,
            engine.context_length,
            in_chunks=runs_in_chunks(engine.info, cache_salt),
            prompt_lookup_num_tokens=drafts_of(engine.info, options),
        )

    def choose(self, engine: Engine, wanted: CacheKey, exact_key: bool) -> Choice:
        """Which functions serve a request, as things stand now."""
        in_memory = self._cache.keys(engine.info.name)
        return prediction.choose(
            wanted, in_memory, lambda key: self._is_stored(engine, key), exact_key
        )

    def serve(
        self,
        engine: Engine,
        wanted: CacheKey,
        choice: Choice,
        enter: Callable[[str], None],
        batch_size: int = 1,
    ) -> tuple[Slot[KeyFunctions], Choice]:
        """The functions that were chosen for a request, and where they came from.

        Where larger ones serve, its own are made in an idle moment. `enter` is told the phases.
        """
        slot, outcome = self._maker.now(engine, choice.key, enter, batch_size)
        if choice.outcome is CacheOutcome.REUSED:
            self._maker.later(engine, wanted)
            return slot, choice
        # What happened counts, not what was expected: an entry on disk may have been damaged.
        return slot, dataclasses.replace(choice, outcome=outcome)

    def predict(
        self,
        engine: Engine,
        prompt_tokens: int,
        options: GenerationOptions,
        exact_key: bool,
        cache_salt: str = "",
    ) -> Prediction:
        """What `serve` would answer, and how long the request should take."""
        in_memory = self._cache.keys(engine.info.name)
        holds = self._store.holds if self._store else _holds_nothing
        return prediction.predict(
            wanted=self.key(engine, prompt_tokens, options, cache_salt),
            prompt_tokens=prompt_tokens,
            entries=self._cache.cached_functions(engine.info.name),
            past=self._history.past().get(engine.info.name, {}),
            missing=lambda key: naming.missing(engine.identity, key, in_memory, holds),
            exact_key=exact_key,
        )

    def record(
        self,
        engine: Engine,
        slot: Slot[KeyFunctions],
        choice: Choice,
        wanted: CacheKey,
        timing: Timing,
        is_complete: bool = True,
    ) -> FirstCall:
        """Keeps what a request took that the functions in `slot` have served.

        Args:
            is_complete: whether it ended by itself. What ran until somebody stopped it says nothing
                of other requests; what making the functions took does.

        Returns:
            Their first call, as `GenerationResult.first_call`.
        """
        name = engine.info.name
        if is_complete:
            self._cache.record(slot, timing.run_s)
        self._history.record_request(name, wanted)
        if slot.built.function.batch_size > 1:
            return slot.first_call  # the history is what predictions are made of: of requests alone
        if is_complete:
            self._history.record_run(name, choice.key, timing.run_s)
        if choice.outcome in (CacheOutcome.MISS, CacheOutcome.DISK):
            self._history.record_first_call(name, choice.key, slot.first_call)
        if slot.built.outcome is CacheOutcome.DISK:
            past = self._history.past()[name][choice.key]
            return past.compiled or slot.first_call
        return slot.first_call

    def _is_stored(self, engine: Engine, key: CacheKey) -> bool:
        if self._store is None:
            return False
        in_memory = self._cache.keys(engine.info.name)
        return not naming.missing(engine.identity, key, in_memory, self._store.holds)


def _holds_nothing(entry: str) -> bool:
    return False
