"""A lock around imports of Transformers.

Knows that this package and its subpackages replace their module object at the end of their import,
so that another thread that imports them meanwhile gets an empty module: a page that was opened just
after the start then reported that the model had no configuration.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

_importing = threading.Lock()


@contextlib.contextmanager
def locked_transformers() -> Iterator[Any]:
    """Yields the package `transformers`; other threads wait until the block ends.

    Use it to import the package, and for its Auto classes, which import modules when they need
    them. Must not be nested.
    """
    with _importing:
        yield importlib.import_module("transformers")
