"""The function that XLA calls: how it reads a call's frame."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from xla_backend.kernels import ffi
from xla_backend.kernels.machine_code import BYTE, LONG, POINTER, VOID, WORD, Builder, Value, long


class Handler(Builder):
    """The builder of a handler: adds the code of a call, up to `close`.

    Attributes:
        api: XLA's table of functions. context: of the call.
        result: address of the result's numbers. result_columns: its second axis.
    """

    def __init__(self, module: ir.Module, name: str) -> None:
        super().__init__(module, name, [POINTER], POINTER, is_public=True)
        self._allocated: list[Value] = []
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

    def allocate(self, size: Value, *, until_close: bool = True) -> Value:
        """The address of `size` bytes; without memory the call ends with an error.

        Args:
            size: not 0.
            until_close: whether `close` frees it.
        """
        place = self.intrinsic("malloc", POINTER, [size])
        self.end_without_memory(self.icmp_unsigned("==", place, ir.Constant(POINTER, None)))
        if until_close:
            self._allocated.append(place)
        return place

    def end_without_memory(self, condition: Value) -> None:
        """Ends the call with an error if the condition holds."""
        with self.if_then(condition, likely=False):
            text = bytearray(b"There was not enough memory for a kernel's numbers.\0")
            kind = ir.ArrayType(BYTE, len(text))
            name = self.module.get_unique_name("no_memory")
            message = ir.GlobalVariable(self.module, kind, name)
            message.linkage, message.global_constant = "internal", True
            message.initializer = ir.Constant(kind, text)
            arguments = self.structure([message, long(ffi.RESOURCE_EXHAUSTED)])
            create = self.get(self.api, POINTER, ffi.API_CREATE_ERROR)
            self._end(self.call_at(create, [arguments], POINTER))

    def threads(self) -> Value:
        """Number of threads in XLA's pool; 1 if a call has no pool."""
        count = self.room(LONG, 1)
        self.store(long(1), count)
        num_threads = self.get(self.api, POINTER, ffi.API_NUM_THREADS)
        error = self.call_at(num_threads, [self.structure([self.context, count])], POINTER)
        with self.if_then(self.icmp_unsigned("!=", error, ir.Constant(POINTER, None))):
            destroy = self.get(self.api, POINTER, ffi.API_DESTROY_ERROR)
            self.call_at(destroy, [self.structure([error])], VOID)
        return self.load(count, typ=LONG)

    def structure(self, values: Sequence[Value]) -> Value:
        """The argument structure of a function in XLA's table: its size, no extension, values."""
        place = self.room(LONG, 2 + len(values))
        fields = [long(8 * (2 + len(values))), long(0), *values]
        for at, value in enumerate(fields):
            self.store(value, self.at(place, 8 * at))
        return place

    def close(self) -> None:
        """Ends the call without an error."""
        self._end(ir.Constant(POINTER, None))

    def _end(self, error: Value) -> None:
        for place in self._allocated:
            self.intrinsic("free", VOID, [place])
        self.ret(error)
