"""The baseline overlay: a folder with the last Transformers that has TensorFlow models.

Knows where the folder is, what belongs in it, how pip fills it, and how a process comes to see it.
Must not import what lies in it, nor know what a baseline process does there.

Its packages are older than the environment's own of the same names. Only a process that runs the
guide's own code, `model.generate` of a `TF...` model, puts the folder before them on its path:
Compare's baselines, the oracle of the tests, the recipes, the notebook. All others never see it.
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
"""What pip downloads for it, about: on Linux 17.5 million bytes."""
ABOUT_S = 15
"""Seconds that installing takes on two cores, of which most goes into compiling to bytecode."""

_INSTALLED = "installed.txt"
"""The file of the folder that says, when all else is there, from which requirements."""
_ENVIRONMENT = {"TF_USE_LEGACY_KERAS": "1"}  # Transformers' TensorFlow models are Keras 2 models.
_TICK_S = 0.5


class BaselineMissing(BackendError):
    """The overlay is not installed, or cannot be; the text says what to do."""


@dataclass(frozen=True)
class InstallProgress:
    """How far an installation has come.

    Attributes:
        step: what pip does, as a word or two: "downloading transformers".
        installed_bytes: what lies in the folder so far.
        elapsed_s: seconds since the start.
    """

    step: str
    installed_bytes: int
    elapsed_s: float


def folder() -> Path:
    """Where the overlay is, or would be.

    The folder that `XLA_BACKEND_BASELINE` names; else beside the virtual environment, with its name
    and "-baseline"; without one, in the user's cache directory.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    if sys.prefix != sys.base_prefix:
        return Path(f"{sys.prefix}-baseline")
    return default_folder() / "baseline"


def is_installed() -> bool:
    """Whether the folder holds exactly what `REQUIREMENTS` says."""
    try:
        return (folder() / _INSTALLED).read_bytes() == REQUIREMENTS.read_bytes()
    except OSError:
        return False


def check_installed() -> None:
    """Says what to do where the overlay is not installed.

    Raises:
        BaselineMissing: it is not.
    """
    if not is_installed():
        raise BaselineMissing(
            "Transformers' TensorFlow models are not installed "
            f"({DOWNLOAD_BYTES // 10**6} MB to download). Run: {COMMAND}"
        )


def environment(search_path: list[str]) -> dict[str, str]:
    """The variables with which a child process sees the overlay before all other packages.

    Args:
        search_path: folders that come after it on `PYTHONPATH`.

    Raises:
        BaselineMissing: it is not installed.
    """
    check_installed()
    return _ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(folder()), *search_path])}


def use() -> None:
    """Makes this process see the overlay; to be called before anything that lies in it is imported.

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
                f"{name} is imported already: call xla_backend.baselines.overlay.use() before."
            )
    os.environ.update(_ENVIRONMENT)
    sys.path.insert(0, here)


def install() -> Iterator[InstallProgress]:
    """Downloads and installs the overlay; tells how far it is twice a second.

    What was there is replaced when all is complete, so a broken download leaves it as it was. Ends
    pip when nobody reads on.

    Raises:
        BaselineMissing: pip failed, as it does without a network; the text says how.
    """
    target = folder()
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    command = [
        *(sys.executable, "-m", "pip", "install", "--no-deps", "--require-hashes"),
        *("--disable-pip-version-check", "--no-input", "--progress-bar", "off"),
        *("--target", str(unfinished), "-r", str(REQUIREMENTS)),
    ]
    started = time.perf_counter()
    said: list[str] = []
    try:
        pip = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        reader = threading.Thread(target=_read, args=(pip, said), daemon=True)
        reader.start()
        try:
            while pip.poll() is None:
                elapsed_s = time.perf_counter() - started
                yield InstallProgress(_step(said), _size(unfinished), elapsed_s)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(_TICK_S)
        finally:
            pip.kill()
            reader.join()
        if pip.returncode:
            # After "ERROR: Exception:" comes a traceback, which ends with what it was.
            problems = [line for line in said if re.match("ERROR: (?!Exception)", line)] or said
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


def _read(pip: subprocess.Popen[bytes], said: list[str]) -> None:
    assert pip.stdout is not None
    with pip.stdout as lines:
        said += (line.decode(errors="replace").strip() for line in lines)


def _step(said: list[str]) -> str:
    """What pip does, by the last of its lines that says so."""
    for line in reversed(said):
        first, _, rest = line.partition(" ")
        if first == "Collecting":
            return f"downloading {rest.partition('==')[0]}"
        if first == "Installing":
            return "installing"
    return "starting pip"


def _size(folder: Path) -> int:
    """Bytes of all files in a folder, which may not be there."""
    sizes = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves them about
            sizes += path.stat().st_size
    return sizes
