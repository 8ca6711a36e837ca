"""`Request`: one request in the engine, from its arrival to its end, and what it waits for.

Knows its stream, its state and how its work is divided into steps. Must not know whose step is
next (`loop`), nor what the steps do: its subclasses do, for texts and for recordings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from xla_backend.engine.streams import Stream
    from xla_backend.interface.timing import Stopwatch
    from xla_backend.rows.scheduler import RowScheduler

State = Literal["queued", "running", "done", "stopped", "failed"]


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
    """One request; only `start`, `finish` and `fail` change its state.

    Attributes:
        stream: the caller's side.
        watch: splits its time into phases.
        state: "queued" until nothing but a stop can keep it from running.
        awaited: what it waits for.
        has_engine: whether it goes on before others that wait for the engine.
        steps: its work; the loop runs one step after the other.
    """

    watch: Stopwatch

    def __init__(self, stream: Stream[Any, Any], may_start: Callable[[], bool]) -> None:
        """`may_start` is called once, before it starts; if it returns False, nothing runs."""
        self.stream = stream
        self.state: State = "queued"
        self.awaited: Awaited = AwaitEngine()
        self.has_engine = False
        self.steps = self._run()
        self._may_start = may_start

    @property
    def is_stopped(self) -> bool:
        """Whether its caller wants no more."""
        return self.stream.is_stopped

    def start(self) -> None:
        """Starts it, unless it has started.

        Raises:
            Stopped: it was stopped, or may not start.
        """
        if self.state == "queued":
            if self.stream.is_stopped or not self._may_start():
                raise Stopped
            self.state = "running"
            self.stream.start()

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
