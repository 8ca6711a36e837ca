"""Servers of OpenAI's protocol in processes of their own: this project's app, and llama.cpp.

Knows how to start and end them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.contenders.running import PEERS_PYTHON
from benchmarks.harness import ROOT, MeasureFailed

WAITING = 1000
"""Requests that may wait at this project's server: more than any measure sends."""
LLAMA_CPP_MISSING = "llama.cpp is not installed here: make bench installs it."
START_S = 600.0


@contextmanager
def this_app(*flags: str, store: str | None = None) -> Iterator[str]:
    """The app with these flags on a free port, with a new store or the given one; yields its
    address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    limits = [f"--max-waiting={WAITING}", f"--max-waiting-each={WAITING}"]
    with tempfile.TemporaryDirectory() as own_store:
        command = [sys.executable, "app.py", f"--port={port}", f"--store={store or own_store}"]
        with _process([*command, *limits, *flags]) as app:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
            while app.poll() is None and time.monotonic() < deadline:
                with suppress(httpx2.TransportError):
                    health(url)
                    break
                time.sleep(0.02)
            else:
                raise MeasureFailed("app.py did not start")
            yield url


@contextmanager
def llama_cpp(file: Path | None, slots: int, context: int) -> Iterator[str | None]:
    """llama.cpp with a GGUF file, with this number of rows and tokens per row.

    Yields its address; None without a file, and where it is not installed.
    """
    if file is None or not PEERS_PYTHON.exists():
        yield None
        return
    module = [str(PEERS_PYTHON), "-m", "benchmarks.contenders.llama_cpp", str(file)]
    with _process([*module, str(slots), str(context)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        address = server.stdout.readline().decode().strip()
        if not address:
            raise MeasureFailed("llama.cpp did not start")
        yield address


def health(url: str) -> dict[str, Any]:
    """The app's `/health`."""
    return httpx2.get(f"{url}/health", timeout=60, trust_env=False).json()


def settle(url: str) -> None:
    """Waits until the app's engine has been idle for two seconds and has nothing to compile in the
    background."""

    def is_settled() -> bool:
        engine = health(url)["engine"]
        is_idle = engine["state"] == "ready" and engine["for_s"] >= 2
        return is_idle and not engine["compiling_in_background"]

    while not is_settled():
        time.sleep(0.2)


@contextmanager
def _process(command: list[str], stdout: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ, stdout=stdout, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
