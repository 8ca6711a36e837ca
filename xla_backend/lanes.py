"""Lanes: one request answered in several ways, each measured in a fresh process of its own.

Knows which ways there are, and how a lane's process is started, followed and ended. Must not import
TensorFlow, nor know how a way is measured: that is `lane_process`, which runs inside the process.

Lanes run one after the other, so that none disturbs another, and a fresh process makes each first
call a true one. Importing TensorFlow and loading the model are counted apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, Literal

from xla_backend import errors, xla_folder
from xla_backend.buckets import BucketRules
from xla_backend.errors import BackendError, EngineStopped, InvalidRequest
from xla_backend.models import Registry
from xla_backend.options import GenerationOptions
from xla_backend.results import CacheOutcome
from xla_backend.startup import ENVIRONMENT, QUIET_ENVIRONMENT

CACHED_CALLS = 5
MOST_CACHED_CALLS = 50
TICK_S = 0.5
"""How often progress is told while nothing else happens."""

Stage = Literal["importing", "loading", "tracing", "compiling", "running", "cached"]


class Lane(str, Enum):
    """One way to answer a request."""

    EAGER = "eager"
    """Transformers' `model.generate`."""
    GUIDE = "guide"
    """Transformers' `tf.function(model.generate, jit_compile=True)`, prompts padded."""
    ENGINE = "engine"
    """This engine, with nothing in memory or on disk."""
    ENGINE_FROM_DISK = "engine_from_disk"
    """This engine, with nothing in memory, and on disk what the lane before has left there."""


@dataclass(frozen=True)
class LaneJob:
    """What a lane's process shall do.

    Attributes:
        cached_calls: how many times the request is repeated after its first call.
        store: folder that keeps compiled functions; counts for the engine's lanes only.
    """

    lane: Lane
    model: str
    prompt: str
    options: GenerationOptions
    cached_calls: int
    registry: Registry
    rules: BucketRules
    store: str


@dataclass(frozen=True)
class LaneProgress:
    """Where a lane is.

    Attributes:
        stage: what it does. The last of them is the repeated calls.
        stage_s, lane_s: seconds since the stage and the lane began.
        calls: how many repeated calls are done.
    """

    lane: Lane
    stage: Stage
    stage_s: float
    lane_s: float
    calls: int


@dataclass(frozen=True)
class LaneResult:
    """What a lane measured, in seconds. A call is timed from text to text.

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

    lane: Lane
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
        derived = {"median_s": self.median_s, "tokens_per_second": self.tokens_per_second}
        return asdict(self) | derived | {"lane": self.lane.value, "cache": _value(self.cache)}


class LaneComparison:
    """One request through several lanes: an iterator of `LaneProgress`, whose results stay.

    Attributes:
        results: what each lane measured, as far as it came to an end.
        failures: one sentence for each lane that did not.

    Example:
        >>> comparison = LaneComparison("gpt2-stories", "Once upon a time")
        >>> for progress in comparison:
        ...     print(progress.lane.value, progress.stage)
        >>> comparison.results[Lane.ENGINE].first_s < comparison.results[Lane.GUIDE].first_s
        True
    """

    def __init__(
        self,
        model: str,
        prompt: str,
        options: GenerationOptions = GenerationOptions(),  # noqa: B008 (immutable)
        *,
        lanes: Sequence[Lane] = tuple(Lane),
        cached_calls: int = CACHED_CALLS,
        registry: Registry | None = None,
        rules: BucketRules = BucketRules(),  # noqa: B008 (immutable)
    ) -> None:
        """Starts nothing yet.

        Args:
            model: a name that the registry knows.
            prompt: the text to continue.
            options: how; without sampling, which draws other noise in Transformers than here.
            lanes: in the order in which they run. `ENGINE_FROM_DISK` needs `ENGINE` before it.
            cached_calls: how many times each lane repeats the request after its first call.
            registry: the models that may be loaded; None for the default ones.
            rules: how lengths are rounded up, for this engine and for the guide's padding alike.

        Raises:
            InvalidRequest: the options sample, or there are too few or too many repeated calls.
        """
        if options.do_sample:
            raise InvalidRequest(
                "Lanes are compared token for token, and Transformers draws other random numbers: "
                "set temperature to 0."
            )
        if isinstance(cached_calls, float) and cached_calls.is_integer():
            cached_calls = int(cached_calls)  # as JSON and sliders send whole numbers
        if not isinstance(cached_calls, int) or not 1 <= cached_calls <= MOST_CACHED_CALLS:
            raise InvalidRequest(
                f"cached_calls must be a whole number from 1 to {MOST_CACHED_CALLS}, not "
                f"{str(cached_calls)[:40]}."
            )
        self.model = model
        self.prompt = prompt
        self.options = options
        self.lanes = tuple(lanes)
        self.cached_calls = cached_calls
        self.results: dict[Lane, LaneResult] = {}
        self.failures: dict[Lane, str] = {}
        self._registry = Registry() if registry is None else registry
        self._rules = rules
        self._lock = threading.Lock()
        self._process: LaneProcess | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether somebody has asked for the end."""
        return self._stopped

    @property
    def identical(self) -> bool | None:
        """Whether all lanes wrote the same tokens; None before two have."""
        texts = {result.tokens for result in self.results.values()}
        return len(texts) == 1 if len(self.results) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """JSON values, of as many lanes as have ended."""
        return {
            "model": self.model,
            "options": self.options.to_dict(),
            "cached_calls": self.cached_calls,
            "identical": self.identical,
            "lanes": {lane.value: result.to_json() for lane, result in self.results.items()},
            "failures": {lane.value: sentence for lane, sentence in self.failures.items()},
        }

    def stop(self) -> None:
        """Ends the lane under way by ending its process; what others measured is kept.

        May be called from any thread.
        """
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.end()

    def __iter__(self) -> Iterator[LaneProgress]:
        """Runs the lanes; tells where they are every `TICK_S` seconds and at every step.

        Raises:
            InvalidRequest, ModelUnavailable: the request cannot be served in any lane.
        """
        with tempfile.TemporaryDirectory(prefix="xla-backend-lanes-") as store:
            for lane in self.lanes:
                with self._lock:
                    if self._stopped:
                        return
                    self._process = LaneProcess(self._job(lane, store))
                try:
                    yield from self._process
                    self.results[lane] = self._process.result()
                except EngineStopped as error:
                    if self._stopped:
                        return
                    self.failures[lane] = str(error)
                finally:
                    self._process.end()  # also when nobody reads on

    def _job(self, lane: Lane, store: str) -> LaneJob:
        return LaneJob(
            lane,
            self.model,
            self.prompt,
            self.options,
            self.cached_calls,
            self._registry,
            self._rules,
            store,
        )


