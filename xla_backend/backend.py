"""`Backend`: prompts in, text and truthful timings out. The one class that library users meet.

Knows requests: which model and key they need, in which order they run, and what each phase took.
Must not know TensorFlow's details (`engine`) nor who asks: no page, no process, no command line.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from xla_backend.audio import DEFAULT_MAX_SECONDS, AudioInput
from xla_backend.buckets import BucketRules, CacheKey
from xla_backend.startup import prepare_environment

prepare_environment()  # before TensorFlow is imported, by this module or another

from xla_backend import naming, prediction  # noqa: E402
from xla_backend.background import Background  # noqa: E402
from xla_backend.batch import BATCH_SIZES, Batch, Seat, fitting  # noqa: E402
from xla_backend.compiler import Compiler  # noqa: E402
from xla_backend.engine import Engine, KeyFunctions  # noqa: E402
from xla_backend.function_cache import Built, FunctionCache, Slot  # noqa: E402
from xla_backend.function_comparison import (  # noqa: E402
    DEFAULT_CALLS,
    FunctionComparison,
    FunctionRequest,
    KeptShape,
)
from xla_backend.guide_functions import GuideFunctions  # noqa: E402
from xla_backend.history import History, Past  # noqa: E402
from xla_backend.models import Download, Registry  # noqa: E402
from xla_backend.options import GenerationOptions  # noqa: E402
from xla_backend.prompts import encode_prompt  # noqa: E402
from xla_backend.results import (  # noqa: E402
    CacheEntry,
    CacheOutcome,
    EngineStatus,
    GenerationResult,
    ModelInfo,
    Prediction,
    Transcription,
)
from xla_backend.store import open_store  # noqa: E402
from xla_backend.timing import Stopwatch, Timing  # noqa: E402
from xla_backend.tokenization import IncrementalDecoder  # noqa: E402
from xla_backend.transcription import (  # noqa: E402
    WindowStream,
    fitting_options,
    speech_key,
    works_on_text,
)
from xla_backend.turns import Place, Turns  # noqa: E402

DEFAULT_OPTIONS = GenerationOptions()

WARM_UP_KEYS = 8
"""How many of the most used keys a start makes ready."""

BATCH_PATIENCE_S = 3.0
"""After so long without an idle moment, functions for several requests are made beside them: an
engine that is never idle is the one that needs them."""


class Backend:
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
        """
        self._registry = Registry() if registry is None else registry
        self._rules = rules
        self._on_status = on_status
        self._status = EngineStatus("ready", since=time.perf_counter())
        self._batch_sizes = frozenset(batch_sizes)
        self._turns = Turns()
        self._generating: Batch | None = None  # whom the status is about
        self._engines: dict[str, Engine] = {}
        self._cache: FunctionCache[KeyFunctions] = FunctionCache()
        self._store = open_store(store)
        self._compiler = Compiler(self._store)
        self._history = History(self._store)
        self._background = Background(on_change)
        self._guide_functions = GuideFunctions()

    @property
    def status(self) -> EngineStatus:
        """What the engine is doing now."""
        return self._status

    def models(self) -> list[ModelInfo]:
        """Every model that can be chosen by name, and every folder that was loaded."""
        listed = {info.name: info for info in self._registry.list()}
        return list((listed | {name: e.info for name, e in self._engines.items()}).values())

    def load(self, model: str) -> ModelInfo:
        """Loads a model now instead of at its first use.

        Raises:
            ModelUnavailable: it is unknown, broken or out of reach.
        """
        return self._loaded(model).info

    def generate(
        self,
        model: str,
        prompt: str,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        received: float | None = None,
    ) -> GenerationResult:
        """Generates the whole text.

        Args:
            model: a name that `models` lists, or (where the registry allows it) a folder.
            prompt: the text to continue.
            options: how.
            exact_key: forbids that a larger compiled function, if there is one, serves instead of
                the one that fits best.
            received: when the request arrived, as `time.perf_counter()` of this machine; the time
                since then counts as queue.

        Raises:
            InvalidRequest: the prompt is empty, too long or not text.
            ModelUnavailable: the model cannot be loaded.
        """
        stream = TextStream(self, model, prompt, options, exact_key, received, is_chunked=False)
        for _ in stream:
            pass
        assert stream.result is not None
        return stream.result

    def stream(
        self,
        model: str,
        prompt: str,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
        received: float | None = None,
        in_pieces: bool = True,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> TextStream:
        """Generates text that can be read as it comes; arguments and errors as for `generate`.

        Nothing runs before the first piece is asked for. Beam search knows its text at the end
        only, so it comes as one piece.

        Args:
            in_pieces: False for the whole text as one piece, which takes a little less time.
            may_begin: asked once, when the request's turn has come; where it says no, nothing runs
                and `result` stays None.
        """
        return TextStream(
            self, model, prompt, options, exact_key, received, in_pieces, may_begin=may_begin
        )

    def transcribe(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None = None,
        *,
        language: str | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
        received: float | None = None,
    ) -> Transcription:
        """Writes down what is said in a recording.

        A recording that is longer than the model's window is cut into windows, which all run on
        one compiled function. Windows without any sound are not run.

        Args:
            model: as for `generate`, but a speech model.
            recording: a file's path, or (rate in Hz, samples) with samples shaped (n,) or
                (n, channels).
            options: how; `max_new_tokens` counts for each window, and for no more than the model
                has positions for. None for the likeliest text, of `options.WINDOW_TOKENS`.
            language: what is spoken ("en", "German"); None to let the model hear it, or for a model
                that knows one only.
            max_seconds: longer recordings are refused.
            received: as for `generate`.

        Raises:
            InvalidRequest: the recording cannot be read, is silent, too short or too long, or the
                model does not know the language.
            ModelUnavailable: the model cannot be loaded.
        """
        stream = self.transcribe_windows(
            model,
            recording,
            options,
            language=language,
            max_seconds=max_seconds,
            received=received,
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
        received: float | None = None,
    ) -> WindowStream:
        """Writes down a recording window by window; arguments and errors as for `transcribe`.

        Nothing runs before the first window is asked for.
        """
        return WindowStream(self, model, recording, options, language, max_seconds, received)

    def predict(
        self,
        model: str,
        prompt: str,
        options: GenerationOptions = DEFAULT_OPTIONS,
        *,
        exact_key: bool = False,
    ) -> Prediction:
        """What a request would meet if it were sent now; loads the model if need be.

        Raises:
            InvalidRequest, ModelUnavailable: as for `generate`.
        """
        engine = self._loaded(model)
        return self._predict(engine, len(_encode(engine, prompt, options)), options, exact_key)

    def predict_speech(self, model: str, options: GenerationOptions | None = None) -> Prediction:
        """What the first window of any recording would meet now; loads the model if need be.

        `prompt_tokens` of the answer are the frames of a whole window, `expected_s` is one
        window's.

        Args:
            model, options: as for `transcribe`.

        Raises:
            InvalidRequest: the model is none for speech.
            ModelUnavailable: as for `generate`.
        """
        engine = self._loaded(model)
        if engine.speech is None:
            raise works_on_text(engine.info.name)
        options = fitting_options(options, engine.speech, engine.context_length)
        return self._predict(engine, engine.speech.frames, options, exact_key=False)

    def _predict(
        self, engine: Engine, prompt_tokens: int, options: GenerationOptions, exact_key: bool
    ) -> Prediction:
        return prediction.predict(
            wanted=self._key(engine, prompt_tokens, options),
            prompt_tokens=prompt_tokens,
            entries=self._cache.entries(engine.info.name),
            past=self._history.past().get(engine.info.name, {}),
            is_stored=lambda key: self._is_stored(engine, key),
            exact_key=exact_key,
        )

    def compare_function(
        self,
        function: str,
        batch_size: int,
        *,
        pad: bool = False,
        calls: int = DEFAULT_CALLS,
        received: float | None = None,
    ) -> FunctionComparison:
        """Calls one of the guide's functions eagerly, as `tf.function` and compiled by XLA.

        Args:
            function, batch_size, pad, calls: see `FunctionRequest`.
            received: as for `generate`.

        Raises:
            InvalidRequest: there is no such function, or a number is out of range.
        """
        started = time.perf_counter() if received is None else received
        request = FunctionRequest(function, batch_size, pad, calls)
        with self._background.request(), self._turns.hold():
            queue_s = max(0.0, time.perf_counter() - started)
            detail = f"{request.example.title}, batch of {request.batch_size}"
            self._set_status("measuring", detail)
            try:
                comparison = self._guide_functions.compare(request)
            finally:
                self._set_status("ready")
        return dataclasses.replace(comparison, queue_s=queue_s)

    def kept_shapes(self) -> list[KeptShape]:
        """The shapes that `compare_function` has compiled for."""
        return list(self._guide_functions.kept())

    def forget_functions(self) -> None:
        """Has `compare_function` trace and compile everything again."""
        with self._turns.hold():
            self._guide_functions.forget()

    def key_for(self, model: str, prompt_tokens: int, options: GenerationOptions) -> CacheKey:
        """The key that fits a request best; loads the model if need be.

        Args:
            model: as for `generate`.
            prompt_tokens: how long the prompt is; a speech model's windows are all as long.
            options: how many beams, and new tokens (of a speech model, at most what it can write).

        Raises:
            ModelUnavailable: as for `generate`.
        """
        engine = self._loaded(model)
        if engine.speech is not None:
            options = fitting_options(options, engine.speech, engine.context_length)
        return self._key(engine, prompt_tokens, options)

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
        engine = self._loaded(model)
        for key in keys:
            with self._background.request(), self._turns.hold():
                start = time.perf_counter()
                slot, outcome = self._functions(engine, key, lambda phase: None, batch_size)
                if outcome is not CacheOutcome.HIT:
                    engine.rehearse(slot.built.function, key)
                self._set_status("ready")
            if on_progress is not None:
                on_progress(key, outcome, time.perf_counter() - start)
        self._history.save()

    def warm_soon(self, model: str, keys: Iterable[CacheKey]) -> None:
        """Makes keys ready in moments in which no request runs; the model must be loaded."""
        engine = self._engines.get(model)
        for key in keys if engine is not None else ():
            self._warm_later(engine, key)

    def warm_up(self, model: str, options: GenerationOptions = DEFAULT_OPTIONS) -> None:
        """Makes keys ready in idle moments: a short prompt's, then those that were used most.

        Args:
            model: must be loaded.
            options: of the short prompt; speech models have only one length.
        """
        engine = self._engines.get(model)
        if engine is None:
            return
        if engine.speech is not None:
            options = fitting_options(None, engine.speech, engine.context_length)
        default = self._key(engine, 1, options)
        used = self._history.most_used(engine.info.name)[:WARM_UP_KEYS]
        self.warm_soon(model, dict.fromkeys([default, *used]))

    def warming(self) -> list[tuple[str, CacheKey]]:
        """Models and keys that are being made ready in the background, and those that wait."""
        names: list[Any] = self._background.pending()
        return [(model, key) for model, key, _ in names]

    def cancel_warming(self) -> None:
        """Gives up what waits in the background; what XLA has begun it ends."""
        self._background.cancel()

    def past(self) -> Past:
        """What each model's keys were asked for and took, in earlier runs too."""
        return self._history.past()

    def entries(self) -> list[CacheEntry]:
        """The compiled functions in memory and what their calls took."""
        return self._cache.entries()

    def close(self) -> None:
        """Lets go of the models. What XLA compiled stays in memory until the process ends."""
        self._history.save()
        self._background.stop()
        with self._turns.hold():
            self._engines.clear()
            self._set_status("stopped")

    def _loaded(self, model: str) -> Engine:
        """The model, loaded in a turn of its own if need be."""
        if (engine := self._engines.get(model)) is not None:
            return engine
        with self._turns.hold():
            return self._engine(model)

    def _engine(self, model: str) -> Engine:
        """The loaded model; the caller holds the engine."""
        if model not in self._engines:
            self._set_status("loading", model)
            try:
                files = self._registry.locate(model, on_progress=self._tell_download)
                if self._status.state == "downloading":
                    self._set_status("loading", model)
                self._engines[model] = Engine(files, self._compiler)
            finally:
                self._set_status("ready")
        return self._engines[model]

    def _key(self, engine: Engine, prompt_tokens: int, options: GenerationOptions) -> CacheKey:
        if engine.speech is not None:
            return speech_key(self._rules, engine.speech, options)
        return self._rules.key_for(
            prompt_tokens, options.num_beams, options.max_new_tokens, engine.context_length
        )

    def _functions(
        self,
        engine: Engine,
        key: CacheKey,
        enter: Callable[[str], None],
        batch_size: int = 1,
    ) -> tuple[Slot[KeyFunctions], CacheOutcome]:
        """The functions of a key, made ready if need be; `enter` is told the phases."""

        def build() -> Built[KeyFunctions]:
            return engine.build(key, on_step, batch_size)

        def on_step(step: Literal["trace", "compile"]) -> None:
            enter(step)
            self._set_status("tracing" if step == "trace" else "compiling", str(key))

        # Waiting for another thread that makes the same key ready is waiting in a queue.
        enter("queue")
        return self._cache.get(engine.info.name, key, build, batch_size)

    def _choose(self, engine: Engine, wanted: CacheKey, exact_key: bool) -> prediction.Choice:
        """Which functions serve a request."""
        in_memory = self._cache.keys(engine.info.name)
        return prediction.choose(
            wanted, in_memory, lambda key: self._is_stored(engine, key), exact_key
        )

    def _serve(
        self,
        engine: Engine,
        wanted: CacheKey,
        exact_key: bool,
        enter: Callable[[str], None],
        batch_size: int = 1,
    ) -> tuple[Slot[KeyFunctions], prediction.Choice]:
        """The functions that serve a request, and which key's they are and where they came from."""
        choice = self._choose(engine, wanted, exact_key)
        slot, outcome = self._functions(engine, choice.key, enter, batch_size)
        if choice.outcome is CacheOutcome.REUSED:
            self._warm_later(engine, wanted)
            return slot, choice
        # What happened counts, not what was expected: an entry on disk may have been damaged.
        return slot, dataclasses.replace(choice, outcome=outcome)

    def _begin(self, seat: TextSeat) -> bool:
        """Runs a request's prompt, with those of others that its function can serve.

        Returns:
            Whether there is a first token; False if the seat was given up before.
        """
        seat.enter("queue")
        with self._turns.hold(seat, unless=seat.has_news) as is_held:
            if is_held and seat.batch is None and seat.begins():
                try:
                    self._run_together(seat)
                except BaseException:
                    self._set_status("ready")
                    raise
        if seat.batch is None or (seat.is_stopped and seat.batch.chunks == 0):
            return False
        seat.look()
        return True

    def _run_together(self, first: TextSeat) -> None:
        """Begins a run for a request that has its turn, and for others that wait."""
        engine = first.engine
        choice = self._choose(engine, first.wanted, first.exact_key)
        key, seats, batch_size = choice.key, [first], 1
        if choice.outcome in (CacheOutcome.HIT, CacheOutcome.REUSED):
            seats, batch_size = self._gather(key, [first, *self._alike(first, key)])
            seats = [seat for seat in seats if seat.begins()]
        for seat in seats:
            seat.slot, seat.choice = self._serve(
                engine, seat.wanted, seat.exact_key, seat.enter, batch_size
            )
        self._set_status("generating", str(key))
        self._generating = batch = Batch(self._turns, seats)
        batch.begin(
            lambda: engine.start(
                first.slot.built.function,
                key,
                [seat.prompt_ids for seat in seats],
                [seat.options for seat in seats],
            )
        )

    def _alike(self, first: TextSeat, key: CacheKey) -> list[TextSeat]:
        """The requests that wait and would be served by the same function, as they arrived."""
        return [
            seat
            for seat in self._turns.waiting()
            if isinstance(seat, TextSeat)
            and seat.batch is None
            and not seat.is_stopped
            and seat.engine is first.engine
            and self._choose(seat.engine, seat.wanted, seat.exact_key).key == key
        ]

    def _gather(self, key: CacheKey, seats: list[TextSeat]) -> tuple[list[TextSeat], int]:
        """Those who may run now, and on functions of which batch size.

        Nobody waits for a function to be made: one that would serve more of them is made in the
        background, for the next ones.
        """
        engine = seats[0].engine
        most = engine.most_side_by_side(key)
        possible = {size for size in self._batch_sizes if size <= most}
        wanted = fitting(len(seats), possible)
        ready = self._cache.batch_sizes(engine.info.name, key) & possible
        if wanted not in ready:
            self._warm_later(engine, key, wanted)
        size = fitting(len(seats), ready)
        return seats[:size], size

    def _leave(self, seat: TextSeat) -> None:
        """Ends a request's part in its batch, if it has one."""
        if (batch := seat.batch) is None:
            return
        batch.leave(seat)
        if self._generating is batch and not batch.goes_on:
            self._set_status("ready")

    def _is_stored(self, engine: Engine, key: CacheKey) -> bool:
        if self._store is None:
            return False
        in_memory = self._cache.keys(engine.info.name)
        return naming.is_stored(engine.identity, key, in_memory, self._store.holds)

    def _warm_later(self, engine: Engine, key: CacheKey, batch_size: int = 1) -> None:
        name = (engine.info.name, key, batch_size)
        job = partial(self._warm_in_background, engine, key, batch_size)
        self._background.add(name, job, math.inf if batch_size == 1 else BATCH_PATIENCE_S)

    def _warm_in_background(
        self,
        engine: Engine,
        key: CacheKey,
        batch_size: int,
        wait_until_idle: Callable[[], None],
    ) -> None:
        wait_until_idle()
        trace_s, is_restored = engine.trace(key, batch_size)
        wait_until_idle()

        def build() -> Built[KeyFunctions]:
            built = engine.build(key, lambda step: None, batch_size)
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
        engine.rehearse(slot.built.function, key)

    def _record(
        self,
        engine: Engine,
        slot: Slot[KeyFunctions],
        key: CacheKey,
        wanted: CacheKey,
        outcome: CacheOutcome,
        timing: Timing,
    ) -> None:
        name = engine.info.name
        self._cache.record(slot, timing.run_s)
        self._history.record_request(name, wanted)
        if slot.built.function.batch_size > 1:
            return  # the history is what predictions are made of: of requests alone
        self._history.record_run(name, key, timing.run_s)
        if outcome in (CacheOutcome.MISS, CacheOutcome.DISK):
            self._history.record_first_call(name, key, slot.first_call)

    @contextmanager
    def _turn(
        self,
        enter: Callable[[str], None],
        place: Place | None = None,
        unless: Callable[[], bool] = lambda: False,
    ) -> Iterator[bool]:
        """Waits for the other requests, in phase `queue`; see `Turns.hold`."""
        enter("queue")
        with self._turns.hold(place, unless) as is_held:
            try:
                yield is_held
            except BaseException:
                self._set_status("ready")
                raise

    def _tell_download(self, download: Download) -> None:
        before = self._status
        since = before.since if before.state == "downloading" else time.perf_counter()
        self._tell(EngineStatus("downloading", str(download), since, download.share))

    def _set_status(self, state: str, detail: str = "") -> None:
        self._tell(EngineStatus(state, detail, time.perf_counter()))  # type: ignore[arg-type]

    def _tell(self, status: EngineStatus) -> None:
        self._generating = None
        self._status = status
        if self._on_status is not None:
            self._on_status(self._status)


class TextSeat(Seat):
    """A request for a text, and what serves it.

    Attributes:
        options, exact_key: what is asked.
        engine: the model; None while that is still to be loaded.
        prompt_ids, wanted: what is asked of it; set with the engine.
        slot, choice: the functions that serve it; set when it begins.
    """

    engine: Engine | None = None
    prompt_ids: list[int]
    wanted: CacheKey
    options: GenerationOptions
    exact_key: bool
    slot: Slot[KeyFunctions]
    choice: prediction.Choice

    def __init__(self, turns: Turns, watch: Stopwatch, may_begin: Callable[[], bool]) -> None:
        """See `Seat` and `Backend.stream`."""
        super().__init__(turns, watch)
        self._may_begin = may_begin
        self._has_begun = False

    def begins(self) -> bool:
        """Whether it may begin, or has."""
        self._has_begun = self._has_begun or self._may_begin()
        if not self._has_begun:
            self.stop()
        return self._has_begun


class TextStream:
    """A text as it comes: an iterator of pieces, which join to `result.text`.

    `result` is None until the iterator has ended; after `stop` it holds what was written. It stays
    None where the stop came while the request waited for others, so that nothing was run.
    """

    def __init__(
        self,
        backend: Backend,
        model: str,
        prompt: str,
        options: GenerationOptions,
        exact_key: bool,
        received: float | None,
        is_chunked: bool,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        """Made by `Backend.generate` and `Backend.stream`."""
        self.result: GenerationResult | None = None
        self._backend = backend
        self._model = model
        self._prompt = prompt
        self._is_chunked = is_chunked
        self._watch = Stopwatch("queue", received)
        self._seat = TextSeat(backend._turns, self._watch, may_begin)
        self._seat.options, self._seat.exact_key = options, exact_key
        self._pieces = self._generate()

    @property
    def has_begun(self) -> bool:
        """Whether the engine has turned to it."""
        return self._seat.batch is not None

    def wait_begun(self) -> None:
        """Returns at once: it waits for the engine where its first piece is asked for."""

    def __iter__(self) -> TextStream:
        """Itself."""
        return self

    def __next__(self) -> str:
        """The next piece, never empty."""
        return next(self._pieces)

    def stop(self) -> None:
        """Ends the text after the chunk under way. May be called from any thread."""
        self._seat.stop()

    def close(self) -> None:
        """Gives up a text that nobody reads on; without it, that waits for garbage collection."""
        self._pieces.close()

    def _generate(self) -> Generator[str, None, None]:
        with self._backend._background.request():
            try:
                yield from self._generate_now()
            finally:  # also when nobody reads on
                self._backend._leave(self._seat)

    def _generate_now(self) -> Generator[str, None, None]:
        backend, seat, options = self._backend, self._seat, self._seat.options
        load_s = 0.0
        if (engine := backend._engines.get(self._model)) is None:
            with backend._turn(seat.enter, seat, lambda: seat.is_stopped) as is_held:
                if not (is_held and seat.begins()):
                    return
                seat.enter(None)
                loading = time.perf_counter()
                engine = backend._engine(self._model)
                load_s = time.perf_counter() - loading
        seat.enter("tokenize")
        seat.prompt_ids = _encode(engine, self._prompt, options)
        seat.wanted = backend._key(engine, len(seat.prompt_ids), options)
        seat.engine = engine
        if not backend._begin(seat):
            return

        batch, run = seat.batch, seat.batch.run
        decoder = IncrementalDecoder(engine.tokenizer)
        pieces: list[str] = []
        known = 0
        # Beams settle on their text at the end: pieces of it could not be taken back.
        is_piecewise = self._is_chunked and options.num_beams == 1
        while not batch.has_ended(seat) and not seat.is_stopped:
            if is_piecewise:
                seat.enter("detokenize")
                new_ids = run.chosen(seat.text).tokens.tolist()[known:]
                known += len(new_ids)
                if piece := decoder.push(new_ids):
                    pieces.append(piece)
                    seat.enter(None)
                    yield piece
            batch.more(seat, whole=None if self._is_chunked else options.max_new_tokens)
            seat.look()
        is_complete = batch.has_ended(seat)

        seat.enter("detokenize")
        backend._leave(seat)
        tokens = engine.tokens(run, seat.text)
        ids = [token.id for token in tokens]
        if rest := decoder.push(ids[known:]) + decoder.finish():
            pieces.append(rest)
        timing = self._watch.read()
        backend._record(
            engine, seat.slot, seat.choice.key, seat.wanted, seat.choice.outcome, timing
        )
        self.result = GenerationResult(
            model=self._model,
            text="".join(pieces),
            tokens=tokens,
            prompt_tokens=len(seat.prompt_ids),
            prompt_texts=tuple(map(engine.tokenizer.token_text, seat.prompt_ids)),
            key=seat.choice.key,
            requested_key=seat.wanted,
            cache=seat.choice.outcome,
            finish=_finish(is_complete, engine, ids),
            timing=timing,
            first_call=seat.slot.first_call,
            options=options,
            load_s=load_s,
            batch_size=batch.size,
        )
        if rest:
            yield rest


def _encode(engine: Engine, prompt: str, options: GenerationOptions) -> list[int]:
    return encode_prompt(engine.tokenizer, prompt, options.max_new_tokens, engine.info)


def _finish(
    is_complete: bool, engine: Engine, ids: list[int]
) -> Literal["eos", "length", "stopped"]:
    if not is_complete:
        return "stopped"
    return "eos" if ids and engine.is_eos(ids[-1]) else "length"
