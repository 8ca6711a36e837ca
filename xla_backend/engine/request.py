"""`Request`: one request in the engine, from its arrival to its end, and what it waits for;
`Stream`: its output, from the engine's thread to the caller.

Knows its state and how its work is divided into steps; and a queue, its end, how to stop, and how a
caller on an event loop reads without a thread. Must not know whose step is next (`loop`), nor what
the steps do: subclasses do, for texts and for recordings. A stream is not bounded, so a slow reader
never delays the engine; it holds one request's output.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from xla_backend.interface.backend import AnyStream, Result
from xla_backend.interface.results import CacheOutcome, Progress, RequestState

if TYPE_CHECKING:
    from xla_backend.interface.timing import Stopwatch
    from xla_backend.rows.scheduler import RowScheduler


MAKING: dict[str, RequestState] = {"trace": "tracing", "compile": "compiling"}
"""The states of the phases in which functions are made."""
ENDS: tuple[RequestState, ...] = ("done", "stopped", "failed")

Chunk = TypeVar("Chunk")


class Stream(AnyStream[Chunk, Result], Generic[Chunk, Result]):
    """The output of a request: read it once, as an iterator or by `events`, then read `result`.

    `result` is None until it has ended; after `stop` it holds the output so far. It stays None if
    the stop came before anything ran.

    Attributes:
        arrived: when the request arrived, as `time.perf_counter()` of this machine.
        progress: its newest state.
        has_started: whether the request has started, or has ended without starting.
        has_ended: whether its end was read.
    """

    def __init__(self, arrived: float | None = None) -> None:
        """`arrived` is None for now."""
        self.arrived = time.perf_counter() if arrived is None else arrived
        self.result: Result | None = None
        self.progress = Progress("queued", self.arrived)
        self.is_stopped = False
        self.on_stop: Callable[[], object] = lambda: None
        self.has_started = False
        self._items: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._on_item: Callable[[], object] = lambda: None
        self.has_ended = False

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        """The next chunk; blocks. Raises the request's error."""
        while not self.has_ended:
            kind, value = self._items.get()
            if kind == "chunk":
                return value
            self._take_end(kind, value)
        raise StopIteration

    async def events(self) -> AsyncIterator[Progress | Chunk]:
        """See `AnyStream`; needs no thread."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the request
                loop.call_soon_threadsafe(arrived.set)

        self._on_item = wake
        while not self.has_ended:
            try:
                kind, value = self._items.get_nowait()
            except queue.Empty:
                await arrived.wait()
                arrived.clear()
                continue
            if kind in ("chunk", "progress"):
                yield value
            else:
                self._take_end(kind, value)

    def _take_end(self, kind: str, value: Any) -> None:
        if kind == "progress":
            return
        self.has_ended = True
        if kind == "error":
            raise value
        self.result = value

    def stop(self) -> None:
        """Ends the request after the present chunk. May be called from any thread."""
        self.is_stopped = True
        self.on_stop()

    # --- called by the engine's thread ----------------------------------------------------------

    def may_start(self) -> bool:
        """Whether its request may start now; called once."""
        return not self.is_stopped

    def report(self, progress: Progress) -> None:
        """Tells the caller its new state; the first one says that it has started."""
        self.progress = progress
        self.has_started = True
        self._put("progress", progress)

    def put(self, chunk: Chunk) -> None:
        self._put("chunk", chunk)

    def finish(self, result: Result | None) -> None:
        self.has_started = True
        self._put("result", result)

    def fail(self, error: BaseException) -> None:
        """Ends with an error, which is raised in the reader."""
        self.has_started = True
        self._put("error", error)

    def _put(self, kind: str, value: Any) -> None:
        self._items.put((kind, value))
        self._on_item()


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
