"""`ProcessStream`: the stream of one request to the engine's process.

Knows the replies to one call. Must not know what was asked, nor import TensorFlow.
"""

from __future__ import annotations

from typing import Self

from xla_backend.interface.backend import AnyStream, Chunk, Result
from xla_backend.process.child import Call


class ProcessStream(AnyStream[Chunk, Result]):
    """Closing or dropping it before its end stops the request.

    Attributes:
        result: set when the iterator has ended, also after `stop`. It stays None after an error, or
            if the stream was stopped before anything ran.
    """

    def __init__(self, call: Call) -> None:
        self.result: Result | None = None
        self._ended = False
        self._call = call

    @property
    def has_started(self) -> bool:
        return self._call.started.is_set()

    def wait_started(self) -> None:
        self._call.started.wait()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
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
        """Stops the request without waiting for it."""
        if not self._ended:
            self._ended = True
            self._call.abandon()

    def __del__(self) -> None:
        self.close()
