"""The runs that visitors have going: who may start one, who stops which.

Knows sessions and the engine's streams. Must not know components, HTML, or how runs wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from playground.result_panel import Shown
from xla_backend import BackendError, GenerationOptions, GenerationResult, InvalidRequest

if TYPE_CHECKING:
    from xla_backend import Backend, TextStream

# The eye sees no difference above twenty updates a second; a browser would have to draw them all.
BETWEEN_UPDATES_S = 0.05
_MOST_KEPT = 1000
"""Runs that nobody has carried out, and ended ones that nobody has shown: far more than may wait.
Who enters them by hand, under names that no page has, takes no more memory than this."""
UNEXPECTED = "Something went wrong that should not have; the server's log says what. Try again."

logger = logging.getLogger(__name__)

Piece = TypeVar("Piece", covariant=True)
Result = TypeVar("Result", bound=GenerationResult)
AnyRun = TypeVar("AnyRun", bound="QueuedRun")


class QueuedRun(Protocol):
    """What takes its turn on the engine for a visitor.

    Attributes:
        taken: whether the event that carries it out has begun.
        waited_for: whether others were before it when it was entered.
    """

    taken: bool
    waited_for: bool

    def stop(self) -> None:
        """Ends it early. May be called from any thread."""


class Stream(Protocol[Piece, Result]):
    """What the engine gives for a request: its pieces, then `result`."""

    result: Result | None

    def __iter__(self) -> Iterator[Piece]:
        """The pieces, once."""

    def stop(self) -> None:
        """Ends it early. May be called from any thread."""


class VisitorRun(Generic[Piece, Result]):
    """One request of one visitor, from the click to the result. Subclasses say what is asked for.

    Attributes:
        taken: whether the event that carries it out has begun.
        waited_for: whether others were before it when it was entered.
        other_s: seconds that the visitor waited for the engine's start; known at the end.
    """

    def __init__(self) -> None:
        self._pressed = time.perf_counter()
        self.taken = False
        self.waited_for = False
        self.other_s = 0.0
        self._stream: Stream[Piece, Result] | None = None
        self._waited_s = 0.0
        self._stopped = False
        self._lock = threading.Lock()

    def _open(self, backend: Backend) -> Stream[Piece, Result]:
        """Sends the request."""
        raise NotImplementedError

    @property
    def stopped(self) -> bool:
        """Whether the visitor has asked for the end."""
        return self._stopped

    def stop(self) -> None:
        """Asks for the end; what was written so far is kept."""
        with self._lock:
            self._stopped = True
            if self._stream is not None:
                self._stream.stop()

    def pieces(self, backend: Backend, waited_s: float) -> Iterator[Piece]:
        """Runs the request; yields what comes as it comes. `result` comes after.

        Args:
            backend: the engine.
            waited_s: for how many seconds it waited for others before it was sent to the engine.
        """
        if self._stopped:
            return
        self._waited_s = waited_s
        engine_was_starting = backend.status.state in ("starting", "stopped")
        stream = self._open(backend)
        with self._lock:
            self._stream = stream
            if self._stopped:
                stream.stop()
        yield from self._read(stream)
        if engine_was_starting and (result := self.result) is not None:
            took = time.perf_counter() - self._pressed
            self.other_s = max(0.0, took - result.timing.total_s - result.load_s)

    def _read(self, stream: Stream[Piece, Result]) -> Iterator[Piece]:
        """The pieces of what was opened."""
        return iter(stream)

    @property
    def result(self) -> Result | None:
        """What came of it, the wait in the page's own queue included; None if it never began."""
        if self._stream is None or self._stream.result is None:
            return None
        return with_waiting(self._stream.result, self._waited_s)


