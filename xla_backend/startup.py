"""How a process gets ready for TensorFlow, and keeps the noise of its start off the terminal.

Knows environment variables, loggers and file descriptors that libraries write to. Must not import
TensorFlow itself: everything here has to happen before that import.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import sys
import tempfile
from collections.abc import Iterator

from xla_backend import xla_folder

ENVIRONMENT = {
    # Transformers' TensorFlow models are Keras 2 models.
    "TF_USE_LEGACY_KERAS": "1",
}
"""What the engine needs, whoever asks for it."""

QUIET_ENVIRONMENT = {
    # C++ logs below FATAL: the start-up lines are INFO, and on a machine without a GPU even ERROR.
    # What goes wrong in a request arrives as a Python exception in any case.
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}
"""What makes the libraries silent about everything but failures."""


# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_is_prepared = False


def prepare_environment(quiet: bool = True) -> None:
    """Sets what the engine needs in this process, before TensorFlow is imported.

    Only the first call counts: the program's own comes before the library's.
    """
    global _is_prepared
    if _is_prepared:
        return
    _is_prepared = True
    os.environ.update(ENVIRONMENT)
    xla_folder.prepare()
    if quiet:
        for name, value in QUIET_ENVIRONMENT.items():
            os.environ.setdefault(name, value)


def import_engine() -> None:
    """Imports the engine, in less time than TensorFlow alone takes otherwise.

    Without Keras, which TensorFlow imports as its last step, and pandas with it. It does without
    where that fails. `tf.keras` still works: it is imported at its first use.

    And without looking for garbage among what has come to stay: measured, a quarter of the rest,
    and 0.2 s in which nothing else in Python runs whenever it happens later, say in a request. So
    the collector pauses meanwhile, and afterwards passes by what is there.

    For programs of our own; a library must not decide it for its host.
    """
    prepare_environment()
    gc.disable()
    try:
        with _without_keras():
            import tensorflow  # noqa: F401
        import xla_backend.backend  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _without_keras() -> Iterator[None]:
    """Makes TensorFlow's import of it fail inside the block, unless it is there already."""
    name = "tf_keras.src.optimizers"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # Python's way to say: not importable
    try:
        yield
    finally:
        del sys.modules[name]


def keep_freed_memory() -> None:
    """Has the C library keep freed memory for the next need, where it is glibc.

    It hands large blocks back to the system at once, and the system clears every page that it hands
    out again: measured, restoring compiled functions takes a third less without that, and memory
    grows to the same size. For programs of our own; a library must not decide it for its host.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(parameter, 2**31 - 1)


@contextlib.contextmanager
def native_noise_held_back() -> Iterator[None]:
    """Holds back what is written to file descriptor 2 inside the block, unless it fails.

    TensorFlow's C++ libraries print before their logging is configured, so no variable silences
    them. An exception lets out all that was held back, and a crash inside the block (say, a CPU
    without the instructions that TensorFlow needs) still prints its traceback.
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
