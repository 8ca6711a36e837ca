"""`app.py`: what it says where it cannot start. `test_engine` starts and ends it."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.playground.served import ROOT


def test_a_port_in_use_is_said_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "app.py", "--port", port], cwd=ROOT, capture_output=True, text=True
        )
    assert done.returncode == 1
    assert port in done.stderr
    assert "Traceback" not in done.stderr
