"""`Compiler`: makes functions ready to run, from the store where it can, and stores what it makes.

Knows how a definition and XLA's machine code travel between TensorFlow and the store. Must not know
what the functions compute or which key asks for them, nor what the files of XLA's cache look like
(`stand_in`).
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from xla_backend import stand_in, xla_folder
from xla_backend.naming import trace_entry
from xla_backend.store import Store
from xla_backend.traced_function import Definition, TracedFunction

logger = logging.getLogger(__name__)

_stored_here: set[str] = set()
"""The files of this process. TensorFlow remembers their stand-ins compiled as what they are, and
the functions too: those run again without a file."""


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

    def compile(
        self, function: TracedFunction, entry: str, arguments: Sequence[Any]
    ) -> tuple[Callable[..., Any], bool]:
        """Makes a function ready to run for one set of sizes.

        Args:
            function: has been traced.
            entry: the store's name for its machine code.
            arguments: nests of tensors of those sizes, with which it has no work to do.

        Returns:
            What is to be called with arguments of those sizes, and whether its machine code came
            from the store.
        """
        if not xla_folder.is_ready():
            function(*arguments)
            return function, False
        with self._locks[function.name]:
            if (restored := self._restore(function, entry, arguments)) is not None:
                return restored, True
            try:
                results = function(*arguments)
            except Exception:
                xla_folder.clear()  # it may be full
                logger.warning("Compiling failed; trying once more.", exc_info=True)
                results = function(*arguments)
            code = list(xla_folder.collect(function.name).values())
            if self._store is not None and function.definition is not None and code:
                self._keep(function, entry, code, arguments, results)
            return function, False

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

    def _restore(
        self, function: TracedFunction, entry: str, arguments: Sequence[Any]
    ) -> Callable[..., Any] | None:
        """What calls the stored machine code; None if there is none that can be used."""
        if self._store is None or function.definition is None:
            return None
        stored = self._store.load(entry)
        if stored is None:
            return None
        description, blobs = stored
        try:
            name, file = description["stand_in"], description["file"]
            definition, code = blobs
            if file in _stored_here:
                function(*arguments)
                return function
            run = function.through(definition)
            xla_folder.provide(file, code)
        except Exception as error:
            logger.warning("Stored code %s cannot be used (%s); compiling anew.", entry, error)
            return None
        try:
            if not stand_in.has_run(tf.nest.flatten(run(*arguments))):
                return run
            xla_folder.collect(name)
            reason = "XLA looks for it elsewhere"
        except Exception as error:
            reason = f"XLA refuses it ({_first_line(error)})"
        finally:
            xla_folder.withdraw(file)
        self._store.set_aside(entry, reason)
        return None

    def _keep(
        self,
        function: TracedFunction,
        entry: str,
        code: Sequence[bytes],
        arguments: Sequence[Any],
        results: Any,
    ) -> None:
        """Stores the machine code of a function, under a stand-in.

        Its name is a new one each time: TensorFlow remembers under which name XLA refused code.
        """
        name = f"{function.name}_stand_in_{secrets.token_hex(8)}"
        given, returned = tf.nest.flatten(arguments), tf.nest.flatten(results)
        try:
            (own,) = code
            captures = len(function.definition.captures)
            definition = stand_in.define(name, given, captures, returned)
            if not stand_in.has_run(tf.nest.flatten(function.through(definition)(*arguments))):
                raise ValueError("its stand-in does not leave its mark")
            ((file, content),) = xla_folder.collect(name).items()
            whole = stand_in.with_code_of(own, content)
        except Exception:
            logger.warning("%s cannot be stored; each start compiles anew.", entry, exc_info=True)
        else:
            _stored_here.add(file)
            self._store.save(entry, {"stand_in": name, "file": file}, [definition, whole])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
