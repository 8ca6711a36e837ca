"""Tests of `xla_folder`: a folder that belongs to one process and goes with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import checkpoints
from tests.program import ROOT, python
from tests.xla_backend.compilation.code_folder import FLAG, code_folder
from xla_backend import Backend, CacheOutcome, GenerationOptions
from xla_backend.compilation import xla_folder


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script after `prepare`, in a process that has no TensorFlow."""
    start = "import os, sys\nfrom xla_backend.compilation import xla_folder as f\nf.prepare()\n"
    script = start + script
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Takes the place of this process's own folder, in which others' functions may be."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.setattr(xla_folder, "_folder", folder)
    return folder


def test_each_process_has_its_own_folder_and_removes_it() -> None:
    parents = os.environ.get("TF_XLA_FLAGS", "")
    assert FLAG in parents, "this test session has prepared"
    done = run(
        "flags = os.environ['TF_XLA_FLAGS']; print(flags)\n"
        "print(os.path.isdir(flags.partition('directory=')[2]))\n"
        "print('tensorflow' in sys.modules)\n"
        "f.prepare(); print(os.environ['TF_XLA_FLAGS'] == flags)\n",
        TF_XLA_FLAGS=f"{parents} --tf_xla_auto_jit=2",
    )
    flags, *others = done.stdout.splitlines()
    assert others == ["True", "False", "True"], "preparing twice changes nothing"
    folder = code_folder(flags)
    assert flags == f"--tf_xla_auto_jit=2 {FLAG}={folder}", "the parent's folder is not shared"
    assert str(folder) not in parents
    assert not folder.exists()


def test_the_folder_of_a_killed_process_goes_at_the_next_start() -> None:
    killed = run(
        "f.provide('code', b'x'); print(os.environ['TF_XLA_FLAGS'], flush=True)\n"
        f"os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    left = code_folder(killed.stdout)
    assert killed.returncode == -signal.SIGKILL
    assert (left / "code").exists()
    mine = code_folder()
    assert run("").returncode == 0
    assert not left.exists()
    assert mine.is_dir(), "that of a process that lives stays"


def test_after_tensorflow_it_is_too_late_and_a_warning_says_so() -> None:
    script = (
        "import sys, types, logging\n"
        "sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "from xla_backend.compilation import xla_folder\n"
        "xla_folder.prepare(); print(xla_folder.is_ready())\n"
    )
    warning, ready = python(script).splitlines()
    assert "Import xla_backend first" in warning
    assert ready == "False"


def test_where_nothing_has_room_nothing_is_stored_and_a_warning_says_so() -> None:
    script = (
        "import sys, logging\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "from xla_backend.compilation import xla_folder\n"
        "xla_folder.NEEDED_BYTES = 2**80\n"
        "xla_folder.prepare(); print(xla_folder.is_ready())\n"
    )
    warning, ready = python(script).splitlines()
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


def test_another_s_file_may_vanish(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    folder = code_folder()
    assert folder.is_dir()
    xla_folder.remove()
    assert not folder.exists()
    options = GenerationOptions(max_new_tokens=4)
    result = backend.generate(str(model), "The owl", options, mode="padded")
    assert result.cache is CacheOutcome.MISS
    again = backend.generate(str(model), "The owl", options.replace(num_beams=2), mode="padded")
    assert again.cache is CacheOutcome.MISS
    assert folder.is_dir()
    backend.close()
    right = Backend(store="off").generate(str(model), "The owl", options, mode="padded")
    assert right.text == result.text
