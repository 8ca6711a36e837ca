"""A walkthrough: one request in four steps that should end as MISS, HIT, REUSED and DISK.

Knows which requests should cause each outcome, and the processes for them. Must not know components
or HTML, nor which outcome a step had: the engine reports that.

Two engine processes share a store that starts empty and is deleted afterwards, so every walkthrough
starts cold and changes no other functions. Both import TensorFlow at once, before anything is
measured. The second one loads the model when the first has ended.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from enum import Enum
from functools import partial
from typing import TypeVar

from playground.context.measuring import MeasuringRun, check_answerable, registry_of
from playground.context.page_context import PageContext
from playground.context.runs import page_mode
from xla_backend import (
    BackendError,
    BucketRules,
    CacheOutcome,
    EngineStatus,
    EngineStopped,
    GenerationOptions,
    GenerationResult,
    Prompt,
    SharedBackend,
)
from xla_backend.checkpoints.models import Registry
from xla_backend.process.backend_process import BackendProcess

REPEATS = 3
"""Calls of the same request after the first."""
SETTLE_S = 0.2
"""Seconds before a step's calls, in which a browser on this machine draws the last step."""
TICK_S = 0.5
"""Seconds between looks at what a process does."""
_RULES = BucketRules()

Answer = TypeVar("Answer")


class Step(Enum):
    """One step; its value is the outcome that it should show."""

    FIRST = CacheOutcome.MISS
    """The request, with nothing in memory and nothing on disk."""
    AGAIN = CacheOutcome.HIT
    """The same request."""
    SMALLER = CacheOutcome.REUSED
    """A request for fewer new tokens, whose own function does not exist."""
    NEW_PROCESS = CacheOutcome.DISK
    """The request in a new process, with what the first one saved on disk."""


class Walkthrough(MeasuringRun):
    """One visitor's walkthrough, from the click to its end.

    Attributes:
        model, prompt: of the request.
        options: of the first call.
        smaller: of the smaller request; None if the model has no room for another shape.
        is_raised: whether the visitor's request is the smaller one, because no shape is smaller.
        has_begun: whether it has started, with the engine idle.
        results: of each step's finished calls.
        current: the present step; None before the first one, and after the last.
        current_s: its seconds so far, including loading the model.
        status: of the working process.
    """

    activity = "Showing what XLA does"

    def __init__(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions,
        smaller: GenerationOptions | None,
        is_raised: bool,
        registry: Registry,
    ) -> None:
        super().__init__()
        self.model = model
        self.prompt = prompt
        self.options = options
        self.smaller = smaller
        self.is_raised = is_raised
        self.has_started = False
        self.results: dict[Step, list[GenerationResult]] = {}
        self.current: Step | None = None
        self.status = EngineStatus("starting")
        self._registry = registry
        self._since = time.perf_counter()
        self._lock = threading.Lock()
        self._engines: list[BackendProcess] = []

    @property
    def planned(self) -> tuple[Step, ...]:
        """The steps, in their order."""
        return tuple(step for step in Step if step is not Step.SMALLER or self.smaller)

    @property
    def current_s(self) -> float:
        return time.perf_counter() - self._since

    def stop(self) -> None:
        """Ends the processes now; finished measurements stay."""
        super().stop()
        self._end_processes()

    def measure(self, backend: SharedBackend) -> Generator[None, None, None]:
        """Goes through the steps, beside the page's engine.

        Raises:
            InvalidRequest, ModelUnavailable: the request cannot be served.
            EngineStopped: a process ended unexpectedly.
        """
        return self.walk()

    def walk(self) -> Generator[None, None, None]:
        """See `measure`."""
        with tempfile.TemporaryDirectory(prefix="xla-backend-walkthrough-") as store:
            try:
                self.has_started = True
                first, second = self._start(store), self._start(store)
                yield from self._wait_for(second, second.wait_ready)
                yield from self._load(first)
                yield from self._call(first, Step.FIRST, self.options)
                yield from self._call(first, Step.AGAIN, self.options, REPEATS)
                if self.smaller is not None:
                    yield from self._call(first, Step.SMALLER, self.smaller)
                first.close()  # or it would compile the smaller function meanwhile
                self.current, self._since = Step.NEW_PROCESS, time.perf_counter()
                yield from self._load(second)
                yield from self._call(second, Step.NEW_PROCESS, self.options)
            except EngineStopped:
                if not self.stopped:
                    raise
            finally:
                self.current = None
                self._end_processes()  # also if the generator is closed

    def _start(self, store: str) -> BackendProcess:
        with self._lock:
            if self.stopped:
                raise EngineStopped("It was stopped before it began.")
            engine = BackendProcess(
                self._registry, _RULES, default_model=None, store=store, memory_limit="off"
            )
            self._engines.append(engine)
        return engine

    def _load(self, engine: BackendProcess) -> Iterator[None]:
        return self._wait_for(engine, partial(engine.load, self.model))

    def _call(
        self, engine: BackendProcess, step: Step, options: GenerationOptions, calls: int = 1
    ) -> Iterator[None]:
        """Sends a request `calls` times."""
        self.current, self._since = step, time.perf_counter()
        self.status = EngineStatus("generating")
        yield
        time.sleep(SETTLE_S)
        mode = page_mode(options)
        ask = partial(engine.generate, self.model, self.prompt, options, mode=mode)
        results = []
        for _ in range(calls):
            results.append((yield from self._wait_for(engine, ask)))
        self.results[step] = results

    def _wait_for(
        self, engine: BackendProcess, work: Callable[[], Answer]
    ) -> Generator[None, None, Answer]:
        """The result of `work`; yields until it is done."""
        future: Future[Answer] = Future()
        # Not an executor: Python would wait for its threads at its end.
        threading.Thread(target=_fulfil, args=(future, work), daemon=True).start()
        while not wait([future], TICK_S).done:
            self.status = engine.status
            yield
        return future.result()

    def _end_processes(self) -> None:
        with self._lock:
            for engine in self._engines:
                engine.close(within_s=0.0)


def walkthrough_of(
    page: PageContext, model: str, prompt: Prompt, options: GenerationOptions
) -> Walkthrough:
    """The walkthrough of a request, not started.

    Raises:
        InvalidRequest, ModelUnavailable: the request is invalid.
    """
    check_answerable(page, model, prompt, options)
    first, smaller = requests_for(options)
    try:
        check_answerable(page, model, prompt, first)
    except BackendError:  # no room for more new tokens
        first, smaller = options, None
    return Walkthrough(model, prompt, first, smaller, smaller is options, registry_of(page))


def requests_for(options: GenerationOptions) -> tuple[GenerationOptions, GenerationOptions | None]:
    """The request of the first call, and a smaller one that the same function can serve.

    The first is the visitor's own. Only if it has so few new tokens that no shape is smaller, it is
    the second, and the first asks for one token more than its shape has room for.
    """
    if (size := _smaller_size(options)) is not None:
        return options, options.replace(max_new_tokens=size)
    return options.replace(max_new_tokens=_RULES.max_new_tokens[0] + 1), options


def _smaller_size(options: GenerationOptions) -> int | None:
    """The next smaller number of new slots than a request's; None if there is none."""
    own = _RULES.key_for(1, 1, options.max_new_tokens).max_new_tokens
    return max((size for size in _RULES.max_new_tokens if size < own), default=None)


def _fulfil(future: Future[Answer], work: Callable[[], Answer]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
