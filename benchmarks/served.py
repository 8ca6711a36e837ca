"""The app in its own process, for benchmarks from outside.

Knows how to start and end `app.py`. Must not import it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.contenders import ROOT


@contextmanager
def served(*arguments: str, store: str | None = None) -> Iterator[str]:
    """Runs the app on a free port, with this store or a new one; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as own_store:
        server = subprocess.Popen(
            [
                *(sys.executable, "app.py", "--port", str(port)),
                *("--store", store or own_store, *arguments),
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(3000):
                with socket.socket() as knock:
                    knock.settimeout(1)
                    if not knock.connect_ex(("127.0.0.1", port)):
                        break
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(60)
            finally:
                server.kill()
