"""`Stream`: the output of a request, from the engine's thread to the caller.

Knows a queue, its end, how to stop, and how a caller on an event loop reads it without a thread.
Must not know what is in it, nor how it is made. The queue is not bounded, so a slow reader never
delays the engine; it holds one request's output.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, TypeVar

from xla_backend.interface.backend import AnyStream, Result
from xla_backend.interface.results import Progress

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
