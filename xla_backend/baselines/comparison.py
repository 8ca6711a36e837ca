"""Baselines: one request answered in several ways, each measured in a fresh process of its own.

Knows which baselines there are, and how a baseline's process is followed. Must not import
TensorFlow, nor know how one is measured: that is `baseline_process`, which runs inside the process.

Baselines run one after the other, so that none disturbs another, and a fresh process makes each
first call a true one. Importing TensorFlow and loading the model are counted apart.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from xla_backend.baselines import overlay
from xla_backend.baselines.overlay import BaselineMissing
from xla_backend.checkpoints import rotary_form
from xla_backend.checkpoints.models import Registry, folder_info
from xla_backend.child_process.parent_side import CLOSE_S, ChildProcess, search_path
from xla_backend.compilation import xla_folder
from xla_backend.compilation.startup import ENVIRONMENT
from xla_backend.interface.buckets import BucketRules
from xla_backend.interface.errors import EngineStopped, InvalidRequest, ModelUnavailable
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.results import CacheOutcome

CACHED_CALLS = 5
MAX_CACHED_CALLS = 50
TICK_S = 0.5
"""How often progress is told while nothing else happens."""

MODULE = "xla_backend.baselines.baseline_process"

Stage = Literal["importing", "loading", "tracing", "compiling", "running", "cached"]


class Baseline(str, Enum):
    """One way to answer a request, to be read beside the others."""

    EAGER = "eager"
    """Transformers' `model.generate`."""
    GUIDE = "guide"
    """Transformers' `tf.function(model.generate, jit_compile=True)`, prompts padded."""
    ENGINE = "engine"
    """This engine, with nothing in memory or on disk."""
    ENGINE_FROM_DISK = "engine_from_disk"
    """This engine, with nothing in memory, and on disk what the baseline before has left there."""


OF_TRANSFORMERS = (Baseline.EAGER, Baseline.GUIDE)
"""Baselines that run Transformers' TensorFlow models, which the baseline overlay has."""


@dataclass(frozen=True)
class BaselineJob:
    """What a baseline's process shall do.

    Attributes:
        cached_calls: how many times the request is repeated after its first call.
        store: folder that keeps compiled functions; counts for the engine's baselines only.
        started: `time.perf_counter()` in the parent; processes of a machine share that clock.
    """

    baseline: Baseline
    model: str
    prompt: str
    options: GenerationOptions
    cached_calls: int
    registry: Registry
    rules: BucketRules
    store: str
    started: float


@dataclass(frozen=True)
class MistralJob:
    """A model's files to be written as Mistral's, for the baselines of Transformers."""

    model: str
    registry: Registry
    folder: Path


@dataclass(frozen=True)
class BaselineProgress:
    """Where a baseline is.

    Attributes:
        stage: what it does. The last of them is the repeated calls.
        stage_s, baseline_s: seconds since the stage and the baseline began.
        calls: how many repeated calls are done.
    """

    baseline: Baseline
    stage: Stage
    stage_s: float
    baseline_s: float
    calls: int


@dataclass(frozen=True)
class BaselineResult:
    """What a baseline measured, in seconds. A call is timed from text to text.

    Attributes:
        import_s: importing TensorFlow and Transformers.
        load_s: building the model and reading its weights.
        first_s: the whole first call: tracing, compiling and running.
        trace_s: of it, TensorFlow recording the graph; for this engine from disk, restoring it.
        compile_s: of it, XLA compiling (from disk: loading the code). Transformers does not tell
            compiling from running: there, it is what is left of the first call without tracing and
            without the median of the repeated ones.
        cached_s: each repeated call.
        wall_s: from starting the process to its last answer.
        padded_length: prompt slots that were computed on; for eager, the prompt's own tokens.
        tokens: ids of the new tokens, up to the end of the text.
        cache: where this engine's functions came from; None for Transformers.
    """

    baseline: Baseline
    import_s: float
    load_s: float
    first_s: float
    trace_s: float
    compile_s: float
    cached_s: tuple[float, ...]
    wall_s: float
    prompt_tokens: int
    padded_length: int
    tokens: tuple[int, ...]
    text: str
    cache: CacheOutcome | None

    @property
    def run_s(self) -> float:
        """Of the first call, what was neither tracing nor compiling."""
        return max(0.0, self.first_s - self.trace_s - self.compile_s)

    @property
    def median_s(self) -> float:
        """The median of the repeated calls."""
        return statistics.median(self.cached_s)

    @property
    def tokens_per_second(self) -> float:
        """New tokens over the median of the repeated calls."""
        return len(self.tokens) / self.median_s

    def to_json(self) -> dict[str, Any]:
        """JSON values: all that was measured, and what is derived from it."""
        values = asdict(self)
        return {
            "lane": values.pop("baseline").value,  # as programs that call the endpoint know it
            **values,
            "median_s": self.median_s,
            "tokens_per_second": self.tokens_per_second,
            "cache": None if self.cache is None else self.cache.value,
        }


