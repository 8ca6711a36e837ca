"""How a module that `ChildProcess` runs begins and ends.

Knows the inherited connection and what must be cleaned up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from xla_backend.child_process.channel import Channel
from xla_backend.compilation import xla_folder
from xla_backend.interface.errors import BackendError, EngineStopped


def connect() -> tuple[Channel, Any]:
    """The channel to the parent, and the first message; ends the process if the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    channel = Channel(Connection(descriptor))
    try:
        return channel, channel.receive()
    except (EOFError, OSError):
        end(channel)


@contextlib.contextmanager
def reporting_errors(channel: Channel) -> Iterator[None]:
    """Sends errors of the block to the parent as an "error"; raises nothing."""
    try:
        yield
    except BackendError as error:
        channel.send(("error", None, error))
    except Exception as error:
        sentence = f"It failed ({type(error).__name__}: {first_line(error)})."
        channel.send(("error", None, EngineStopped(sentence)))


def end(channel: Channel, status: int = 0) -> NoReturn:
    """Ends the process once all messages are written."""
    channel.flush(timeout_s=1.0)
    xla_folder.remove()
    # Not sys.exit, which would wait for TensorFlow's threads.
    os._exit(status)


def first_line(error: BaseException, most: int = 300) -> str:
    """The first line of an error's text: TensorFlow's have pages."""
    line = str(error).strip().partition("\n")[0]
    return line if len(line) <= most else line[: most - 3] + "..."
