"""`Channel`: messages between two processes over one connection, sent from any thread.

Knows framing, pickling and threads.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import threading
from multiprocessing.connection import Connection
from typing import Any


class Channel:
    """One end. Sending never blocks; a separate thread writes.

    So `send` is safe anywhere, also in `__del__` and under other locks: a lock around the
    connection could be taken twice by one thread when the garbage collector runs.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="channel-writer", daemon=True)
        self._writer.start()

    def send(self, message: Any) -> None:
        """Queues a message. If the other end is gone, it is lost without an error.

        Raises:
            Exception: the message cannot be pickled.
        """
        self._outbox.put(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message; blocks. One thread at a time may receive.

        Args:
            timeout_s: seconds to wait for it; None for as long as it takes.

        Raises:
            TimeoutError: none came in time. It is an `OSError` too: catch it before.
            EOFError: the other end is gone.
            OSError: the connection broke, for example in the middle of a message.
        """
        if timeout_s is not None and not self._connection.poll(timeout_s):
            raise TimeoutError
        return pickle.loads(self._connection.recv_bytes())

    def flush(self, timeout_s: float) -> None:
        """Waits until everything is written, at most `timeout_s` seconds; nothing goes after."""
        self._outbox.put(None)
        self._writer.join(timeout_s)

    def close(self) -> None:
        """Closes the connection; no thread may be receiving."""
        self.flush(timeout_s=1.0)
        self._connection.close()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the other end is gone: the receiver notices
            while (data := self._outbox.get()) is not None:
                self._connection.send_bytes(data)
