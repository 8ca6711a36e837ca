"""Baselines: one request answered by several methods, each measured in a fresh process.

Knows which baselines there are, and how to follow a baseline's process. Must not import TensorFlow,
nor know how one is measured: that is `baseline_process`, which runs inside the process.

First calls run one after the other, so that none disturbs another, each in a fresh process.
Importing TensorFlow and loading the model are counted separately. The processes stay: later calls
alternate (A B C D A B C D ...), so that a slow moment affects all of them.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from xla_backend.baselines import overlay
from xla_backend.baselines.overlay import BaselineMissing
from xla_backend.checkpoints.architectures.table import DECODERS
from xla_backend.checkpoints.models import Registry, folder_info
from xla_backend.child_process import calling
from xla_backend.child_process.parent_side import CLOSE_S, ChildProcess, search_path
from xla_backend.compilation.startup import ENVIRONMENT
from xla_backend.interface.errors import EngineStopped, InvalidRequest, ModelUnavailable
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.results import CacheOutcome
from xla_backend.interface.timing import MIN_FOR_QUARTILES, Spread, spread

CACHED_CALLS = MIN_FOR_QUARTILES
MAX_CACHED_CALLS = 50
CALLS_BUDGET_S = 40.0
"""Bound on the time of a baseline's repeated calls after the first of them: a slow baseline needs
no more precision."""
SETTLE_S = 0.2
"""Seconds before each round of repeated calls, in which a browser on this machine may draw."""
TICK_S = 0.5
"""Seconds between reports of progress."""

MODULE = "xla_backend.baselines.baseline_process"
WRITES_MISTRAL = "xla_backend.baselines.mistral_folder:write"

Stage = Literal["importing", "loading", "tracing", "compiling", "running", "cached"]


class Baseline(str, Enum):
    """One method to answer a request."""

    EAGER = "eager"
    """Transformers' `model.generate`."""
    GUIDE = "guide"
    """Transformers' `tf.function(model.generate, jit_compile=True)`, prompts padded."""
    ENGINE = "engine"
    """This engine, with nothing in memory or on disk."""
    ENGINE_FROM_DISK = "engine_from_disk"
    """This engine, with nothing in memory, and with what the previous baseline saved on disk."""


OF_TRANSFORMERS = (Baseline.EAGER, Baseline.GUIDE)
"""Baselines that run Transformers' TensorFlow models, from the baseline overlay."""


@dataclass(frozen=True)
class BaselineJob:
    baseline: Baseline
    model: str
    prompt: str
    options: GenerationOptions
    registry: Registry
    store: str  # folder that keeps compiled functions; only for the engine's baselines
    started: float  # `time.perf_counter()` in the parent; processes of a machine share that clock


@dataclass(frozen=True)
class BaselineProgress:
    baseline: Baseline
    stage: Stage  # what it does; the last stage is the repeated calls
    baseline_s: float  # seconds since its start
    calls: int  # how many repeated calls are done


@dataclass(frozen=True)
class BaselineResult:
    """The measurements of a baseline, in seconds. A call is timed from text to text."""

    baseline: Baseline
    import_s: float  # importing TensorFlow and Transformers
    load_s: float  # building the model and reading its weights
    first_s: float  # the whole first call: tracing, compiling and running
    trace_s: float  # of it, TensorFlow recording the graph; for this engine from disk, restoring it
    # of it, XLA compiling (from disk: loading the code). For Transformers, which does not separate
    # compiling from running, the first call without tracing and without the median of the repeated
    # calls, once there are any.
    compile_s: float
    wall_s: float  # from starting the process to its first answer
    prompt_tokens: int
    padded_length: int  # computed prompt slots; for eager, the prompt's own tokens
    tokens: tuple[int, ...]  # ids of the new tokens, up to the end of the text
    text: str
    cache: CacheOutcome | None  # where this engine's functions came from; None for Transformers
    cached_s: tuple[float, ...] = ()  # each repeated call so far

    def with_call(self, seconds: float) -> BaselineResult:
        result = replace(self, cached_s=(*self.cached_s, seconds))
        if self.baseline is not Baseline.GUIDE:
            return result
        rest_s = self.first_s - self.trace_s - statistics.median(result.cached_s)
        return replace(result, compile_s=max(0.0, rest_s))

    @property
    def run_s(self) -> float:
        """The first call without tracing and compiling."""
        return max(0.0, self.first_s - self.trace_s - self.compile_s)

    @property
    def later(self) -> Spread | None:
        """The spread of the repeated calls; None before there is one."""
        return spread(self.cached_s)

    @property
    def tokens_per_second(self) -> float | None:
        """New tokens over the median of the repeated calls."""
        return len(self.tokens) / self.later.median_s if self.later else None

    def to_json(self) -> dict[str, Any]:
        """JSON values: all measurements and values derived from them."""
        values = asdict(self)
        return {
            "lane": values.pop("baseline").value,  # the name that callers of the endpoint know
            **values,
            "median_s": self.later and self.later.median_s,
            "spread_s": self.later and [self.later.low_s, self.later.high_s],
            "tokens_per_second": self.tokens_per_second,
            "cache": None if self.cache is None else self.cache.value,
        }


