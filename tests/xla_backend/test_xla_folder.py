"""Tests of `xla_backend.xla_folder`: a folder that belongs to one process and goes with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import checkpoints
from xla_backend import Backend, CacheOutcome, GenerationOptions, xla_folder

ROOT = Path(__file__).resolve().parents[2]
FLAG = "--tf_xla_persistent_cache_directory"


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script after `prepare`, in a process that has no TensorFlow."""
    script = f"import os, sys\nfrom xla_backend import xla_folder as f\nf.prepare()\n{script}"
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Takes the place of this process's own folder."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.setattr(xla_folder, "_folder", folder)
    return folder


def test_each_process_has_its_own_folder_and_removes_it() -> None:
    parents = os.environ.get("TF_XLA_FLAGS", "")
    assert FLAG in parents, "this test session has prepared"
    done = run(
        "print(f._folder); print(os.environ['TF_XLA_FLAGS']); print(f._folder.is_dir())\n"
        "print('tensorflow' in sys.modules)\n"
        "f.prepare(); print(f._folder)\n",
        TF_XLA_FLAGS=f"{parents} --tf_xla_auto_jit=2",
    )
    folder, flags, exists, has_tensorflow, second = done.stdout.splitlines()
    assert (exists, has_tensorflow) == ("True", "False")
    assert second == folder, "preparing twice changes nothing"
    assert flags == f"--tf_xla_auto_jit=2 {FLAG}={folder}", "the parent's folder is not shared"
    assert folder not in parents
    assert not Path(folder).exists()


def test_what_a_killed_process_left_goes_at_the_next_start() -> None:
    killed = run(
        "(f._folder / 'code').write_bytes(b'x')\n"
        f"print(f._folder, flush=True); os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    left = Path(killed.stdout.strip())
    assert killed.returncode == -signal.SIGKILL
    assert (left / "code").exists()
    mine = xla_folder._folder
    assert run("print(f._folder)").returncode == 0
    assert not left.exists()
    assert mine is not None
    assert mine.is_dir(), "that of a process that lives stays"


def test_after_tensorflow_it_is_too_late_and_a_warning_says_so() -> None:
    script = (
        "import sys, types, logging\n"
        "sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "from xla_backend import xla_folder\n"
        "xla_folder.prepare(); print(xla_folder.is_ready())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    warning, ready = done.stdout.splitlines()
    assert "Import xla_backend first" in warning
    assert ready == "False"


def test_where_nothing_has_room_nothing_is_stored_and_a_warning_says_so() -> None:
    script = (
        "import sys, logging\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "from xla_backend import xla_folder\n"
        "xla_folder.NEEDED_BYTES = 2**80\n"
        "xla_folder.prepare(); print(xla_folder.is_ready())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    warning, ready = done.stdout.splitlines()
    assert "No temporary folder has room" in warning
    assert ready == "False"


def test_files_are_collected_by_the_function_that_they_were_compiled_from(folder: Path) -> None:
    for name, content in {"one": b"..decode_1[f32..", "two": b"..decode_11[f32.."}.items():
        xla_folder.provide(name, content)
    xla_folder.provide("up/../x", b"")
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two", "x"]
    assert xla_folder.collect("decode_1") == {"one": b"..decode_1[f32.."}
    assert xla_folder.collect("decode_1") == {}
    assert sorted(path.name for path in folder.iterdir()) == ["two", "x"]
    xla_folder.withdraw("up/../x")
    xla_folder.withdraw("not there")
    assert [path.name for path in folder.iterdir()] == ["two"]
    xla_folder.clear()
    assert list(folder.iterdir()) == []


def test_another_function_s_file_may_vanish_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in {"a": b"mine[", "b": b"other[", "c": b"mine["}.items():
        xla_folder.provide(name, content)
    read = Path.read_bytes

    def read_late(path: Path) -> bytes:
        if path.name == "b":
            path.unlink(missing_ok=True)  # by the thread that compiled it
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_late)
    assert xla_folder.collect("mine") == {"a": b"mine[", "c": b"mine["}


def test_a_folder_that_someone_tidied_away_costs_no_request(tmp_path: Path) -> None:
    model = checkpoints.gpt2(tmp_path / "m", seed=41, n_layer=1, n_embd=32, n_head=2)
    backend = Backend(store=tmp_path / "store")
    assert xla_folder._folder is not None
    xla_folder.remove()
    options = GenerationOptions(max_new_tokens=4)
    result = backend.generate(str(model), "The owl", options)
    assert result.cache is CacheOutcome.MISS
    again = backend.generate(str(model), "The owl", options.replace(num_beams=2))
    assert again.cache is CacheOutcome.MISS
    assert xla_folder._folder.is_dir()
    backend.close()
    right = Backend(store="off").generate(str(model), "The owl", options)
    assert right.text == result.text
