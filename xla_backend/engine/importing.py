"""How a program of our own imports the engine: in less time than TensorFlow alone takes otherwise.

Knows what TensorFlow imports that the engine does without. Must not import TensorFlow before it is
asked to.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from xla_backend.compilation.startup import prepare_environment


def import_engine() -> None:
    """Imports the engine, in less time than TensorFlow alone takes otherwise.

    Without Keras, which TensorFlow imports as its last step, and pandas with it. It does without
    where that fails. `tf.keras` still works: it is imported at its first use.

    And without looking for garbage among what has come to stay: measured, a quarter of the rest,
    and 0.2 s in which nothing else in Python runs whenever it happens later, say in a request. So
    the collector pauses meanwhile, and afterwards ignores what is already there.

    For programs of our own; a library must not decide it for its host.
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
    """Makes TensorFlow's import of it fail inside the block, unless it is there already."""
    name = "keras.src.optimizers"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # Python's way to say: not importable
    try:
        yield
    finally:
        del sys.modules[name]
