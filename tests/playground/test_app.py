"""`app.py` where a start is hard: it serves, or says in one sentence why not. `test_engine` starts
and ends it on a machine as it should be."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from tests import gguf_files
from tests.playground.served import ROOT, free_port, start
from tests.waiting import wait_until

NO_ROOT = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
"""To whom read-only folders are read-only."""


def test_it_serves_on_a_machine_of_many_obstacles(tmp_path: Path) -> None:
    """Proxies that nobody answers at, another user's folder, no home folder."""
    (tmp_path / "gradio").mkdir(mode=0o555)  # as another user of the machine leaves it
    port = free_port()
    obstacles = {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "socks5://127.0.0.1:9",
        "no_proxy": "example.com",
        "TMPDIR": str(tmp_path),
        "HOME": "/nonexistent/home",
        "XDG_CACHE_HOME": "/proc/cache",  # nobody can write there
    }
    command = [*NO_ROOT, sys.executable, "app.py", "--port", str(port), "--models", "gpt2-stories"]
    served = start(command, ROOT, {**os.environ, **obstacles}, port)
    try:
        assert "gpt2-stories" in served.first_page
        (own,) = tmp_path.glob("xla-playground-*")
        assert own.stat().st_mode & 0o777 == 0o700
        request = {"model": "gpt2-stories", "prompt": "Once", "max_tokens": 1}
        answer = httpx.post(f"{served.url}/v1/completions", json=request, timeout=240)
        assert answer.status_code == 200, answer.text
    finally:
        assert served.end() == 0
    assert not own.exists()


@pytest.mark.parametrize("host", ["::1", "[::1]", "::"])
def test_it_listens_to_the_newer_addresses(host: str, tmp_path: Path) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as free:
        port = free.getsockname()[1]
    arguments = ["--host", host, "--port", str(port), "--models", "gpt2-stories", "--no-store"]
    command = [sys.executable, "app.py", *arguments]
    served = start(command, ROOT, {**os.environ, "TMPDIR": str(tmp_path)}, port, "[::1]")
    try:
        assert "gpt2-stories" in served.first_page
        wait_until(lambda: f"The page is at http://[::1]:{port}" in served.output)
    finally:
        served.end()


def failed_start(*arguments: str, **environment: str) -> str:
    """What the app says that cannot be served."""
    done = subprocess.run(
        [sys.executable, "app.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    return done.stderr


def test_a_model_that_is_none_is_said_in_one_sentence() -> None:
    said = failed_start("--models", "gpt2-stories,/nowhere/model.gguf", "--port", str(free_port()))
    assert said == (
        "there is no GGUF file '/nowhere/model.gguf'. Check the path, or choose a model by its "
        "name.\n"
    )


@pytest.mark.parametrize("name", ["cut.gguf", "folder"])
def test_a_model_that_was_cut_off_is_no_default_model(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "folder":
        shutil.copytree(ROOT / "demo_models" / "gpt2-stories", path)
        cut = path / "model.safetensors"
    else:
        cut = gguf_files.write(path, "llama")
    with cut.open("r+b") as file:
        file.truncate(cut.stat().st_size - 1000)
    said = failed_start("--models", str(path), "--port", str(free_port()))
    assert said.count("\n") == 1
    assert f"{cut} is damaged: it should have" in said


def test_a_port_in_use_is_said_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = failed_start("--port", port)
    assert said.count("\n") == 1
    assert port in said
    assert "choose another --port" in said


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--host", "192.0.2.1"], {}, "choose another --host"),
        (["--host", "no.such.host.invalid"], {}, "choose another --host"),
        (["--log-requests", "/proc/log"], {}, "/proc/log"),
        ([], {"ALL_PROXY": "ftp://proxy"}, "ftp://proxy"),
    ],
)
def test_other_causes_too(arguments: list[str], environment: Mapping[str, str], says: str) -> None:
    said = failed_start("--port", str(free_port()), *arguments, **environment)
    assert said.count("\n") == 1
    assert says in said


def test_importing_gradio_writes_no_stub_files() -> None:
    """For each of its components it parsed a file: 40% of the time of its import."""
    code = """
import ast, inspect
parsed, parse, find = [], ast.parse, inspect.getfile
ast.parse = lambda *given, **named: (parsed.append(given), parse(*given, **named))[1]
import playground
playground.create_app
assert inspect.getfile is find
print(len(parsed))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 20
