"""Handlers in machine code: how they read XLA's call, and how they are compiled and registered.

Knows where operands and results are in a call's frame. Must not know what is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from llvmlite import ir

from xla_backend.matmul import foreign_calls, machine_code
from xla_backend.matmul.machine_code import LONG, POINTER, WORD, Builder, Value


def is_possible() -> bool:
    """Whether this TensorFlow and this processor can run our own machine code."""
    return foreign_calls.are_possible() and machine_code.suits()


def prepare(name: str, module: Callable[[str], ir.Module]) -> None:
    """Starts compiling and registering a handler, once per process.

    In another thread, while the caller reads weights.
    """
    with _preparing:
        if name not in _begun:
            _begun[name] = _beside.submit(_register, name, module)


def wait_until_ready() -> None:
    """Waits for all handlers that `prepare` started.

    Raises:
        RuntimeError: XLA refuses one; the next `prepare` of its name tries again.
    """
    for name, begun in list(_begun.items()):
        if begun.exception() is not None:
            _begun.pop(name, None)
        begun.result()


_preparing = threading.Lock()
_beside = ThreadPoolExecutor(1, "products")
_begun: dict[str, Future[None]] = {}


def _register(name: str, module: Callable[[str], ir.Module]) -> None:
    foreign_calls.register(name, machine_code.address(module(name), name))


class Handler(Builder):
    """The builder of a handler: adds the code of a call, up to `close`.

    Attributes:
        api: XLA's table of functions. context: of the call.
        result: address of the result's numbers. result_columns: its second axis.
    """

    def __init__(self, module: ir.Module, name: str) -> None:
        super().__init__(module, name, [POINTER], POINTER, is_public=True)
        (frame,) = self.arguments
        places = foreign_calls.FRAME
        asked = self.get(frame, POINTER, places["extension"])
        with self.if_then(self.icmp_unsigned("!=", asked, ir.Constant(POINTER, None))):
            # At registration XLA asks for the version of the interface.
            about = self.get(asked, POINTER, foreign_calls.METADATA)
            for place, number in zip(
                foreign_calls.METADATA_FIELDS, (*foreign_calls.VERSION, 0), strict=True
            ):
                self.store(ir.Constant(WORD, number), self.at(about, place))
            self.close()
        self.api = self.get(frame, POINTER, places["api"])
        self.context = self.get(frame, POINTER, places["context"])
        self._operands = self.get(frame, POINTER, places["operands"])
        result = self.get(self.get(frame, POINTER, places["results"]), POINTER)
        self.result = self.get(result, POINTER, foreign_calls.BUFFER["data"])
        lengths = self.get(result, POINTER, foreign_calls.BUFFER["axes"])
        self.result_columns = self.get(lengths, LONG, 8)

    def operand(self, place: int, axes: int = 0) -> tuple[Value, ...]:
        """The address of an operand's numbers, and the lengths of its first axes."""
        buffer = self.get(self._operands, POINTER, 8 * place)
        lengths = self.get(buffer, POINTER, foreign_calls.BUFFER["axes"])
        return self.get(buffer, POINTER, foreign_calls.BUFFER["data"]), *(
            self.get(lengths, LONG, 8 * axis) for axis in range(axes)
        )

    def close(self) -> None:
        """Ends the call without an error."""
        self.ret(ir.Constant(POINTER, None))
