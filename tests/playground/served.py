"""The app as a visitor meets it: `app.py` in a process of its own.

Knows how to start it, wait for it and end it. Must not know what is tested against it.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STARTS_WITHIN_S = 240.0  # on a machine that others use: a start took 95 s at a load of 20
ENDS_WITHIN_S = 60.0


@dataclass
class Served:
    """A running app."""

    process: subprocess.Popen[str]
    url: str  # where its page is
    first_page: str = ""  # the first HTML that it served
    output: list[str] = field(default_factory=list)

    def end(self, with_signal: int = signal.SIGTERM) -> int:
        """Ends it like a container does; returns the exit status."""
        self.process.send_signal(with_signal)
        try:
            return self.process.wait(ENDS_WITHIN_S)
        finally:
            self.process.kill()


def children(pid: int) -> list[int]:
    """The processes that a process has started: of an app, its engine."""
    of_threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for children in of_threads for child in children.split()]


def serve(*arguments: str, **environment: str) -> Served:
    """Starts the app on a free port and waits for its page."""
    port = free_port()
    command = [sys.executable, "app.py", "--port", str(port), *arguments]
    return start(command, ROOT, {**os.environ, **environment}, port)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(
    command: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    port: int,
    host: str = "127.0.0.1",
) -> Served:
    """Starts a command that serves the app on a port, and waits for its page."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    served = Served(process, f"http://{host}:{port}")
    threading.Thread(target=_read, args=(served,), daemon=True).start()
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(served.url) as answer:
                served.first_page = answer.read().decode()
            return served
        except urllib.error.HTTPError as asks_for_password:
            served.first_page = asks_for_password.read().decode()
            return served
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    process.kill()
    raise AssertionError("the page did not come up:\n" + "\n".join(served.output))


def _read(served: Served) -> None:
    assert served.process.stdout is not None
    for line in served.process.stdout:
        served.output.append(line.rstrip())
