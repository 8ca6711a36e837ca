"""`Compiler`: restores functions from the store, or traces, compiles and stores them."""

from __future__ import annotations

import logging
import secrets
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from xla_backend.compilation import hlo_stub, xla_folder
from xla_backend.compilation.naming import trace_entry
from xla_backend.compilation.store import Store
from xla_backend.compilation.traced_function import Definition, TracedFunction
from xla_backend.compilation.xla_files import file_messages

logger = logging.getLogger(__name__)

_stored_here: set[str] = set()
"""XLA cache files that this process wrote. TensorFlow has compiled their HLO stubs as stubs, and
still has the functions themselves, which run again without a file."""


class Compiler:
    """Traces and compiles, or restores. Thread-safe; one thread at a time per function.

    Attributes:
        store: of what it makes; None for none.
    """

    def __init__(self, store: Store | None) -> None:
        """Without a store it traces and compiles everything."""
        self.store = store
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def trace(self, function: TracedFunction) -> bool:
        """Makes a function callable; returns whether it could skip tracing."""
        with self._locks[function.name]:
            if function.is_traced or self._adopt(function):
                return True
            start = time.perf_counter()
            function.trace()
            seconds = time.perf_counter() - start
            if self.store is not None and (definition := function.definition) is not None:
                self.store.save(
                    trace_entry(function.name),
                    {**definition.describe(), "trace_s": seconds},
                    [*definition.functions, *definition.sources],
                )
            return False

    def compile(
        self, function: TracedFunction, entry: str, arguments: Sequence[Any]
    ) -> tuple[Callable[..., Any], bool]:
        """Makes a function ready to run for one set of argument shapes.

        Args:
            entry: name of its machine code in the store.
            arguments: nests of tensors with those shapes, whose values give it no work to do.

        Returns:
            The callable for arguments of those shapes, and whether its machine code came from the
            store.
        """
        if not xla_folder.is_ready():
            function(*arguments)
            return function, False
        with self._locks[function.name]:
            if (restored := self._restore(function, entry, arguments)) is not None:
                return restored, True
            start = time.perf_counter()
            try:
                results = function(*arguments)
            except Exception:
                xla_folder.clear()  # the disk may be full
                logger.warning("Compiling failed; trying once more.", exc_info=True)
                results = function(*arguments)
            seconds = time.perf_counter() - start
            code = list(xla_folder.collect(function.name).values())
            if code:
                self._save(function, entry, code, arguments, results, seconds)
            return function, False

    def _adopt(self, function: TracedFunction) -> bool:
        name = trace_entry(function.name)
        stored = self.store.load(name) if self.store is not None else None
        if stored is None:
            return False
        try:
            function.adopt(Definition.from_description(*stored))
        except Exception:
            logger.warning("Stored definition %s does not fit; tracing again.", name, exc_info=True)
            return False
        return True

    def _restore(
        self, function: TracedFunction, entry: str, arguments: Sequence[Any]
    ) -> Callable[..., Any] | None:
        """A callable that runs the stored machine code; None if there is no usable code."""
        if self.store is None or function.definition is None:
            return None
        stored = self.store.load(entry)
        if stored is None:
            return None
        description, blobs = stored
        try:
            name, file = description["hlo_stub"], description["file"]
            definition, code, *_ = blobs
            if file in _stored_here:
                function(*arguments)
                return function
            run = function.through(definition)
            xla_folder.provide(file, code)
        except Exception as error:
            logger.warning("Stored code %s cannot be used (%s); compiling again.", entry, error)
            return None
        try:
            if not hlo_stub.is_own_output(tf.nest.flatten(run(*arguments))):
                return run
            xla_folder.collect(name)
            reason = "XLA looks for it under another name"
        except Exception as error:
            first_line, *_ = str(error).split("\n")
            reason = f"XLA refuses it ({first_line})"
        finally:
            xla_folder.withdraw(file)
        self.store.set_aside(entry, reason)
        return None

    def _save(
        self,
        function: TracedFunction,
        entry: str,
        code: Sequence[bytes],
        arguments: Sequence[Any],
        results: Any,
        compile_s: float,
    ) -> None:
        """Stores the machine code of a function under the name of an HLO stub.

        Each stub gets a new name: TensorFlow remembers the names for which XLA refused code.
        """
        if self.store is None or function.definition is None:
            return
        name = f"{function.name}_hlo_stub_{secrets.token_hex(8)}"
        given, returned = tf.nest.flatten(arguments), tf.nest.flatten(results)
        try:
            (own,) = code
            definition = hlo_stub.define(name, given, function.captures, returned)
            if not hlo_stub.is_own_output(
                tf.nest.flatten(function.through(definition)(*arguments))
            ):
                raise ValueError("its HLO stub does not return the mark")
            ((file, content),) = xla_folder.collect(name).items()
            whole = hlo_stub.with_code_of(own, content)
        except Exception:
            logger.warning("%s cannot be stored; each start compiles again.", entry, exc_info=True)
        else:
            _stored_here.add(file)
            # What XLA made the code from is saved for `inspection`.
            hlo = zlib.compress(file_messages()[0].FromString(own).hlo_module)
            description = {"hlo_stub": name, "file": file, "compile_s": compile_s}
            self.store.save(entry, description, [definition, whole, hlo])
