"""Machine code for this processor, from LLVM's intermediate representation.

Knows llvmlite: how a module is compiled, and short forms of its builder's calls. A process compiles
a module once and keeps the code.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

FLOAT, VOID, POINTER = ir.FloatType(), ir.VoidType(), ir.PointerType()
BIT, BYTE, HALF, WORD, LONG = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))

LANES = 16
VECTOR = ir.VectorType(FLOAT, LANES)
"""The vector of all arithmetic; LLVM splits it for smaller registers."""
ZERO = ir.Constant(VECTOR, [0.0] * LANES)

Value = Any
"""A value of llvmlite's builder; llvmlite has no type hints."""


@functools.cache
def vector_registers() -> tuple[int, int]:
    """How many vector registers this processor has, and how many float32 one holds."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 32, 16
    if features.get("avx2"):
        return 16, 8
    return (32 if features.get("neon") else 16), 4


@functools.cache
def suits() -> bool:
    """Whether the processor converts float16; otherwise LLVM would need a library."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("f16c") or features.get("neon"))


def _machine() -> Any:
    """This processor, as LLVM generates code for it in XLA."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )


@functools.cache
def _engine() -> Any:
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())


def _parsed(module: ir.Module | str) -> Any:
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    return parsed


def address(module: ir.Module | str, name: str) -> int:
    """Compiles a module; the address of one of its functions. The code stays until the end."""
    engine = _engine()
    engine.add_module(_parsed(module))
    engine.finalize_object()
    return int(engine.get_function_address(name))


def assembly(module: ir.Module) -> str:
    """The same code as text."""
    return str(_machine().emit_assembly(_parsed(module)))


def long(number: int) -> ir.Constant:
    """A constant of 64 bits."""
    return ir.Constant(LONG, number)


class Builder(ir.IRBuilder):
    """The builder of a new function: `arguments` are its arguments."""

    def __init__(
        self,
        module: ir.Module,
        name: str,
        arguments: Sequence[ir.Type],
        returns: ir.Type = VOID,
        *,
        is_public: bool = False,
    ) -> None:
        function = ir.Function(module, ir.FunctionType(returns, arguments), name)
        if not is_public:
            function.linkage = "internal"
        super().__init__(function.append_basic_block("entry"))
        self.arguments = function.args

    def at(self, place: Value, distance: Value | int, unit: ir.Type = BYTE) -> Value:
        """The address `distance` units after a place."""
        distance = long(distance) if isinstance(distance, int) else distance
        return self.gep(place, [distance], source_etype=unit)

    def get(self, place: Value, kind: ir.Type, distance: Value | int = 0) -> Value:
        """The value `distance` bytes after a place."""
        return self.load(self.at(place, distance), typ=kind)

    def least(self, a: Value, b: Value) -> Value:
        """The smaller of two unsigned numbers."""
        return self.select(self.icmp_unsigned("<", a, b), a, b)

    def intrinsic(self, name: str, returns: ir.Type, arguments: Sequence[Value]) -> Value:
        """Calls a function of LLVM or the C library."""
        kind = ir.FunctionType(returns, [argument.type for argument in arguments])
        function = self.module.globals.get(name) or ir.Function(self.module, kind, name)
        return self.call(function, arguments)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """`a * b + c` of vectors, rounded once."""
        return self.intrinsic(f"llvm.fma.v{LANES}f32", VECTOR, [a, b, c])

    def pause(self) -> None:
        """Lets the processor rest for some cycles in a loop that waits."""
        if "x86" in llvm.get_default_triple():
            self.intrinsic("llvm.x86.sse2.pause", VOID, [])
        else:
            self.intrinsic("llvm.aarch64.hint", VOID, [ir.Constant(WORD, 1)])

    def total(self, vector: Value) -> Value:
        """The sum of a vector, by halves."""
        width = LANES
        while width > 1:
            width //= 2
            lanes = [*range(width, 2 * width), *range(LANES - width)]
            lanes = ir.Constant(ir.VectorType(WORD, LANES), lanes)
            vector = self.fadd(vector, self.shuffle_vector(vector, vector, lanes))
        return self.extract_element(vector, ir.Constant(WORD, 0))

    def splat(self, number: Value) -> Value:
        """A vector of one number."""
        unset = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
        first = self.insert_element(unset, number, ir.Constant(WORD, 0))
        return self.shuffle_vector(
            first, unset, ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES)
        )

    def greatest(self, a: Value, b: Value) -> Value:
        """The larger of two signed numbers."""
        return self.select(self.icmp_signed(">", a, b), a, b)

    def room(self, kind: ir.Type, count: int) -> Value:
        """Memory on the stack, aligned for vectors."""
        made = self.alloca(kind, size=count)
        made.align, made.type = 64, POINTER
        return made

    def call_at(self, place: Value, arguments: Sequence[Value], returns: ir.Type) -> Value:
        """Calls the function at an address."""
        kind = ir.FunctionType(returns, [argument.type for argument in arguments])
        place.type = kind.as_pointer()
        return self.call(place, arguments)


def table_lookup(builder: Builder, table: Sequence[int], places: Value) -> Value:
    """Table look-up: for a vector of `4 * LANES` bytes from 0 to 15, the table's bytes."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512bw"):
        width, name = 64, "llvm.x86.avx512.pshuf.b.512"
    elif features.get("avx2"):
        width, name = 32, "llvm.x86.avx2.pshuf.b"
    elif features.get("ssse3"):
        width, name = 16, "llvm.x86.ssse3.pshuf.b.128"
    else:
        width, name = 16, "llvm.aarch64.neon.tbl1.v16i8"
    vector = ir.VectorType(BYTE, width)
    repeated = ir.Constant(vector, [*table] * (width // len(table)))
    found = []
    for begin in range(0, 4 * LANES, width):
        lanes = ir.Constant(ir.VectorType(WORD, width), [*range(begin, begin + width)])
        found.append(
            builder.intrinsic(
                name, vector, [repeated, builder.shuffle_vector(places, places, lanes)]
            )
        )
    while len(found) > 1:
        both = ir.VectorType(WORD, 2 * found[0].type.count)
        lanes = ir.Constant(both, [*range(both.count)])
        found = [
            builder.shuffle_vector(*pair, lanes)
            for pair in zip(found[::2], found[1::2], strict=True)
        ]
    return found[0]


class ForLoop:
    """A loop over integers, which runs at least once, with loop-carried values.

    Attributes:
        index: of this iteration. values: the carried values.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        begin: Value,
        end: Value,
        step: int,
        values: Sequence[Value] = (),
    ) -> None:
        """Begins the loop: the builder now adds its body, up to `close`."""
        before = builder.block
        self._body = builder.append_basic_block("loop")
        builder.branch(self._body)
        builder.position_at_end(self._body)
        self._builder, self._end, self._step = builder, end, step
        self.index = builder.phi(LONG)
        self.index.add_incoming(begin, before)
        self.values = [builder.phi(value.type) for value in values]
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, before)

    def close(self, values: Sequence[Value] = ()) -> list[Value]:
        """Ends the body with the values for the next iteration; returns those after the last
        one."""
        builder = self._builder
        following = builder.add(self.index, long(self._step))
        self.index.add_incoming(following, builder.block)
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, builder.block)
        after = builder.append_basic_block("after")
        builder.cbranch(builder.icmp_unsigned("<", following, self._end), self._body, after)
        builder.position_at_end(after)
        return list(values)
