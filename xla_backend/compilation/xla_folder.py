"""The folder of XLA's persistent cache, private to this process.

It is not the store's folder itself, because TensorFlow raises inside the running call if an entry
is truncated or the folder cannot be written. Only entries with a verified checksum come here, no
other process writes here, and changes to the store have no effect.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)

NEEDED_BYTES = 64 * 2**20
"""Free space that a file system must have; the code of one function takes a few megabytes."""

_FLAG = "--tf_xla_persistent_cache_directory"
_PREFIX = "xla_backend-code-"
_folder: Path | None = None


def prepare() -> None:
    """Makes the folder and sets TensorFlow's flag; TensorFlow must not have been imported yet.

    The folder is in memory if the machine has such a file system: the files are short-lived.
    """
    global _folder
    if _folder is not None:
        return
    if "tensorflow" in sys.modules:
        logger.warning(
            "TensorFlow was imported before xla_backend: compiled functions will not be stored. "
            "Import xla_backend first."
        )
        return
    for place in ("/dev/shm", tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(place).free < NEEDED_BYTES:
                continue
            _remove_leftovers(Path(place))
            _folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))
            break
    else:
        logger.warning("No temporary folder has room: compiled functions will not be stored.")
        return
    atexit.register(remove)
    # A child process inherits its parent's flag, but must not share the parent's folder.
    os.environ["TF_XLA_FLAGS"] = f"{other_xla_flags()} {_FLAG}={_folder}".strip()


def other_xla_flags() -> str:
    """The other flags in TF_XLA_FLAGS; compiled code depends on them."""
    flags = os.environ.get("TF_XLA_FLAGS", "").split()
    return " ".join(flag for flag in flags if not flag.startswith(_FLAG))


def is_ready() -> bool:
    """Whether TensorFlow looks for compiled code in the folder."""
    return _folder is not None


def provide(name: str, content: bytes) -> None:
    """Writes a file with compiled code for TensorFlow to find."""
    assert _folder is not None
    (_folder / Path(name).name).write_bytes(content)


def withdraw(name: str) -> None:
    assert _folder is not None
    (_folder / Path(name).name).unlink(missing_ok=True)


def collect(function: str) -> dict[str, bytes]:
    """Removes and returns the files that name this function."""
    assert _folder is not None
    found = {}
    # A file that vanishes meanwhile belongs to another function: two may compile at once.
    with contextlib.suppress(FileNotFoundError):
        for path in _folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                content = path.read_bytes()
                if f"{function}[".encode() in content:
                    found[path.name] = content
                    path.unlink()
    return found


def clear() -> None:
    """Empties the folder; TensorFlow then compiles and writes again."""
    if _folder is not None:
        _folder.mkdir(exist_ok=True)  # it may have been removed from outside
        for path in _folder.iterdir():
            path.unlink(missing_ok=True)


def remove() -> None:
    """Removes the folder at the end of this process, but not of a fork."""
    if _folder is not None and _folder.name.startswith(f"{_PREFIX}{os.getpid()}-"):
        shutil.rmtree(_folder, ignore_errors=True)


def _remove_leftovers(place: Path) -> None:
    for path in place.glob(f"{_PREFIX}*"):
        process = path.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists() and Path("/proc").exists():
            shutil.rmtree(path, ignore_errors=True)
