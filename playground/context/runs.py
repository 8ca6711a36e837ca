"""The visitors' current runs: who may start one, and who stops which.

Knows sessions and the engine's streams. Must not know components, HTML or the queue.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol

from xla_backend import (
    AnyBackend,
    AnyStream,
    AnyTextStream,
    BackendError,
    CacheOutcome,
    EngineStatus,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    Prediction,
    Prompt,
    SharedBackend,
)
from xla_backend.interface.backend import Chunk, Result
from xla_backend.interface.decisions import Question
from xla_backend.interface.request_queue import SOURCE, Source
from xla_backend.interface.requests import Mode, TextRequest
from xla_backend.interface.results import Progress
from xla_backend.interface.timing import Span

# More than twenty updates per second are not visible, but the browser would draw them all.
BETWEEN_UPDATES_S = 0.05
_MAX_STORED = 1000
"""Bound on the runs that no event has executed or shown yet, far above what may wait. It bounds the
memory that forged session names can take."""
MAKING = ("tracing", "compiling")
"""The engine's states while it compiles a function."""
_STARTING = ("starting", "stopped", "downloading", "loading")
"""Its states before it takes a first request. Later ones that load a model count it themselves."""
UNEXPECTED = "An unexpected error occurred; the server's log has the details. Try again."

STOPPED = "Stopped before any text."

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Occupation:
    """What occupies the engine, and for how long."""

    activity: str  # the page's name for it; empty if the engine's status says it
    since: float  # its start, as `time.perf_counter()`
    # expected remaining seconds, negative if it takes longer than expected; None if unknown
    left_s: float | None


class QueuedRun(Protocol):
    """A visitor's task for the engine.

    Attributes:
        pressed_at: the click, as `time.perf_counter()`.
        taken_at: when the engine started it, likewise; None before.
        ahead: how many others were before it when it entered the queue.
        is_over: whether it has ended in any way.
    """

    pressed_at: float
    taken_at: float | None
    ahead: int
    is_over: bool

    @property
    def request_progress(self) -> Progress | None:
        """Its state at the engine; None before it is sent."""

    def steps(self, backend: SharedBackend) -> AsyncIterator[object]:
        """Carries it out; yields whenever there is something new to show."""

    @property
    def stopped(self) -> bool:
        """Whether its visitor has stopped it."""

    def stop(self) -> None:
        """Stops it, from any thread."""

    def occupation(self, status: EngineStatus) -> Occupation | None:
        """Its occupation of the engine, if that takes more than a moment; otherwise None."""


@dataclass(frozen=True)
class Shown:
    """What the result area shows."""

    prompt: Prompt  # the prompt, a text or messages
    result: GenerationResult  # the engine's answer
    # seconds of waiting for the engine's start, which `result.timing` does not include
    other_s: float = 0.0
    # whether it waited for its function to be compiled in the background, with no other request
    # ahead: that is its `queue_s`
    awaited_background: bool = False
    spans: tuple[Span, ...] = ()  # the page's own phases
    ended_s: float = field(default_factory=time.time)  # when it ended, seconds since 1970


