"""`Request`: one request in the engine, from its arrival to its end, and what it waits for.

Knows its stream, its state and how its work is divided into steps. Must not know whose step is
next (`loop`), nor what the steps do: its subclasses do, for texts and for recordings.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xla_backend.interface.results import CacheOutcome, Progress, RequestState

if TYPE_CHECKING:
    from xla_backend.engine.streams import Stream
    from xla_backend.interface.timing import Stopwatch
    from xla_backend.rows.scheduler import RowScheduler


MAKING: dict[str, RequestState] = {"trace": "tracing", "compile": "compiling"}
"""The states of the phases in which functions are made."""
ENDS: tuple[RequestState, ...] = ("done", "stopped", "failed")


@dataclass(frozen=True)
class AwaitResult:
    """The request waits for a result from another thread."""

    future: Future[Any]


@dataclass(frozen=True)
class AwaitRow:
    """The request waits until its row of a pool has ended."""

    rows: RowScheduler[Any]


@dataclass(frozen=True)
class AwaitEngine:
    """The request waits for the engine, and keeps it until it ends or waits for something else."""


Awaited = AwaitResult | AwaitRow | AwaitEngine
"""What a request yields before its next step."""


class Stopped(Exception):
    """Raised in a waiting request that was stopped."""


class Request(ABC):
    """One request; only `enter`, `finish` and `fail` change its state.

    Attributes:
        stream: the caller's side.
        watch: splits its time into phases.
        state: see `RequestState`.
        awaited: what it waits for.
        has_engine: whether it goes on before others that wait for the engine.
        steps: its work; the loop runs one step after the other.
    """

    watch: Stopwatch

    def __init__(self, stream: Stream[Any, Any]) -> None:
        self.stream = stream
        self.state: RequestState = "queued"
        self.awaited: Awaited = AwaitEngine()
        self.has_engine = False
        self.steps = self._run()

    def enter(self, state: RequestState) -> None:
        """Changes its state and reports that to its caller; the first change starts it.

        Also called by the threads that load models and make functions.

        Raises:
            Stopped: it was stopped before it started, or may not start.
        """
        if state == self.state or self.state in ENDS:
            return
        if self.state == "queued" and not self.stream.may_start():
            raise Stopped
        self.state = state
        self.stream.report(Progress(state, time.perf_counter()))

    def makes(self, outcome: CacheOutcome) -> Callable[[str], None]:
        """What enters the phases in which functions of this outcome are made, and their states."""

        def enter(phase: str) -> None:
            self.watch.enter(phase)
            self.enter("restoring" if outcome is CacheOutcome.DISK else MAKING[phase])

        return enter

    def finish(self, result: Any) -> None:
        """Ends it with its result; None if it was stopped before there was one."""
        self.state = "stopped" if result is None else "done"
        self.stream.finish(result)

    def fail(self, error: BaseException) -> None:
        """Ends it with the error that is raised in its caller."""
        self.state = "failed"
        self.stream.fail(error)

    @abstractmethod
    def _run(self) -> Generator[Awaited, Any, None]:
        """Its work; raises `Stopped` if it ends without a result."""


class Reservation(Request):
    """Keeps the engine's work in the background from running, until it is stopped."""

    def __init__(self, stream: Stream[Any, Any], rested: Callable[[], Future[None]]) -> None:
        """`rested` gives a future of the end of the background's present step."""
        super().__init__(stream)
        self._rested = rested

    def _run(self) -> Generator[Awaited, Any, None]:
        yield AwaitResult(self._rested())
        self.enter("reserved")
        yield AwaitResult(Future())
