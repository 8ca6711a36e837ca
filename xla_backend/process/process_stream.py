"""`ProcessStream`: what the engine's process sends for one request as it comes.

Knows the replies to one call. Must not know what was asked, nor import TensorFlow.
"""

from __future__ import annotations

from typing import Self

from xla_backend.interface.backend import AnyStream, Chunk, Result
from xla_backend.process.child import Call


class ProcessStream(AnyStream[Chunk, Result]):
    """Dropping it, or closing it, before its end stops the work and frees the engine.

    Attributes:
        result: set when the iterator has ended, also after `stop`. It stays None in two cases: an
            error was raised, or the stream was stopped before the engine took it up, so that
            nothing ran.
    """

    def __init__(self, call: Call) -> None:
        """Wraps a request that was sent."""
        self.result: Result | None = None
        self._ended = False
        self._call = call

    @property
    def has_started(self) -> bool:
        return self._call.started.is_set()

    def wait_started(self) -> None:
        self._call.started.wait()

    def __iter__(self) -> Self:
        """Itself."""
        return self

    def __next__(self) -> Chunk:
        """The next chunk."""
        if self._ended:
            raise StopIteration
        kind, value = self._call.next_reply()
        if kind == "chunk":
            return value
        self._ended = True
        if kind == "error":
            raise value
        self.result = value
        raise StopIteration

    def stop(self) -> None:
        self._call.stop()

    def close(self) -> None:
        """Stops, without waiting for what is left."""
        if not self._ended:
            self._ended = True
            self._call.abandon()

    def __del__(self) -> None:
        self.close()
