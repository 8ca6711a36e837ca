"""`Backend`: prompts in, text and truthful timings out. The one class that library users meet.

Knows the parts that an engine is made of, and which of them answers what. Must not know how they do
it, nor who asks: no page, no process, no command line.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from xla_backend.backend.example_functions import ExampleFunctions
from xla_backend.backend.function_maker import FunctionMaker
from xla_backend.backend.kept_functions import KeptFunctions
from xla_backend.backend.loaded_models import LoadedModels
from xla_backend.backend.prefix_cache import DEFAULT_BYTES, PrefixCache
from xla_backend.backend.text_runs import TextRuns
from xla_backend.backend.text_stream import TextStream
from xla_backend.backend.transcription import WindowStream
from xla_backend.backend.warm_up import WarmUp
from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.prompts import encode_prompt
from xla_backend.checkpoints.speech_input import fitting_options, works_on_text
from xla_backend.compilation.function_cache import FunctionCache
from xla_backend.compilation.store import open_store
from xla_backend.interface.backend import AnyBackend
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.function_comparison import (
    DEFAULT_CALLS,
    FunctionComparison,
    FunctionRequest,
    StoredKey,
)
from xla_backend.interface.options import (
    DEFAULT_MAX_SECONDS,
    DEFAULT_OPTIONS,
    AudioInput,
    GenerationOptions,
)
from xla_backend.interface.prompt import Prompt, question
from xla_backend.interface.results import (
    CacheEntry,
    CacheOutcome,
    EngineStatus,
    GenerationResult,
    ModelInfo,
    Past,
    Prediction,
    PrefixCacheUse,
    Transcription,
)
from xla_backend.scheduling.batch import BATCH_SIZES
from xla_backend.scheduling.engine_access import READY, EngineAccess
from xla_backend.scheduling.history import History

if TYPE_CHECKING:
    from xla_backend.model.functions import KeyFunctions

SHORT_QUESTION = 16
"""Tokens of a question that the functions made ready at the start can answer."""


class Backend(AnyBackend):
    """Generates text through compiled functions that it keeps.

    Thread-safe: requests wait for each other in `Timing.queue_s`, in the order of their arrival.
    Those that wait when a function is about to run and that it can serve run on it side by side.

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
        batch_sizes: Collection[int] = BATCH_SIZES,
        prefix_cache_bytes: int = DEFAULT_BYTES,
    ) -> None:
        """Starts empty: a model is loaded when it is first asked for.

        Args:
            registry: the models that may be loaded; None for the default ones.
            rules: how lengths are rounded up.
            on_status: called with every new status, from the thread that works.
            store: folder that keeps compiled functions; None for the environment variable
                `XLA_BACKEND_STORE` or else the user's cache directory, "off" for none.
            on_change: called when work in the background begins or ends.
            batch_sizes: how many requests functions are compiled for, 1 among them; (1,) runs
                every request alone.
            prefix_cache_bytes: the most that the keys and values of ended requests with a
                `cache_salt` may hold; 0 keeps none.
        """
        opened = open_store(store)
        registry = Registry() if registry is None else registry
        self._access = EngineAccess(on_status, on_change)
        self._cache: FunctionCache[KeyFunctions] = FunctionCache()
        self._history = History(opened, registry.weights)
        self._models = LoadedModels(registry, opened, self._access)
        maker = FunctionMaker(self._cache, self._history, self._access)
        self._functions = KeptFunctions(rules, opened, self._cache, self._history, maker)
        self._warm_up = WarmUp(maker, self._history, self._access)
        self._prefixes = PrefixCache(prefix_cache_bytes)
        self._runs = TextRuns(
            self._cache, self._functions, maker, self._access, self._prefixes, batch_sizes
        )
        self._example_functions = ExampleFunctions()

    @property
    def status(self) -> EngineStatus:
        return self._access.status

    def models(self) -> list[ModelInfo]:
        return self._models.infos()

    def load(self, model: str) -> ModelInfo:
        return self._models.get(model).info

    def generate(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        cache_salt: str = "",
        arrival_time: float | None = None,
    ) -> GenerationResult:
        """See `AnyBackend`.

        Args:
            arrival_time: when the request arrived, as `time.perf_counter()` of this machine; the
                time since then counts as queue.
        """
        stream = self.stream(
            model,
            prompt,
            options,
            exact_key=exact_key,
            cache_salt=cache_salt,
            arrival_time=arrival_time,
            in_chunks=False,
        )
        for _ in stream:
            pass
        assert stream.result is not None
        return stream.result

    def stream(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        cache_salt: str = "",
        arrival_time: float | None = None,
        in_chunks: bool = True,
        should_start: Callable[[], bool] = lambda: True,
    ) -> TextStream:
        """See `AnyBackend`. Nothing runs before the first chunk is asked for.

        Args:
            arrival_time: as for `generate`.
            in_chunks: False for the whole text as one chunk, which takes a little less time.
            should_start: asked once, when the request's turn has come; where it says no, nothing
                runs and `result` stays None.
        """
        return TextStream(
            self._models,
            self._functions,
            self._runs,
            self._access,
            model,
            prompt,
            options,
            exact_key,
            cache_salt,
            arrival_time,
            in_chunks,
            should_start,
        )

    def transcribe(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        *,
        language: str | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
        arrival_time: float | None = None,
    ) -> Transcription:
        """See `AnyBackend`; `arrival_time` as for `generate`."""
        stream = self.transcribe_windows(
            model,
            recording,
            options,
            language=language,
            max_seconds=max_seconds,
            arrival_time=arrival_time,
        )
        for _ in stream:
            pass
        assert stream.result is not None
        return stream.result

    def transcribe_windows(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        *,
        language: str | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
        arrival_time: float | None = None,
    ) -> WindowStream:
        """See `AnyBackend`. Nothing runs before the first window is asked for."""
        return WindowStream(
            self._models,
            self._functions,
            self._access,
            model,
            recording,
            options,
            language,
            max_seconds,
            arrival_time,
        )

    def predict(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        cache_salt: str = "",
    ) -> Prediction:
        """See `AnyBackend`; loads the model if need be."""
        engine = self._models.get(model)
        ids = encode_prompt(engine.tokenizer, prompt, options.max_new_tokens, engine.info)
        return self._functions.predict(engine, len(ids), options, exact_key, cache_salt)

    def predict_speech(self, model: str, options: GenerationOptions | None = None) -> Prediction:
        """See `AnyBackend`; loads the model if need be."""
        engine = self._models.get(model)
        if engine.speech is None:
            raise works_on_text(engine.info.name)
        options = fitting_options(options, engine.speech, engine.context_length)
        return self._functions.predict(engine, engine.speech.frames, options, exact_key=False)

    def compare_function(
        self,
        function: str,
        batch_size: int,
        *,
        pad: bool = False,
        calls: int = DEFAULT_CALLS,
        arrival_time: float | None = None,
    ) -> FunctionComparison:
        """See `AnyBackend`; `arrival_time` as for `generate`."""
        started = time.perf_counter() if arrival_time is None else arrival_time
        request = FunctionRequest(function, batch_size, pad, calls)
        with self._access.background.request(), self._access.turn(lambda phase: None):
            queue_s = max(0.0, time.perf_counter() - started)
            detail = f"{request.example.title}, batch of {request.batch_size}"
            self._access.tell(EngineStatus("measuring", detail))
            comparison = self._example_functions.compare(request)
            self._access.tell(READY)
        return dataclasses.replace(comparison, queue_s=queue_s)

    def stored_keys(self) -> list[StoredKey]:
        return list(self._example_functions.kept())

    def clear_functions(self) -> None:
        with self._access.scheduler.acquire():
            self._example_functions.clear()

    def key_for(self, model: str, prompt_tokens: int, options: GenerationOptions) -> CacheKey:
        """The key that fits a request best; loads the model if need be.

        Args:
            model: as for `generate`.
            prompt_tokens: how long the prompt is; a speech model's windows are all as long.
            options: how many beams, and new tokens (of a speech model, at most what it can write).

        Raises:
            ModelUnavailable: as for `generate`.
        """
        engine = self._models.get(model)
        if engine.speech is not None:
            options = fitting_options(options, engine.speech, engine.context_length)
        return self._functions.key(engine, prompt_tokens, options)

    def warm(
        self,
        model: str,
        keys: Iterable[CacheKey],
        on_progress: Callable[[CacheKey, CacheOutcome, float], None] | None = None,
        batch_size: int = 1,
    ) -> None:
        """Makes keys ready now, one after the other.

        Args:
            model: as for `generate`.
            keys: which; those that are in memory cost nothing.
            on_progress: told after each: the key, where it came from, and the seconds it took.
            batch_size: how many requests the functions shall serve at once.

        Raises:
            ModelUnavailable: as for `generate`.
        """
        self._warm_up.now(self._models.get(model), keys, on_progress, batch_size)

    def prefetch(self, model: str, keys: Iterable[CacheKey]) -> None:
        if (engine := self._models.find(model)) is not None:
            self._warm_up.soon(engine, keys)

    def warm_up(self, model: str, options: GenerationOptions = DEFAULT_OPTIONS) -> None:
        """Makes keys ready in idle moments: a short prompt's, then those that were used most.

        Args:
            model: must be loaded.
            options: of the short prompt; speech models have only one length.
        """
        if (engine := self._models.find(model)) is not None:
            if engine.speech is not None:
                options = fitting_options(None, engine.speech, engine.context_length)
            prompt_tokens = 1
            if engine.info.is_instruct:  # its template is longer than many a question
                prompt_tokens = len(engine.tokenizer.encode(question("?"))) + SHORT_QUESTION
            self._warm_up.at_start(engine, self._functions.key(engine, prompt_tokens, options))

    def prefetching(self) -> list[tuple[str, CacheKey]]:
        return self._warm_up.pending()

    def cancel_prefetch(self) -> None:
        self._warm_up.cancel()

    def past(self) -> Past:
        return self._history.past()

    def cached_functions(self) -> list[CacheEntry]:
        return self._cache.cached_functions()

    def prefix_cache(self) -> PrefixCacheUse:
        """What is kept of earlier prompts and answers."""
        return self._prefixes.use

    def close(self) -> None:
        """Lets go of the models. What XLA compiled stays in memory until the process ends."""
        self._history.save()
        self._access.background.stop()
        with self._access.scheduler.acquire():
            self._models.clear()
            self._prefixes.clear()
            self._access.tell(EngineStatus("stopped"))
