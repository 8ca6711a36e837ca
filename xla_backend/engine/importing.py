"""How our own programs import the engine quickly.

Knows what TensorFlow imports that the engine does not need. Must not import TensorFlow before
`import_engine` is called.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from xla_backend.compilation.startup import prepare_environment


def import_engine() -> None:
    """Imports the engine in less time than TensorFlow alone usually takes.

    TensorFlow's last step is to import Keras, and pandas with it; it copes if that fails, and
    `tf.keras` is still imported at its first use. So the import of Keras is blocked here.

    The garbage collector is paused, which saves a quarter of the remaining time, and afterwards
    ignores all present objects, which saves pauses of 0.2 s later, for example during a request.

    For our own programs only: a library must not decide this for its host.
    """
    prepare_environment()
    gc.disable()
    try:
        with _without_keras():
            import tensorflow  # noqa: F401
        import xla_backend.engine.backend  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _without_keras() -> Iterator[None]:
    """Makes the import of Keras fail inside the block, unless it is imported already."""
    name = "keras.src.optimizers"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # makes it not importable
    try:
        yield
    finally:
        del sys.modules[name]