class VisitorRun(Generic[Chunk, Result]):
    """One visitor's request, from the click to the result. Subclasses define the request.

    Attributes:
        model: its name.
        pressed_at, taken_at, ahead, is_over: see `QueuedRun`.
        other_s: seconds that the visitor waited for the engine's start; set at the end.
        prediction: the prediction before the click, or None.
        spans: the page's own phases: to the engine, waiting for its chunks, sending them on.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.pressed_at = time.perf_counter()
        self.spans: list[Span] = []
        self.taken_at: float | None = None
        self.ahead = 0
        self.is_over = False
        self.other_s = 0.0
        self.prediction: Prediction | None = None
        self._stream: AnyStream[Chunk, Result] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def _open(self, backend: AnyBackend) -> AnyStream[Chunk, Result]:
        raise NotImplementedError

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def clicked_s(self) -> float:
        """Seconds since the click."""
        return time.perf_counter() - self.pressed_at

    @property
    def request_progress(self) -> Progress | None:
        return None if self._stream is None else self._stream.progress

    def occupation(self, status: EngineStatus) -> Occupation | None:
        """Compiling its function, if the engine is doing that."""
        predicted, taken_at = self.prediction, self.taken_at
        if predicted is None or taken_at is None or predicted.expected_s is None:
            return None
        if status.state not in MAKING or status.detail != str(predicted.key):
            return None
        left_s = (predicted.high_s or predicted.expected_s) - (time.perf_counter() - taken_at)
        return Occupation("", taken_at, left_s)

    def stop(self) -> None:
        """Stops it; the text so far stays."""
        with self._lock:
            self._stopped = True
            if self._stream is not None:
                self._stream.stop()

    async def chunks(self, backend: AnyBackend) -> AsyncIterator[Chunk | Progress]:
        """Runs the request; yields each chunk and each new state. Afterwards see `result`."""
        if self._stopped:
            return
        # At its start it loads a model, before it counts any request's time.
        engine_was_starting = backend.status.state in _STARTING
        stream = await asyncio.to_thread(self._open, backend)
        with self._lock:
            self._stream = stream
            if self._stopped:
                stream.stop()
        self.ahead = stream.progress.ahead
        reached = time.perf_counter()
        self.spans.append(Span("to the engine", self.pressed_at, reached - self.pressed_at))
        async for event in stream.events():
            came = time.perf_counter()
            if self.taken_at is None:
                self.taken_at = came
            yield event
            passed_on = time.perf_counter()
            self.spans.append(Span("engine", reached, came - reached))
            self.spans.append(Span("to the browser", came, passed_on - came))
            reached = passed_on
        self.spans.append(Span("engine", reached, time.perf_counter() - reached))
        if engine_was_starting and (result := self.result) is not None:
            self.other_s = max(0.0, self.clicked_s - result.timing.total_s)

    @property
    def result(self) -> Result | None:
        """The result from the visitor's view; None if the run never started.

        Loading the model is in its time.
        """
        if self._stream is None or (result := self._stream.result) is None:
            return None
        total_s = result.timing.total_s + result.load_s
        return replace(result, timing=replace(result.timing, total_s=total_s))


def page_mode(options: GenerationOptions) -> Mode | None:
    """The mode of a request whose shape the page shows: padded, unless only a row can serve it."""
    return None if options.needs_rows else "padded"


class TextRun(VisitorRun[str, GenerationResult]):
    """A prompt to continue, or messages to answer.

    Attributes:
        text: the text so far, also after an error.
    """

    def __init__(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions,
        cache_salt: str = "",
        questions: tuple[Question, ...] = (),
        tools: tuple[dict[str, Any], ...] = (),
    ) -> None:
        super().__init__(model)
        self.prompt = prompt
        self.options = options
        self.cache_salt = cache_salt
        self.questions = questions
        self.tools = tools
        self.text = ""

    @property
    def request(self) -> TextRequest:
        """What the engine is asked for."""
        return TextRequest(
            self.model,
            self.prompt,
            self.options,
            mode=None if self.cache_salt or self.questions else page_mode(self.options),
            cache_salt=self.cache_salt,
            questions=self.questions,
            tools=self.tools,
        )

    def _open(self, backend: AnyBackend) -> AnyTextStream:
        return backend.submit(self.request)

    async def steps(self, backend: AnyBackend) -> AsyncIterator[str]:
        """Runs the request; yields the growing text, and at every new state the text so far.

        Afterwards see `shown`.
        """
        last = 0.0
        async for event in self.chunks(backend):
            now = time.perf_counter()
            if isinstance(event, str):
                self.text += event
                if now - last < BETWEEN_UPDATES_S:
                    continue
                last = now
            yield self.text

    def shown(self) -> Shown | None:
        """The final result; None if the run never started."""
        result = self.result
        if result is None:
            return None
        prediction = self.prediction
        was_missing = prediction and prediction.outcome in (CacheOutcome.MISS, CacheOutcome.DISK)
        return Shown(
            self.prompt,
            result,
            self.other_s,
            bool(was_missing and result.cache is CacheOutcome.HIT and not self.ahead),
            tuple(self.spans),
        )


@dataclass
class Ending:
    """How a run ended.

    Attributes:
        problem: the error message; empty without an error.
        stopped: whether its visitor has stopped it.
    """

    problem: str = ""
    stopped: bool = False

    @property
    def why_empty(self) -> str:
        """Why a run has no result."""
        return self.problem or STOPPED


@contextmanager
def reporting_errors() -> Iterator[Ending]:
    """Catches every error; its message is in the returned ending.

    Otherwise the page would wait forever with its buttons disabled.
    """
    ending = Ending()
    try:
        yield ending
    except BackendError as error:
        ending.problem = str(error)
    except Exception:
        logger.exception("A run failed unexpectedly")
        ending.problem = UNEXPECTED


@dataclass
class _Visit:
    """A run, the events that carry it out, and how it ended."""

    run: QueuedRun
    events: object
    is_taken: bool = False
    ending: Ending | None = None


class VisitorRuns:
    """All current runs, at most one for each session, and those whose end is not shown yet."""

    def __init__(self) -> None:
        self._by_session: dict[str, _Visit] = {}
        self._lock = threading.Lock()

    def begin(self, session: str, run: QueuedRun, events: object = None) -> None:
        """Adds a run.

        Args:
            session: the visitor's.
            run: the run.
            events: what will carry it out.

        Raises:
            InvalidRequest: this visitor's last run has not ended.
        """
        with self._lock:
            if self._current(session) is not None:
                raise InvalidRequest(
                    "Your last run has not ended yet. Wait for it, or stop it where you started it."
                )
            self._by_session.pop(session, None)
            self._by_session[session] = _Visit(run, events)
            if len(self._by_session) > _MAX_STORED:
                idle = (
                    name
                    for name, each in self._by_session.items()
                    if not each.is_taken or each.run.is_over
                )
                del self._by_session[next(idle)]

    def take(self, session: str, events: object = None) -> QueuedRun | None:
        """The session's run, for the events that carry it out: None if there is none, or one that
        others carry out, or that was taken before."""
        with self._lock:
            visit = self._by_session.get(session)
            if visit is None or visit.events is not events or visit.is_taken:
                return None
            visit.is_taken = True
            return visit.run

    @contextmanager
    def carrying_out(self, session: str) -> Iterator[Ending]:
        """As `reporting_errors`, for the session's run, which is over and stopped at the end.

        Its requests are the session's.

        How it ended stays for the event that shows it: see `ended`.
        """
        SOURCE.set(Source("page", session))
        visit = self._by_session.get(session)  # None: the visitor has left, which stopped the run
        try:
            with reporting_errors() as ending:
                yield ending
            if visit is not None:
                ending.stopped = visit.run.stopped
                visit.ending = ending
        finally:
            if visit is not None:
                visit.run.is_over = True
                visit.run.stop()

    def ended(self, session: str, events: object = None) -> tuple[QueuedRun, Ending] | None:
        """The session's run that has ended and how; once only, and to its own events."""
        with self._lock:
            visit = self._by_session.get(session)
            if visit is None or visit.events is not events or visit.ending is None:
                return None
            del self._by_session[session]
        return visit.run, visit.ending

    def occupation(self, status: EngineStatus) -> Occupation | None:
        """What occupies the engine, of all runs; None if only for a moment."""
        with self._lock:
            runs = [visit.run for visit in self._by_session.values() if not visit.run.is_over]
        taken = [run for run in runs if run.taken_at is not None]
        return next(filter(None, (run.occupation(status) for run in taken)), None)

    def of(self, session: str) -> QueuedRun | None:
        """The session's run, if it has one that is not over."""
        with self._lock:
            return self._current(session)

    def stop(self, session: str) -> bool:
        """Stops the session's run; returns whether there was one."""
        run = self.of(session)
        if run is not None:
            run.stop()
        return run is not None

    def leave(self, session: str) -> None:
        """Stops the run of a visitor who has left, and drops its result."""
        with self._lock:
            visit = self._by_session.pop(session, None)
        if visit is not None:
            visit.run.stop()

    def _current(self, session: str) -> QueuedRun | None:
        visit = self._by_session.get(session)
        return None if visit is None or visit.run.is_over else visit.run
