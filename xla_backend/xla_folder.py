"""The folder where XLA leaves and looks for compiled code, private to this process.

Knows TensorFlow's flag for it and the files that appear there. Must not import TensorFlow (the flag
counts only if it is set before) nor know the store, which keeps the files' bytes.

Why not the store's folder itself: TensorFlow raises inside the running call when an entry is cut
short or the folder cannot be written. Here only entries arrive whose checksum was verified, nobody
else writes, and what happens to the store meanwhile does not matter.
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
"""Free space below which a place is not used; the code of one function takes a few megabytes."""

_FLAG = "--tf_xla_persistent_cache_directory"
_PREFIX = "xla_backend-code-"
_folder: Path | None = None


def prepare() -> None:
    """Makes the folder and tells TensorFlow, which must not have been imported yet.

    In memory where the machine has a file system for that: the files live for moments only.
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
    os.environ["TF_XLA_FLAGS"] = f"{flags_of_others()} {_FLAG}={_folder}".strip()


def flags_of_others() -> str:
    """What else TensorFlow's flags for XLA say; compiled code depends on it."""
    flags = os.environ.get("TF_XLA_FLAGS", "").split()
    return " ".join(flag for flag in flags if not flag.startswith(_FLAG))


def is_ready() -> bool:
    """Whether TensorFlow looks for compiled code in the folder."""
    return _folder is not None


def provide(name: str, content: bytes) -> None:
    """Lays out a file with compiled code for TensorFlow to find."""
    assert _folder is not None
    (_folder / Path(name).name).write_bytes(content)


def withdraw(name: str) -> None:
    """Takes a file that was provided away."""
    assert _folder is not None
    (_folder / Path(name).name).unlink(missing_ok=True)


def collect(function: str) -> dict[str, bytes]:
    """Takes the files of one function away, by the name that TensorFlow wrote into them."""
    assert _folder is not None
    found = {}
    # What is gone meanwhile was another function's: two may be compiled at once.
    with contextlib.suppress(FileNotFoundError):
        for path in _folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                content = path.read_bytes()
                if f"{function}[".encode() in content:
                    found[path.name] = content
                    path.unlink()
    return found


def clear() -> None:
    """Removes what lies there; TensorFlow then compiles, and writes anew."""
    if _folder is not None:
        _folder.mkdir(exist_ok=True)  # someone may have tidied up
        for path in _folder.iterdir():
            path.unlink(missing_ok=True)


def remove() -> None:
    """Removes the folder; for a process that is about to end."""
    if _folder is not None:
        shutil.rmtree(_folder, ignore_errors=True)


def _remove_leftovers(place: Path) -> None:
    """Removes the folders of processes that ended without a chance to do it."""
    for path in place.glob(f"{_PREFIX}*"):
        process = path.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists() and Path("/proc").exists():
            shutil.rmtree(path, ignore_errors=True)
