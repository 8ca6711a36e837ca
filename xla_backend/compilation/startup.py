"""What a process does before it imports TensorFlow, and how it hides the import's messages.

Knows environment variables, the C library's allocator and file descriptors. Must not import
TensorFlow: everything here has to happen before that.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import sys
import tempfile
from collections.abc import Iterator

from xla_backend.compilation import device, xla_folder

ENVIRONMENT = {
    # Keras 3, which TensorFlow ships, even if the parent process uses the baseline's Keras 2.
    "TF_USE_LEGACY_KERAS": "0"
}
"""Environment variables of the engine's own process."""

QUIET_ENVIRONMENT = {
    # Hides C++ logs below FATAL: at start-up they are INFO, or ERROR on a machine without a GPU.
    # A request that fails raises a Python exception in any case.
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}
"""Environment variables that silence the libraries, except for failures."""

OFF_WORDS = ("off", "false", "no", "disabled")
_ON_WORDS = ("on", "true", "yes", "enabled")

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_is_prepared = False


def is_on(text: str) -> bool:
    """What a switch in a variable or a flag means.

    Raises:
        ValueError: it means neither; the message says what does.
    """
    word = text.strip().lower()
    if word in ("1", *_ON_WORDS):
        return True
    if word in ("0", *OFF_WORDS):
        return False
    words = ", ".join(("1", *_ON_WORDS, "0", *OFF_WORDS))
    raise ValueError(f"{text[:20]!r} is neither on nor off: write one of {words}")


def prepare_environment(quiet: bool = True) -> None:
    """Prepares this process for the engine, before it imports TensorFlow.

    Only the first call counts: a program calls this before the library does.
    """
    global _is_prepared
    if _is_prepared:
        return
    _is_prepared = True
    xla_folder.prepare()
    device.prepare()
    if quiet:
        for name, value in QUIET_ENVIRONMENT.items():
            os.environ.setdefault(name, value)


def retain_freed_memory() -> None:
    """Has glibc retain freed memory for later allocations; does nothing with other libraries.

    By default it returns large blocks to the system, which clears each page before it hands it out
    again. Measured: restoring compiled functions takes a third less time, and memory grows to the
    same size. Only for our own programs: a library must not decide this for its host.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(parameter, 2**31 - 1)


@contextlib.contextmanager
def captured_native_stderr() -> Iterator[None]:
    """Captures what the block writes to file descriptor 2, and prints it only if the block fails.

    TensorFlow's C++ libraries print before their logging is configured, so no variable silences
    them. A crash in the block (a CPU without the instructions that TensorFlow needs) still prints
    its traceback.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    faults_were_on = faulthandler.is_enabled()
    failed = False
    with tempfile.TemporaryFile() as held:
        try:
            faulthandler.enable(file=terminal)
            os.dup2(held.fileno(), 2)
            yield
        except Exception:
            failed = True
            raise
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            faulthandler.disable()
            if faults_were_on:
                faulthandler.enable()
            if failed:
                held.seek(0)
                while block := held.read(65536):
                    os.write(terminal, block)
            os.close(terminal)