class LaneProcess:
    """The process of one lane: an iterator of `LaneProgress`; `result` comes after."""

    def __init__(self, job: LaneJob) -> None:
        """Starts it.

        Raises:
            EngineStopped: it cannot be started.
        """
        self._lane = job.lane
        self._started = time.perf_counter()
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._result: LaneResult | None = None
        self._noise: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives with the process)
        try:
            self._process = subprocess.Popen(
                # -P: modules of the same name in the working directory are not ours to run.
                [sys.executable, "-P", "-m", "xla_backend.lane_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._noise,
                env=_environment(),
            )
        except OSError as error:
            raise EngineStopped(f"The lane's process cannot be started: {error}.") from error
        # It stays open: its end tells the process that this one is gone, however that came.
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(job, self._process.stdin)
            self._process.stdin.flush()
        threading.Thread(target=self._read, name="lane-messages", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def __iter__(self) -> Iterator[LaneProgress]:
        """Tells where it is.

        Raises:
            InvalidRequest, ModelUnavailable: the request cannot be served.
            EngineStopped: the lane failed, or its process was ended.
        """
        stage: Stage = "importing"
        calls, since = 0, self._started
        while True:
            try:
                message = self._messages.get(timeout=TICK_S)
            except queue.Empty:
                message = {}
            if message is None:
                raise EngineStopped(self._describe_end())
            if "error" in message:
                name, sentence = message["error"]
                raise getattr(errors, name, BackendError)(sentence)
            if "result" in message:
                self._result = _result(self._lane, message["result"], self._started)
                return
            if "stage" in message:
                stage, calls, since = message["stage"], message["calls"], time.perf_counter()
            now = time.perf_counter()
            yield LaneProgress(self._lane, stage, now - since, now - self._started, calls)

    def result(self) -> LaneResult:
        """What it measured; only after the iterator has ended."""
        assert self._result is not None
        return self._result

    def end(self) -> None:
        """Ends the process now, whatever it does: XLA cannot be asked to stop compiling."""
        self._process.kill()  # does nothing to one that has ended
        self._process.wait()
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _read(self) -> None:
        with self._process.stdout as lines:
            for line in lines:
                self._messages.put(json.loads(line))
        self._messages.put(None)

    def _describe_end(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return "It was ended: by Cancel, or by the system, as it does when memory runs out."
        if code < 0:
            return f"It was ended by signal {-code} ({signal.strsignal(-code)})."
        self._noise.seek(0)
        last = self._noise.read().decode(errors="replace").strip().rpartition("\n")[2]
        return f"It ended with exit status {code}" + (f": {last[:300]}" if last else ".")


def _environment() -> dict[str, str]:
    """Of a lane's process: quiet, able to import this package, and with nobody's compiled code."""
    package_folder = str(Path(__file__).resolve().parent.parent)
    search_path = [package_folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**QUIET_ENVIRONMENT, **os.environ, **ENVIRONMENT}
    return environment | {
        "PYTHONPATH": os.pathsep.join(search_path),
        # A folder where XLA finds what was compiled before would make a first call none.
        "TF_XLA_FLAGS": xla_folder.flags_of_others(),
    }


def _result(lane: Lane, values: dict[str, Any], started: float) -> LaneResult:
    values["cached_s"] = tuple(values["cached_s"])
    values["tokens"] = tuple(values["tokens"])
    values["cache"] = CacheOutcome(values["cache"]) if values["cache"] else None
    return LaneResult(lane=lane, wall_s=time.perf_counter() - started, **values)


def _value(outcome: CacheOutcome | None) -> str | None:
    return None if outcome is None else outcome.value
