"""`Stream`: what comes of a request, handed from the engine's thread to who asked.

Knows a queue, an end and a wish to stop. Must not know what is in it, nor how it is made. The queue
holds no more than one request can give, so that a slow reader holds up nobody.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from xla_backend.interface.backend import AnyStream, Result

Chunk = TypeVar("Chunk")


class Stream(AnyStream[Chunk, Result], Generic[Chunk, Result]):
    """The output of a request as it comes: iterate over it once, then read `result`.

    `result` is None until the iterator has ended; after `stop` it holds the output so far. It stays
    None where the stop came before anything ran.
    """

    def __init__(self) -> None:
        """Nothing has come yet."""
        self.result: Result | None = None
        self.is_stopped = False
        self.on_stop: Callable[[], object] = lambda: None
        self._started = threading.Event()
        self._items: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._has_ended = False

    @property
    def has_started(self) -> bool:
        """Whether the engine has started on the request, or never will."""
        return self._started.is_set()

    def wait_started(self) -> None:
        """Waits until it has."""
        self._started.wait()

    def __iter__(self) -> Iterator[Chunk]:
        """Itself."""
        return self

    def __next__(self) -> Chunk:
        """The next chunk; blocks. Raises what the request raised."""
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
        """Ends it after the chunk that is being made. May be called from any thread."""
        self.is_stopped = True
        self.on_stop()

    # --- called by the engine's thread ----------------------------------------------------------

    def start(self) -> None:
        """Says that the engine has turned to it."""
        self._started.set()

    def put(self, chunk: Chunk) -> None:
        """Hands out a chunk."""
        self._items.put(("chunk", chunk))

    def finish(self, result: Result | None) -> None:
        """Ends it."""
        self._items.put(("result", result))
        self._started.set()

    def fail(self, error: BaseException) -> None:
        """Ends it with an error, which its reader gets."""
        self._items.put(("error", error))
        self._started.set()