class BaselineComparison:
    """One request through several baselines: an iterator of `BaselineProgress`, whose results stay.

    Attributes:
        results: what each baseline measured, as far as it came to an end.
        failures: one sentence for each baseline that did not.

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
        rules: BucketRules = BucketRules(),  # noqa: B008 (immutable)
    ) -> None:
        """Starts nothing yet.

        Args:
            model: a name that the registry knows.
            prompt: the text to continue.
            options: how; without sampling, which draws other noise in Transformers than here.
            baselines: in the order in which they run. `ENGINE_FROM_DISK` needs `ENGINE` before it.
            cached_calls: how many times each baseline repeats the request after its first call.
            registry: the models that may be loaded; None for the default ones.
            rules: how lengths are rounded up, for this engine and for the guide's padding alike.

        Raises:
            InvalidRequest: the options sample or are not Transformers', or there are too few or too
                many repeated calls.
        """
        if options.do_sample:
            raise InvalidRequest(
                "Ways are compared token for token, and Transformers draws other random numbers: "
                "set temperature to 0."
            )
        others = ("presence_penalty", "frequency_penalty", "logit_bias", "stop")
        if found := [name for name in others if getattr(options, name)]:
            raise InvalidRequest(
                "Ways are compared token for token, and Transformers' TensorFlow models have no "
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
        self._registry = Registry() if registry is None else registry
        self._rules = rules
        self._lock = threading.Lock()
        self._process: ChildProcess | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether somebody has asked for the end."""
        return self._stopped

    @property
    def identical(self) -> bool | None:
        """Whether all baselines wrote the same tokens; None before two have."""
        texts = {result.tokens for result in self.results.values()}
        return len(texts) == 1 if len(self.results) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """JSON values, of as many baselines as have ended."""
        return {
            "model": self.model,
            "options": self.options.to_dict(),
            "cached_calls": self.cached_calls,
            "identical": self.identical,
            "lanes": {each.value: result.to_json() for each, result in self.results.items()},
            "failures": {each.value: sentence for each, sentence in self.failures.items()},
        }

    def stop(self) -> None:
        """Ends the baseline under way by ending its process; what others measured is kept.

        May be called from any thread.
        """
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def __iter__(self) -> Iterator[BaselineProgress]:
        """Runs the baselines; tells where they are every `TICK_S` seconds and at every step.

        Raises:
            InvalidRequest, ModelUnavailable: the request cannot be served in any baseline.
        """
        with tempfile.TemporaryDirectory(prefix="xla-backend-baselines-") as folder:
            for baseline in self.baselines:
                if self._stopped:
                    return
                job = self._job(baseline, str(Path(folder, "store")))
                try:
                    variables = variables_for(baseline)
                    if baseline in OF_TRANSFORMERS and self._is_rotary():
                        mistral = Path(folder, "mistral")
                        job = replace(job, model=str(mistral), registry=Registry(hub_models=()))
                        if not mistral.exists():
                            files = MistralJob(self.model, self._registry, mistral)
                            yield from self._run(baseline, files, ENVIRONMENT)
                    self.results[baseline] = yield from self._run(baseline, job, variables)
                except (BaselineMissing, EngineStopped) as error:
                    if not self._stopped:
                        self.failures[baseline] = str(error)
                except ModelUnavailable as error:
                    if job.model == self.model:  # the request itself cannot be served
                        raise
                    self.failures[baseline] = str(error)

    def _is_rotary(self) -> bool:
        listed = {info.name: info for info in self._registry.list()}
        info = listed.get(self.model) or folder_info(self.model)
        return info.model_type in rotary_form.MODEL_TYPES

    def _run(
        self, baseline: Baseline, job: BaselineJob | MistralJob, variables: dict[str, str]
    ) -> Generator[BaselineProgress, None, Any]:
        """Has a process of its own do a job; tells where it is, and returns the result.

        Raises:
            InvalidRequest, ModelUnavailable: the request cannot be served.
            EngineStopped: it failed, or its process was ended.
        """
        with self._lock:
            if self._stopped:
                raise EngineStopped("It was stopped.")
            self._process = process = ChildProcess(MODULE, job, variables)
        try:
            return (yield from self._follow(baseline, process))
        finally:
            process.end()  # also when nobody reads on

    def _follow(
        self, baseline: Baseline, process: ChildProcess
    ) -> Generator[BaselineProgress, None, Any]:
        stage: Stage = "importing"
        calls, since = 0, time.perf_counter()
        started = since
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
                (stage, calls), since = value, time.perf_counter()
            now = time.perf_counter()
            yield BaselineProgress(baseline, stage, now - since, now - started, calls)

    def _job(self, baseline: Baseline, store: str) -> BaselineJob:
        return BaselineJob(
            baseline,
            self.model,
            self.prompt,
            self.options,
            self.cached_calls,
            self._registry,
            self._rules,
            store,
            time.perf_counter(),
        )


def variables_for(baseline: Baseline) -> dict[str, str]:
    """Of the environment of a baseline's process: the overlay if need be, nobody's compiled code.

    Raises:
        BaselineMissing: the baseline needs the overlay, which is not installed.
    """
    seen = overlay.environment(search_path()) if baseline in OF_TRANSFORMERS else ENVIRONMENT
    # A folder where XLA finds what was compiled before would make a first call none.
    return seen | {"TF_XLA_FLAGS": xla_folder.other_xla_flags()}


def _describe_end(process: ChildProcess) -> str:
    said = process.last_lines[-1] if process.has_exited() and process.last_lines else ""
    return f"It stopped: {process.cause()}" + (f" ({said[:300]})." if said else ".")
