"""`Backend`: the class that library users call: it takes requests and returns text and timings.

Knows the parts of an engine and which of them answers what. Must not know how they do it, nor who
calls: page, process or command line.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from xla_backend.checkpoints import kinds
from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.speech_input import fitting_options
from xla_backend.compilation.example_functions import ExampleFunctions
from xla_backend.compilation.function_cache import FunctionCache
from xla_backend.compilation.store import open_store
from xla_backend.engine.function_maker import FunctionMaker
from xla_backend.engine.function_resolver import FunctionResolver
from xla_backend.engine.loaded_models import LoadedModels
from xla_backend.engine.loop import Loop
from xla_backend.engine.pools import Pools
from xla_backend.engine.request import Reservation, Stream
from xla_backend.engine.text import Text, TextStream
from xla_backend.engine.transcription import SpeechToText, WindowStream
from xla_backend.interface.backend import AnyBackend
from xla_backend.interface.buckets import BucketRules, CacheKey, pool_key
from xla_backend.interface.function_comparison import FunctionComparison, FunctionRequest, StoredKey
from xla_backend.interface.options import DEFAULT_OPTIONS, GenerationOptions
from xla_backend.interface.prompt import question
from xla_backend.interface.requests import Prepared, SpeechRequest, TextRequest
from xla_backend.interface.results import (
    CacheEntry,
    CacheOutcome,
    EngineStatus,
    KVMemoryUse,
    ModelInfo,
    Past,
    Prediction,
)
from xla_backend.model.loaded_model import DEFAULT_KV_BYTES
from xla_backend.prediction.history import History
from xla_backend.prediction.vocabulary import Known
from xla_backend.rows.prefix_store import PrefixStore
from xla_backend.rows.scheduler import MAX_ROWS, ROW_COUNTS

if TYPE_CHECKING:
    from xla_backend.model.functions import KeyFunctions

WARM_ROW_COUNTS = (1, MAX_ROWS, *ROW_COUNTS[1:-1])
"""The order in which a pool's functions are made: those for the most rows serve any number."""
START_KEYS = 8
"""How many of the most used keys are made at a start."""
SHORT_QUESTION = 16
"""Tokens of a question for which the warm-up at the start compiles functions."""


