"""`Stream`: the output of a request, from the engine's thread to the caller.

Knows a queue, its end and how to stop. Must not know what is in it, nor how it is made. The queue
is not bounded, so a slow reader never delays the engine; it holds one request's output.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from xla_backend.interface.backend import AnyStream, Result

Chunk = TypeVar("Chunk")


class Stream(AnyStream[Chunk, Result], Generic[Chunk, Result]):
    """The output of a request: iterate over it once, then read `result`.

    `result` is None until the iterator has ended; after `stop` it holds the output so far. It stays
    None if the stop came before anything ran.

    Attributes:
        arrived: when the request arrived, as `time.perf_counter()` of this machine.
    """

    def __init__(self, arrived: float | None = None) -> None:
        """`arrived` is None for now."""
        self.arrived = time.perf_counter() if arrived is None else arrived
        self.result: Result | None = None
        self.is_stopped = False
        self.on_stop: Callable[[], object] = lambda: None
        self._started = threading.Event()
        self._items: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._has_ended = False

    @property
    def has_started(self) -> bool:
        """Whether the request has started, or has ended without starting."""
        return self._started.is_set()

    def wait_started(self) -> None:
        self._started.wait()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        """The next chunk; blocks. Raises the request's error."""
        if self._has_ended:
            raise StopIteration
        kind, value = self._items.get()
        if kind == "chunk":
            return value
        self._has_ended = True
        if kind == "error":
            raise value
        self.result = value
        raise StopIteration

    def stop(self) -> None:
        """Ends the request after the present chunk. May be called from any thread."""
        self.is_stopped = True
        self.on_stop()

    # --- called by the engine's thread ----------------------------------------------------------

    def start(self) -> None:
        self._started.set()

    def put(self, chunk: Chunk) -> None:
        self._items.put(("chunk", chunk))

    def finish(self, result: Result | None) -> None:
        self._started.set()
        self._items.put(("result", result))

    def fail(self, error: BaseException) -> None:
        """Ends with an error, which is raised in the reader."""
        self._started.set()
        self._items.put(("error", error))
