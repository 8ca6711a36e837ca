"""`Compiler`: makes functions ready to run, from the store where it can, and stores what it makes.

Knows how a definition and XLA's machine code travel between TensorFlow and the store. Must not know
what the functions compute or which key asks for them.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable

from xla_backend import xla_folder
from xla_backend.naming import trace_entry
from xla_backend.store import Store
from xla_backend.traced_function import Definition, TracedFunction

logger = logging.getLogger(__name__)


class Compiler:
    """Traces and compiles, or restores. Thread-safe; one function is worked on once at a time."""

    def __init__(self, store: Store | None) -> None:
        """Without a store everything is made anew."""
        self._store = store
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def trace(self, function: TracedFunction) -> bool:
        """Makes a function callable; returns whether that took no tracing."""
        with self._locks[function.name]:
            if function.is_traced or self._adopt(function):
                return True
            function.trace()
            if self._store is not None and (definition := function.definition) is not None:
                self._store.save(
                    trace_entry(function.name), definition.describe(), definition.functions
                )
            return False

    def compile(self, function: TracedFunction, entry: str, call: Callable[[], object]) -> bool:
        """Makes XLA compile a function for one set of sizes.

        Args:
            function: has been traced.
            entry: the store's name for its machine code.
            call: calls the function with those sizes, without making it work.

        Returns:
            Whether XLA took all of the machine code from the store.
        """
        if not xla_folder.is_ready():
            call()
            return False
        with self._locks[function.name]:
            provided = self._provide(entry) if function.definition is not None else {}
            try:
                call()
            except Exception as error:
                # A full folder, or an entry that XLA refuses in spite of its checksum.
                xla_folder.clear()
                if provided:
                    self._store.set_aside(entry, f"XLA refuses it ({_first_line(error)})")
                    function.start_afresh()
                    provided = {}
                else:
                    logger.warning("Compiling failed; trying once more.", exc_info=True)
                call()
            found = xla_folder.collect(function.name)
            # XLA writes a file only for what it compiled itself.
            if provided and found.keys() == provided.keys():
                return True
            fresh = {name: code for name, code in found.items() if name not in provided}
            if self._store is not None and function.definition is not None and fresh:
                self._store.save(entry, {"files": list(fresh)}, list(fresh.values()))
            return False

    def _adopt(self, function: TracedFunction) -> bool:
        name = trace_entry(function.name)
        stored = self._store.load(name) if self._store is not None else None
        if stored is None:
            return False
        try:
            function.adopt(Definition.from_description(*stored))
        except Exception:
            logger.warning("Stored definition %s does not fit; tracing anew.", name, exc_info=True)
            return False
        return True

    def _provide(self, entry: str) -> dict[str, bytes]:
        stored = self._store.load(entry) if self._store is not None else None
        if stored is None:
            return {}
        description, blobs = stored
        try:
            files = dict(zip(description["files"], blobs, strict=True))
            xla_folder.provide(files)
        except (KeyError, TypeError, ValueError, OSError) as error:
            logger.warning("Stored code %s cannot be used (%s); compiling anew.", entry, error)
            return {}
        return files


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