class Run(VisitorRun[str, GenerationResult]):
    """A prompt that shall be continued."""

    def __init__(
        self, model: str, prompt: str, options: GenerationOptions, exact_key: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        self.prompt = prompt
        self.options = options
        self.exact_key = exact_key

    def _open(self, backend: Backend) -> TextStream:
        return backend.stream(self.model, self.prompt, self.options, exact_key=self.exact_key)

    @property
    def waits_at_engine(self) -> bool:
        """Whether its event has begun, and the engine has not turned to it yet."""
        return self.taken and not (self._stream is not None and self._stream.has_begun)

    def _read(self, stream: TextStream) -> Iterator[str]:
        stream.wait_begun()
        yield ""
        yield from stream

    def texts(self, backend: Backend, waited_s: float) -> Iterator[str]:
        """Runs the request; yields the whole text so far, again and again. `shown` comes after.

        The first one is empty: the engine has turned to the request.
        """
        text = ""
        last = 0.0
        for delta in self.pieces(backend, waited_s):
            text += delta
            now = time.perf_counter()
            if not delta:
                yield text
            elif now - last >= BETWEEN_UPDATES_S:
                last = now
                yield text

    def shown(self) -> Shown | None:
        """What there is to show at the end; None when the run never began."""
        result = self.result
        if result is None:
            return None
        return Shown(self.prompt, result, self.other_s, self.exact_key)


@dataclass
class Ending:
    """How the carrying out of a run ended; `problem` is the sentence to tell, empty for none."""

    problem: str = ""


class Runs:
    """All runs that have not ended, one for each session at most."""

    def __init__(self) -> None:
        self._by_session: dict[str, QueuedRun] = {}
        self._ended: dict[str, tuple[QueuedRun, str]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def told(self) -> Iterator[Ending]:
        """Lets no error out: the ending has its sentence.

        The page would wait for ever with its buttons switched off.
        """
        ending = Ending()
        try:
            yield ending
        except BackendError as error:
            ending.problem = str(error)
        except Exception:
            logger.exception("A run failed unexpectedly")
            ending.problem = UNEXPECTED

    @contextmanager
    def carrying_out(self, session: str) -> Iterator[Ending]:
        """As `told`, for the session's run, which ends with it."""
        try:
            with self.told() as ending:
                yield ending
        finally:
            self.end(session)

    @contextmanager
    def handing_over(self, session: str) -> Iterator[None]:
        """As `carrying_out`, for a run that the event after this one shows: see `ended`."""
        try:
            with self.told() as ending:
                yield
            with self._lock:
                # Nothing comes after this for a visitor who has left, and so has no run any more.
                if (run := self._by_session.get(session)) is not None:
                    self._ended[session] = run, ending.problem
                    if len(self._ended) > _MOST_KEPT:
                        del self._ended[next(iter(self._ended))]
        finally:
            self.end(session)

    def ended(self, session: str, kind: type[AnyRun]) -> tuple[AnyRun, str] | None:
        """The run that was handed over, once, and the sentence to tell, empty for none."""
        with self._lock:
            run, problem = self._ended.pop(session, (None, ""))
        return (run, problem) if isinstance(run, kind) else None

    def begin(self, session: str, run: QueuedRun) -> int:
        """Enters a run; returns how many others are before it.

        Raises:
            InvalidRequest: this visitor's last run has not ended.
        """
        with self._lock:
            if session in self._by_session:
                raise InvalidRequest(
                    "Your last run has not ended yet. Wait for it, or press Stop and try again."
                )
            ahead = len(self._by_session)
            self._by_session[session] = run
            if ahead >= _MOST_KEPT:
                untaken = (name for name, each in self._by_session.items() if not each.taken)
                del self._by_session[next(untaken)]
            return ahead

    def take(self, session: str, kind: type[AnyRun]) -> AnyRun | None:
        """The session's run for the one event that carries it out.

        None when there is none, or one of another kind, which another tab's event carries out.
        """
        with self._lock:
            run = self._by_session.get(session)
            if not isinstance(run, kind) or run.taken:
                return None
            run.taken = True
            return run

    def of(self, session: str) -> QueuedRun | None:
        """The session's run, if it has one."""
        return self._by_session.get(session)

    def stop(self, session: str) -> bool:
        """Asks the session's run to end; returns whether it had one."""
        run = self.of(session)
        if run is not None:
            run.stop()
        return run is not None

    def leave(self, session: str) -> None:
        """Ends the run of a visitor who has left, and drops what was handed over."""
        self.end(session)
        with self._lock:
            self._ended.pop(session, None)

    def end(self, session: str) -> None:
        """Forgets the session's run, stopping it if it still writes."""
        with self._lock:
            run = self._by_session.pop(session, None)
        if run is not None:
            run.stop()


def with_waiting(result: Result, waited_s: float) -> Result:
    """Counts the wait in the page's own line as queue time, which the engine cannot see."""
    timing = replace(
        result.timing,
        queue_s=result.timing.queue_s + waited_s,
        total_s=result.timing.total_s + waited_s,
    )
    return replace(result, timing=timing)
