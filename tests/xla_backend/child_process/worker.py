"""A module for `ChildProcess` to run: does at once what it is told, whatever that leads to."""

import os
import time
from importlib import metadata

from xla_backend.child_process.child_side import connect, end
from xla_backend.interface.errors import InvalidRequest


def main() -> None:
    channel, first = connect()
    while True:
        try:
            kind, value = channel.receive()
        except (EOFError, OSError):
            end(channel, 3)
        if kind == "first":
            channel.send(("result", None, first))
        elif kind == "count":
            for number in range(value):
                channel.send(("chunk", None, number))
            channel.send(("result", None, value))
        elif kind == "refuse":
            channel.send(("error", None, InvalidRequest(value)))
        elif kind == "variable":
            channel.send(("result", None, os.environ.get(value)))
        elif kind == "version":
            channel.send(("result", None, metadata.version(value)))
        elif kind == "print":
            os.write(1, f"{value} to stdout\n".encode())
            os.write(2, f"{value} to stderr\n".encode())
        elif kind == "sleep":
            time.sleep(value)
        elif kind == "end":
            channel.send(("result", None, "x" * 1_000_000))
            end(channel, value)


if __name__ == "__main__":
    main()
