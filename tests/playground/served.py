"""The app as a visitor meets it: `app.py` in a process of its own, started once per session.

Knows how to start it, wait for it and end it. Must not know what is tested against it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STARTS_WITHIN_S = 240.0  # on a machine that others use: a start took 95 s at a load of 20
ENDS_WITHIN_S = 60.0


@dataclass
class Served:
    """A running app.

    Attributes:
        url: where its page is.
        first_page: the first HTML that it served.
        up_cpu_s: seconds of processor time that its process had used by then.
    """

    process: subprocess.Popen[str]
    url: str
    first_page: str = ""
    up_cpu_s: float = 0.0
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


@contextlib.contextmanager
def slowed(process: int) -> Iterator[None]:
    """Lets a process run a quarter of the time: an engine would else be done with everything before
    a busy machine's browser has shown the first of it."""
    over = threading.Event()

    def hold_and_let_go() -> None:
        while not over.wait(0.05):
            os.kill(process, signal.SIGSTOP)
            over.wait(0.15)
            os.kill(process, signal.SIGCONT)

    holding = threading.Thread(target=hold_and_let_go)
    holding.start()
    try:
        yield
    finally:
        over.set()
        holding.join()


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


def start(command: Sequence[str], folder: Path, environment: dict[str, str], port: int) -> Served:
    """Starts a command that serves the app on a port, and waits for its page."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    served = Served(process, f"http://127.0.0.1:{port}")
    threading.Thread(target=_read, args=(served,), daemon=True).start()
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(served.url) as answer:
                served.first_page = answer.read().decode()
            served.up_cpu_s = _cpu_seconds(process.pid)
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


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process without its children, from Linux's own accounts."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Site:
    """The app with random models and the bundled one for speech, and what they are called.

    Attributes:
        fast, slow: model names. The slow one takes seconds to write what a browser test stops.
        multilingual: the name of a speech model.
        log: the file with a line about each request. trace: what each did when.
    """

    served: Served
    fast: str
    slow: str
    multilingual: str
    log: Path
    trace: Path

    @property
    def url(self) -> str:
        """Where the page is."""
        return self.served.url

    def log_lines(self) -> list[dict[str, Any]]:
        """What the log says of the requests that have ended, the latest last."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def line_after(self, count: int, within_s: float = 240.0) -> dict[str, Any]:
        """The line that follows so many, once it is there."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if len(lines := self.log_lines()) > count:
                return lines[count]
            time.sleep(0.05)
        raise AssertionError(f"no request ended within {within_s} s")


def was_cut_short(line: dict[str, Any]) -> bool:
    """Whether the log's line is of a request that ended early because its visitor left.

    Gradio says so twice, in either order: it calls the page, which stops the request, and it closes
    the generator that reads the answer, which abandons it.
    """
    return line["end"] == "abandoned" or line.get("finish") == "stopped"


_sites: list[Site] = []


def the_site(config: pytest.Config, fast: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The one app of this session, for fixtures of several folders; ended with the session."""
    if not _sites:
        from tests.checkpoints import gpt2, whisper

        slow = gpt2(
            tmp_path_factory.mktemp("models") / "slow-gpt2",
            n_positions=512,
            n_embd=768,
            n_layer=6,
            n_head=12,
        )
        multilingual = whisper(tmp_path_factory.mktemp("models") / "multilingual")
        log = tmp_path_factory.mktemp("log") / "requests.jsonl"
        models = f"{fast},{slow},whisper-commands,{multilingual}"
        trace = log.with_name("trace.json")
        files = "--log-requests", str(log), "--trace-file", str(trace)
        served = serve("--models", models, *files)
        config.add_cleanup(lambda: served.process.poll() is None and served.end())
        _sites.append(Site(served, str(fast), str(slow), str(multilingual), log, trace))
    return _sites[0]