def calls_left(made_s: Sequence[float], requested: int) -> bool:
    """Whether a baseline, of whose repeated calls these are the times, makes another one."""
    made = len(made_s)
    return not made or (made < requested and sum(made_s) * (made + 1) / made <= CALLS_BUDGET_S)


class BaselineComparison:
    """One request through several baselines: an iterator of `BaselineProgress`.

    Attributes:
        results: of each baseline, from its first call on.
        failures: one sentence for each baseline that failed.
        is_over: whether all measurements are done. stopped: whether it was stopped.

    Example:
        >>> comparison = BaselineComparison("gpt2-stories", "Once upon a time")
        >>> for progress in comparison:
        ...     print(progress.baseline.value, progress.stage)
        >>> comparison.results[Baseline.ENGINE].first_s < comparison.results[Baseline.GUIDE].first_s
        True
    """

    def __init__(
        self,
        model: str,
        prompt: str,
        options: GenerationOptions = GenerationOptions(),  # noqa: B008 (immutable)
        *,
        baselines: Sequence[Baseline] = tuple(Baseline),
        cached_calls: float = CACHED_CALLS,
        registry: Registry | None = None,
    ) -> None:
        """Iterating runs it.

        Args:
            options: without sampling, whose random numbers differ in Transformers.
            baselines: in the order in which they run. `ENGINE_FROM_DISK` needs `ENGINE` before it.
            cached_calls: how many times each baseline repeats the request after its first call,
                within `CALLS_BUDGET_S`.
            registry: the models that may be loaded; None for the default ones.

        Raises:
            InvalidRequest: the options sample or are not Transformers', or there are too few or too
                many repeated calls.
        """
        if options.do_sample:
            raise InvalidRequest(
                "Methods are compared token for token, and Transformers has other random numbers: "
                "set temperature to 0."
            )
        others = (
            *("presence_penalty", "frequency_penalty", "logit_bias", "stop", "stop_token_ids"),
            *("min_new_tokens", "ignore_eos", "grammar"),
        )
        if found := [name for name in others if getattr(options, name)]:
            raise InvalidRequest(
                "Methods are compared token for token, and Transformers' TensorFlow models have no "
                f"{', '.join(found)}: leave them out."
            )
        if isinstance(cached_calls, float) and cached_calls.is_integer():
            cached_calls = int(cached_calls)  # as JSON and sliders send whole numbers
        if not isinstance(cached_calls, int) or not 1 <= cached_calls <= MAX_CACHED_CALLS:
            raise InvalidRequest(
                f"cached_calls must be a whole number from 1 to {MAX_CACHED_CALLS}, not "
                f"{str(cached_calls)[:40]}."
            )
        self.model = model
        self.prompt = prompt
        self.options = options
        self.baselines = tuple(baselines)
        self.cached_calls = cached_calls
        self.results: dict[Baseline, BaselineResult] = {}
        self.failures: dict[Baseline, str] = {}
        self.is_over = False
        self._registry = Registry() if registry is None else registry
        self._lock = threading.Lock()
        self._processes: dict[Baseline, ChildProcess] = {}
        self.stopped = False
        self._since = time.perf_counter()

    @property
    def identical(self) -> bool | None:
        """Whether all baselines wrote the same tokens; None before two have."""
        texts = {result.tokens for result in self.results.values()}
        return len(texts) == 1 if len(self.results) > 1 else None

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "options": self.options.to_dict(),
            "cached_calls": self.cached_calls,
            "identical": self.identical,
            "lanes": {each.value: result.to_json() for each, result in self.results.items()},
            "failures": {each.value: sentence for each, sentence in self.failures.items()},
        }

    def stop(self) -> None:
        """Ends all processes, from any thread; finished measurements stay."""
        with self._lock:
            self.stopped = True
            for process in self._processes.values():
                process.kill()

    def __iter__(self) -> Iterator[BaselineProgress]:
        """Runs the baselines; yields progress every `TICK_S` seconds and at every step.

        Raises:
            InvalidRequest, ModelUnavailable: the request cannot be served in any baseline.
        """
        with tempfile.TemporaryDirectory(prefix="xla-backend-baselines-") as folder:
            try:
                for baseline in self.baselines:
                    yield from self._noted(baseline, self._first_call(baseline, folder))
                yield from self._rounds()
            finally:
                self.is_over = True
                self._end_processes()  # also if the iterator is dropped

    def _noted(
        self, baseline: Baseline, work: Iterator[BaselineProgress]
    ) -> Iterator[BaselineProgress]:
        """A baseline's work; if it fails, the others go on."""
        try:
            yield from work
        except (BaselineMissing, EngineStopped) as error:
            if not self.stopped:
                self.failures[baseline] = str(error)

    def _first_call(self, baseline: Baseline, folder: str) -> Iterator[BaselineProgress]:
        request = self.model, self.prompt, self.options, self._registry
        job = BaselineJob(baseline, *request, str(Path(folder, "store")), time.perf_counter())
        variables = variables_for(baseline)
        try:
            if baseline in OF_TRANSFORMERS and self._is_rotary():
                mistral = Path(folder, "mistral")
                job = replace(job, model=str(mistral), registry=Registry(hub_models=()))
                if not mistral.exists():
                    written = self.model, self._registry, mistral
                    self._start(baseline, lambda: calling.started(WRITES_MISTRAL, *written))
                    yield from self._answer(baseline, "importing")
                    with self._lock:
                        self._processes.pop(baseline).end(CLOSE_S)
            self._start(baseline, lambda: ChildProcess(MODULE, job, variables))
            self.results[baseline] = yield from self._answer(baseline, "importing")
        except ModelUnavailable as error:
            if job.model == self.model:  # the request itself cannot be served
                raise
            self.failures[baseline] = str(error)

    def _rounds(self) -> Iterator[BaselineProgress]:
        """Alternating repeated calls, until each baseline has made all or used up its time."""
        for number in range(self.cached_calls):
            now = time.perf_counter()
            if due := [each for each in self.results if self._is_due(each)]:
                yield BaselineProgress(due[0], "cached", now - self._since, number)
                time.sleep(SETTLE_S)
            for baseline in due:
                yield from self._noted(baseline, self._repeat(baseline, number))

    def _is_due(self, baseline: Baseline) -> bool:
        is_left = calls_left(self.results[baseline].cached_s, self.cached_calls)
        return is_left and baseline not in self.failures and not self.stopped

    def _repeat(self, baseline: Baseline, calls: int) -> Iterator[BaselineProgress]:
        self._processes[baseline].send("call", None)
        seconds = yield from self._answer(baseline, "cached", calls)
        self.results[baseline] = self.results[baseline].with_call(seconds)

    def _is_rotary(self) -> bool:
        listed = {info.name: info for info in self._registry.list()}
        info = listed.get(self.model) or folder_info(self.model)
        return info.model_type in DECODERS

    def _start(self, baseline: Baseline, start: Callable[[], ChildProcess]) -> None:
        with self._lock:
            if self.stopped:
                raise EngineStopped("It was stopped.")
            self._processes[baseline] = start()
        self._since = time.perf_counter()

    def _answer(
        self, baseline: Baseline, stage: Stage, calls: int = 0
    ) -> Generator[BaselineProgress, None, Any]:
        """The next answer of a baseline's process; yields progress meanwhile."""
        process = self._processes[baseline]
        while True:
            try:
                kind, _, value = process.receive(TICK_S)
            except TimeoutError:
                pass
            except (EOFError, OSError):
                process.end(CLOSE_S)
                raise EngineStopped(_describe_end(process)) from None
            else:
                if kind == "error":
                    raise value
                if kind == "result":
                    return value
                stage = value
            yield BaselineProgress(baseline, stage, time.perf_counter() - self._since, calls)

    def _end_processes(self) -> None:
        with self._lock:
            for process in self._processes.values():
                process.end()
            self._processes.clear()


def variables_for(baseline: Baseline) -> dict[str, str]:
    """Environment variables of a baseline's process: the overlay's if needed.

    Raises:
        BaselineMissing: the baseline needs the overlay, which is not installed.
    """
    return overlay.environment(search_path()) if baseline in OF_TRANSFORMERS else ENVIRONMENT


def _describe_end(process: ChildProcess) -> str:
    last_line = process.last_lines[-1] if process.has_exited() and process.last_lines else ""
    return f"It stopped: {process.cause()}" + (f" ({last_line[:300]})." if last_line else ".")