class Backend(AnyBackend):
    """Generates text through compiled functions that it caches.

    Thread-safe: its own thread does all the work, a chunk of each request at a time.

    Example:
        >>> from xla_backend import Backend, GenerationOptions
        >>> backend = Backend()
        >>> first = backend.generate("gpt2-stories", "Once upon a time")
        >>> again = backend.generate("gpt2-stories", "One day")
        >>> first.cache.value, again.cache.value
        ('miss', 'hit')
    """

    def __init__(
        self,
        registry: Registry | None = None,
        rules: BucketRules = BucketRules(),  # noqa: B008 (immutable)
        on_status: Callable[[EngineStatus], None] | None = None,
        store: Path | str | None = None,
        on_change: Callable[[], None] | None = None,
        kv_bytes: int = DEFAULT_KV_BYTES,
        prefix_store_bytes: int = 0,
        prefixes_before: Collection[str] = (),
    ) -> None:
        """A model is loaded at its first request.

        Args:
            registry: the models that may be loaded; None for the default ones.
            rules: how lengths are rounded up.
            on_status: called with every new status, from the engine's thread.
            store: folder that keeps compiled functions; None for the environment variable
                `XLA_BACKEND_STORE` or else the user's cache directory, "off" for none.
            on_change: called when work in the background begins or ends.
            kv_bytes: memory for the keys and values of all pools, at most; more where one row needs
                more, or rows of several models run at once.
            prefix_store_bytes: disk space for cached prefixes in the store's folder, at most; 0
                saves none.
            prefixes_before: what `prefixes` of an earlier engine returned, to explain what is not
                cached any more.
        """
        self._store = opened = open_store(store)
        self._rules = rules
        registry = Registry() if registry is None else registry
        self._loop = Loop(on_status, on_change)
        self._cache: FunctionCache[KeyFunctions] = FunctionCache()
        self._history = History(
            opened, kinds.all_of(registry.weights, registry.activations, registry.kernels)
        )
        self._models = LoadedModels(registry, rules, opened, self._loop, kv_bytes)
        self._maker = FunctionMaker(self._cache, self._history, self._loop)
        self._functions = FunctionResolver(rules, opened, self._cache, self._history, self._maker)
        prefixes = None
        if opened is not None and prefix_store_bytes:
            prefixes = PrefixStore(opened.root / "prefixes", prefix_store_bytes)
        self._pools = Pools(self._cache, self._maker, kv_bytes, prefixes, prefixes_before)
        self._example_functions = ExampleFunctions()

    @property
    def status(self) -> EngineStatus:
        return self._loop.status

    def models(self) -> list[ModelInfo]:
        return self._models.infos()

    def load(self, model: str) -> ModelInfo:
        return self._models.get(model).info

    def submit(
        self, request: TextRequest | Prepared, stream: TextStream | None = None
    ) -> TextStream:
        """Queues a request and returns the stream of its text.

        Args:
            request: the request; prepared here if it is not and its model is loaded, else once its
                model is loaded.
            stream: receives the text; None for a new one. It says whether the request may start.
        """
        if isinstance(request, TextRequest):
            request = self._models.prepared(request)
        stream = Stream() if stream is None else stream
        self._loop.submit(
            Text(request, stream, self._models, self._functions, self._pools, self._loop)
        )
        return stream

    def submit_speech(
        self, request: SpeechRequest, stream: WindowStream | None = None
    ) -> WindowStream:
        """As `submit`, for a recording."""
        stream = Stream() if stream is None else stream
        self._loop.submit(SpeechToText(request, stream, self._models, self._functions, self._loop))
        return stream

    def reserve(self, stream: TextStream) -> TextStream:
        """Keeps the background from working until the stream is stopped; see `SharedBackend`."""
        self._loop.submit(Reservation(stream, self._loop.background.rested))
        return stream

    def prepare(self, request: TextRequest) -> Prepared:
        """See `AnyBackend`; loads the model if need be."""
        return self._models.vocabulary(request.model).prepare(request, self._rules)

    def predict_text(self, request: TextRequest | Prepared) -> Prediction:
        """See `AnyBackend`; loads the model if need be."""
        prepared = request if isinstance(request, Prepared) else self.prepare(request)
        return self._models.vocabulary(request.model).predict_text(prepared, self._known())

    def predict_speech(self, model: str, options: GenerationOptions | None = None) -> Prediction:
        """See `AnyBackend`; loads the model if need be."""
        return self._models.vocabulary(model).predict_speech(self._rules, options, self._known())

    def _known(self) -> Known:
        return Known(self.cached_functions(), self.past(), self.prefixes(), self._store)

    def compare(self, request: FunctionRequest, arrived: float | None = None) -> FunctionComparison:
        """See `AnyBackend`; `arrived` as for `Stream`."""
        started = time.perf_counter() if arrived is None else arrived

        def compare() -> FunctionComparison:
            queue_s = max(0.0, time.perf_counter() - started)
            detail = f"{request.example.title}, batch of {request.batch_size}"
            self._loop.set_status(EngineStatus("measuring", detail))
            comparison = self._example_functions.compare(request)
            return dataclasses.replace(comparison, queue_s=queue_s)

        with self._loop.background.request():
            return self._loop.call(compare)

    def stored_keys(self) -> list[StoredKey]:
        return list(self._example_functions.stored())

    def key_for(self, model: str, prompt_tokens: int, options: GenerationOptions) -> CacheKey:
        """The exact key of a request with padded sizes; loads the model if need be.

        Args:
            model: as for `generate`.
            prompt_tokens: length of the prompt; ignored for speech models.
            options: number of beams and of new tokens (a speech model's limit applies).

        Raises:
            ModelUnavailable: as for `generate`.
        """
        engine = self._models.get(model)
        if engine.speech is not None:
            options = fitting_options(options, engine.speech, engine.context_length)
            return self._functions.speech_key(engine, options)
        return self._rules.key_for(
            prompt_tokens, options.num_beams, options.max_new_tokens, engine.info.context_length
        )

    def pool_key(self, model: str) -> CacheKey | None:
        """The key of a model's pool, None if it has none; loads the model if need be.

        Raises:
            ModelUnavailable: as for `generate`.
        """
        engine = self._models.get(model)
        context = engine.info.context_length
        return None if context is None or not engine.has_pool else pool_key(context)

    def warm(
        self,
        model: str,
        keys: Iterable[CacheKey],
        on_progress: Callable[[CacheKey, CacheOutcome, float], None] | None = None,
        rows: int = 1,
    ) -> None:
        """Compiles or restores keys now, one after the other.

        Args:
            model: as for `generate`.
            keys: those in memory cost nothing.
            on_progress: called after each with the key, its outcome, and the seconds it took.
            rows: number of rows, for a pool's key.

        Raises:
            ModelUnavailable: as for `generate`.
        """
        engine = self._models.get(model)
        for key in keys:
            start = time.perf_counter()
            slot, outcome = self._maker.now(engine, key, rows=rows).result()
            if outcome is not CacheOutcome.HIT:
                engine.functions.warm_up(slot.built.function, key)
            if on_progress is not None:
                on_progress(key, outcome, time.perf_counter() - start)
        self._history.save()

    def prefetch(self, model: str, keys: Iterable[CacheKey]) -> None:
        if self._models.find(model) is not None:
            self._loop.background.resume()
            self._make_later(model, keys)

    def _make_later(self, model: str, keys: Iterable[CacheKey]) -> None:
        """Queues keys to be compiled in the background, a pool's for all numbers of rows."""
        engine = self._models.get(model)
        for key in keys:
            is_pool = key.is_pooled and not key.prompt_lookup_num_tokens
            for rows in WARM_ROW_COUNTS if is_pool else (1,):
                self._maker.later(engine, key, rows)

    def warm_up(self, model: str, options: GenerationOptions = DEFAULT_OPTIONS) -> None:
        """Compiles in the background the keys of a short prompt, of the pool, and the most used.

        Args:
            model: must be loaded.
            options: of the short prompt; ignored for speech models.
        """
        if (engine := self._models.find(model)) is None:
            return
        if engine.speech is not None:
            options = fitting_options(None, engine.speech, engine.context_length)
        prompt_tokens = 1
        if engine.info.is_instruct:  # the chat template adds many tokens
            prompt_tokens = len(engine.tokenizer.encode(question("?"))) + SHORT_QUESTION
        # What the page asks for at its first click comes first.
        first = filter(None, [self.key_for(model, prompt_tokens, options), self.pool_key(model)])
        used = self._history.most_used(model)[:START_KEYS]
        self._make_later(model, dict.fromkeys([*first, *used]))

    def prefetching(self) -> list[tuple[str, CacheKey]]:
        names = cast("list[tuple[str, CacheKey, int]]", self._loop.background.pending())
        return list(dict.fromkeys((model, key) for model, key, _ in names))

    def cancel_prefetch(self) -> None:
        self._loop.background.cancel()

    def pause_warm_up(self) -> None:
        """Compiles in the background only what a busy engine needs, until the next `prefetch`."""
        self._loop.background.pause()

    def past(self) -> Past:
        return self._history.past()

    def cached_functions(self) -> list[CacheEntry]:
        return self._cache.cached_functions()

    def kv_memory(self) -> KVMemoryUse:
        """Memory of keys and values, over all pools."""
        return self._pools.use()

    def prefixes(self) -> frozenset[str]:
        """The names of all cached blocks; see `prediction.prefixes`."""
        return self._pools.prefixes()

    def close(self) -> None:
        """Ends the engine. What XLA compiled stays in memory until the process ends."""
        self._history.save()
        self._loop.close()
        self._pools.close()  # first: waiting for the compiler may take too long
        self._loop.background.stop()
        self._maker.close()
        self._models.clear()
        self._loop.set_status(EngineStatus("stopped"))
