"""What XLA calls: how a handler in machine code reads its call, and is made ready beside others.

Knows where operands and results stand in a call's frame. Must not know what is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from llvmlite import ir

from xla_backend.matmul import foreign_calls, machine_code
from xla_backend.matmul.machine_code import LONG, POINTER, WORD, Builder, Value


def is_possible() -> bool:
    """Whether this TensorFlow and this processor can have machine code of our own."""
    return foreign_calls.are_possible() and machine_code.suits()


def prepare(name: str, module: Callable[[str], ir.Module]) -> None:
    """Begins to make the handler of a name ready, once in a process.

    It is translated and made known to XLA beside what the caller goes on with: reading weights.
    """
    with _preparing:
        if name not in _begun:
            _begun[name] = _beside.submit(_register, name, module)


def wait_until_ready() -> None:
    """Waits for all that `prepare` began.

    Raises:
        RuntimeError: XLA refuses one; the next `prepare` of its name tries anew.
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
    """The builder of a handler: what it adds is done at each call, up to `close`.

    Attributes:
        api: XLA's table of functions. context: of the call.
        result: the address of the result's numbers. result_columns: its second axis.
    """

    def __init__(self, module: ir.Module, name: str) -> None:
        """Begins the function that XLA knows by a name."""
        super().__init__(module, name, [POINTER], POINTER, is_public=True)
        (frame,) = self.arguments
        places = foreign_calls.FRAME
        asked = self.get(frame, POINTER, places["extension"])
        with self.if_then(self.icmp_unsigned("!=", asked, ir.Constant(POINTER, None))):
            # At registration XLA asks which version of the interface this is made for.
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
        """The address of an operand's numbers, and the lengths of so many of its axes."""
        buffer = self.get(self._operands, POINTER, 8 * place)
        lengths = self.get(buffer, POINTER, foreign_calls.BUFFER["axes"])
        return self.get(buffer, POINTER, foreign_calls.BUFFER["data"]), *(
            self.get(lengths, LONG, 8 * axis) for axis in range(axes)
        )

    def close(self) -> None:
        """Ends the call, without an error."""
        self.ret(ir.Constant(POINTER, None))
