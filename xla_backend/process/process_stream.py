"""`ProcessStream`: the stream of one request to the engine's process.

Knows the replies to one call. Must not know what was asked, nor import TensorFlow.
"""

from __future__ import annotations

from xla_backend.engine.streams import Chunk, Stream
from xla_backend.interface.backend import Result
from xla_backend.process.child import Call


class ProcessStream(Stream[Chunk, Result]):
    """Closing or dropping it before its end stops the request."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._items, self._started = call.replies, call.started
        self.on_stop = call.stop

    def close(self) -> None:
        """Stops the request without waiting for it."""
        if not self._has_ended:
            self._has_ended = True
            self._call.abandon()

    def __del__(self) -> None:
        self.close()
