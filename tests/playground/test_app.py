"""`app.py` as it is started and ended."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import pytest

import app
from tests.playground.served import ROOT, Site, serve


def test_the_page_is_up_before_tensorflow_and_costs_little(site: Site) -> None:
    # Processor time, since wall time on a shared machine measures the neighbours.
    assert site.served.up_cpu_s < 8.0
    assert "Starting the engine" in site.served.first_page


def test_the_page_travels_compressed(site: Site) -> None:
    sizes = {}
    for encoding in ("identity", "gzip"):
        with httpx.stream("GET", site.url, headers={"accept-encoding": encoding}) as answer:
            assert answer.headers.get("content-encoding", "identity") == encoding
            sizes[encoding] = len(b"".join(answer.iter_raw()))
    assert sizes["gzip"] < sizes["identity"] / 3


def test_it_ends_cleanly_when_it_is_told_to() -> None:
    served = serve(PLAYGROUND_MODELS="gpt2-stories")
    assert served.end() == 0
    assert "Traceback" not in "\n".join(served.output)


def test_a_port_in_use_is_said_in_one_sentence(site: Site) -> None:
    port = site.url.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "app.py", "--port", port],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert f"{port}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "flag",
    [
        "--host",
        "--port",
        "--models",
        "--store",
        "--share",
        "--admin",
        "--memory-limit",
        "--log-requests",
    ],
)
def test_every_flag_names_its_environment_variable(flag: str) -> None:
    help_text = subprocess.run(
        [sys.executable, "app.py", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    ).stdout
    assert flag in help_text
    assert f"PLAYGROUND_{flag[2:].upper().replace('-', '_')}" in help_text


@pytest.mark.parametrize(
    ("environment", "address"), [({}, "127.0.0.1"), ({"SYSTEM": "spaces"}, "0.0.0.0")]
)
def test_on_spaces_it_listens_to_everybody(environment: dict[str, str], address: str) -> None:
    help_text = subprocess.run(
        [sys.executable, "app.py", "--help"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    assert f"PLAYGROUND_HOST; default: {address}" in " ".join(help_text.split())


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({}, ("127.0.0.1", 7860)),
        ({"GRADIO_SERVER_NAME": "::1", "GRADIO_SERVER_PORT": "80"}, ("::1", 80)),
        ({"GRADIO_SERVER_PORT": "80", "PLAYGROUND_PORT": "81"}, ("127.0.0.1", 81)),
        ({"SYSTEM": "spaces", "PLAYGROUND_HOST": "", "GRADIO_SERVER_NAME": ""}, ("0.0.0.0", 7860)),
    ],
)
def test_gradio_s_own_variables_count_where_ours_are_not_set(
    environment: dict[str, str], where: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SYSTEM", "SPACE_ID", "GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    flags = app.flags_from([])
    assert (flags.host, flags.port) == where


@pytest.mark.parametrize(
    ("arguments", "environment", "admin"),
    [
        ([], {}, True),
        ([], {"SYSTEM": "spaces"}, False),
        ([], {"SPACE_ID": "somebody/playground"}, False),
        ([], {"SYSTEM": "spaces", "PLAYGROUND_ADMIN": "1"}, True),
        ([], {"PLAYGROUND_ADMIN": "0"}, False),
        (["--share"], {}, False),
        (["--share", "--admin"], {}, True),
        (["--no-admin"], {"PLAYGROUND_ADMIN": "1"}, False),
    ],
)
def test_strangers_may_forget_nothing_unless_they_are_let(
    arguments: list[str], environment: dict[str, str], admin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SYSTEM", "SPACE_ID", "PLAYGROUND_ADMIN", "PLAYGROUND_SHARE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert app.is_admin(app.flags_from(arguments)) is admin
