"""`ChildProcess`: a Python process that works for this one, from its start to its end.

Knows its start, messages, last output and end. Must not know what it works on: the process is a
module that begins with `child_side.connect`.

It is a fresh interpreter, not a fork and not `multiprocessing`'s spawn: the caller's main module is
never imported again, so it also works from notebooks and from scripts without an
`if __name__ == "__main__"`.

Messages: to the process first its settings or task, then tuples (kind, value); from it tuples
(kind, number of the request or None, value). Three kinds mean the same everywhere: a "chunk" is a
chunk of the answer; the last reply is a "result" or an "error" (a `BackendError`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from xla_backend.child_process.channel import Channel
from xla_backend.compilation import xla_folder
from xla_backend.compilation.startup import QUIET_ENVIRONMENT
from xla_backend.interface.errors import EngineStopped

CLOSE_S = 3.0
"""Seconds in which a process may end by itself before it is killed."""
LAST_LINES = 20
FLAG_VARIABLES = ("XLA_FLAGS", "TF_XLA_FLAGS")
_XLA_READS_FLAGS = "parse_flags_from_env.cc"

logger = logging.getLogger(__name__)


class ChildProcess:
    """One process. One thread at a time may receive; all else may be called from any thread.

    Attributes:
        pid: its process id.
        last_lines: the last lines that it printed; complete after `end`.
        flag_error: why XLA refuses its flags, as a sentence; empty if it does not, and complete
            after `end`.
    """

    def __init__(self, module: str, first: Any, variables: Mapping[str, str]) -> None:
        """Starts it, without waiting for it.

        Args:
            module: its dotted name; run as `python -m`.
            first: what `child_side.connect` returns there; can be pickled.
            variables: added to this process's environment.

        Raises:
            EngineStopped: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        own = {**QUIET_ENVIRONMENT, **os.environ, "PYTHONPATH": os.pathsep.join(search_path())}
        # It must not load compiled code from this process's folder.
        own["TF_XLA_FLAGS"] = xla_folder.other_xla_flags()
        own["KERAS_BACKEND"] = "tensorflow"  # whatever the user's own programs use
        with theirs:
            try:
                self._process = subprocess.Popen(
                    # -P: not modules of the same name in the working directory.
                    [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=own | dict(variables),
                )
            except OSError as error:
                ours.close()
                raise EngineStopped(f"The process cannot be started: {error}.") from error
        self.pid = self._process.pid
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.flag_error = ""
        self._channel = Channel(Connection(ours.detach()))
        self._channel.send(first)
        self._output = threading.Thread(target=self._read_output, name="child-output", daemon=True)
        self._output.start()

    def send(self, kind: str, value: Any) -> None:
        """Sends a message without blocking. If the process is gone, it is lost without an error."""
        self._channel.send((kind, value))

    def receive(self, timeout_s: float | None = None) -> tuple[str, int | None, Any]:
        """The next message; see `Channel.receive`, which raises at the process's end."""
        return self._channel.receive(timeout_s)

    def answer(self) -> Any:
        """The answer of a process that sends one and ends.

        Raises:
            BackendError: from the process.
            EngineStopped: it died first.
        """
        try:
            kind, _, value = self.receive()
        except (EOFError, OSError):
            self.end(CLOSE_S)
            raise EngineStopped(f"It failed: {self.cause()}.") from None
        self.end(CLOSE_S)
        if kind == "error":
            raise value
        return value

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Ends it now: a compile in XLA cannot be cancelled."""
        self._process.kill()  # does nothing if it has ended
        self._process.wait()

    def end(self, within_s: float = 0.0) -> None:
        """Waits for its end and closes the channel; no thread may be receiving.

        Args:
            within_s: seconds until it is killed.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        self.kill()
        self._output.join(1.0)
        self._channel.close()

    def has_exited(self) -> bool:
        """Whether it ended without a signal, so that its last line says why; only after `end`."""
        return self._process.returncode >= 0

    def cause(self) -> str:
        """Why it ended, as the middle of a sentence; only after `end`."""
        code = self._process.returncode
        if any("bad_alloc" in line or "out of memory" in line for line in self.last_lines):
            return "memory ran out"
        if code == -signal.SIGKILL:
            return "it was killed, as the system does when memory runs out"
        if code < 0:
            return f"it was ended by signal {-code} ({signal.strsignal(-code)})"
        return f"it ended with exit status {code}"

    def _read_output(self) -> None:
        """Keeps the last lines of its output, which explain its end."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                self.last_lines.append(text)
                if _XLA_READS_FLAGS in text:  # pages with all flags may follow
                    self.flag_error = describe_flag_error(text)
                logger.debug("%s: %s", self.pid, text)


def describe_flag_error(line: str) -> str:
    """What to do about XLA's last line when it refuses flags."""
    if unknown := re.search(r"Unknown flags? in (\w+): (.*)", line):
        variable, flags = unknown.groups()
        return f"the variable {variable} has a flag that XLA does not know, {flags}: remove it"
    if unread := re.search(r'Could not open file "(.*)" to read .* variable "(\w+)"', line):
        name, variable = unread.groups()
        return f"the variable {variable} names no flag (they begin with --) and no file: {name}"
    given = (f"{name}={os.environ[name]}" for name in FLAG_VARIABLES if os.environ.get(name))
    return f"a flag has a value that XLA cannot read: {', '.join(given)}"


def search_path() -> list[str]:
    """The child's `PYTHONPATH`: this package's folder and this process's own."""
    package_folder = str(Path(__file__).resolve().parents[2])
    return [package_folder, *filter(None, [os.environ.get("PYTHONPATH")])]
