"""Transformers, used by one thread at a time where it may import more of itself.

Knows that the package, and packages within it, put another module in their own place at the end of
their import: a thread that asks meanwhile gets the first one, which has nothing yet. Whoever opened
a page just after the app had started was told that the model had no configuration. Must not know
what is read.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

_importing = threading.Lock()


@contextlib.contextmanager
def transformers_alone() -> Iterator[Any]:
    """The package `transformers`; whoever else asks waits until the block is left.

    For blocks that import it, or read a configuration, a tokenizer or the like by its Auto classes,
    which import what they need when they need it. Not to be nested.
    """
    with _importing:
        yield importlib.import_module("transformers")
