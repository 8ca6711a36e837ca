"""The function that XLA calls: how it reads a call's frame.

Knows where operands and results are in it. Must not know what is computed.
"""

from __future__ import annotations

from llvmlite import ir

from xla_backend.kernels import ffi
from xla_backend.kernels.machine_code import LONG, POINTER, WORD, Builder, Value


class Handler(Builder):
    """The builder of a handler: adds the code of a call, up to `close`.

    Attributes:
        api: XLA's table of functions. context: of the call.
        result: address of the result's numbers. result_columns: its second axis.
    """

    def __init__(self, module: ir.Module, name: str) -> None:
        super().__init__(module, name, [POINTER], POINTER, is_public=True)
        (frame,) = self.arguments
        places = ffi.FRAME
        extension = self.get(frame, POINTER, places["extension"])
        with self.if_then(self.icmp_unsigned("!=", extension, ir.Constant(POINTER, None))):
            # At registration XLA asks for the version of the interface.
            metadata = self.get(extension, POINTER, ffi.METADATA)
            for place, number in zip(ffi.METADATA_FIELDS, (*ffi.VERSION, 0), strict=True):
                self.store(ir.Constant(WORD, number), self.at(metadata, place))
            self.close()
        self.api = self.get(frame, POINTER, places["api"])
        self.context = self.get(frame, POINTER, places["context"])
        self._operands = self.get(frame, POINTER, places["operands"])
        result = self.get(self.get(frame, POINTER, places["results"]), POINTER)
        self.result = self.get(result, POINTER, ffi.BUFFER["data"])
        lengths = self.get(result, POINTER, ffi.BUFFER["axes"])
        self.result_columns = self.get(lengths, LONG, 8)

    def operand(self, place: int, axes: int = 0) -> tuple[Value, ...]:
        """The address of an operand's numbers, and the lengths of its first axes."""
        buffer = self.get(self._operands, POINTER, 8 * place)
        lengths = self.get(buffer, POINTER, ffi.BUFFER["axes"])
        return self.get(buffer, POINTER, ffi.BUFFER["data"]), *(
            self.get(lengths, LONG, 8 * axis) for axis in range(axes)
        )

    def close(self) -> None:
        """Ends the call without an error."""
        self.ret(ir.Constant(POINTER, None))
