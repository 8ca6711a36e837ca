"""`read`: inspects the compiled functions of a cache key in the store.

Nothing is traced, compiled or run.
"""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import Any

from xla_backend.compilation import naming, xla_files
from xla_backend.compilation.store import Store
from xla_backend.inspection.hlo import costs, operations, origin, protos
from xla_backend.inspection.hlo.costs import Module
from xla_backend.inspection.hlo.kernels import Kernel, Walk
from xla_backend.inspection.inspection import FunctionInside, Inspection, KernelInside
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import InvalidRequest

Entry = tuple[dict[str, Any], list[bytes]]


def inspect(folder: Path, model: str, identity: str, key: CacheKey) -> Inspection:
    """Both functions of a key in the store of a folder; arguments and errors as for `read`."""
    start = time.perf_counter()
    prefill, decode = read(Store(folder), identity, key)
    return Inspection(model, key, prefill, decode, time.perf_counter() - start)


def read(store: Store, identity: str, key: CacheKey) -> tuple[FunctionInside, FunctionInside]:
    """Prefill in one call, and decode for one token.

    Args:
        identity: of the model, from `naming.identity`.
    """
    prefill = naming.prefill_function(identity)
    decode = naming.decode_function(identity, key)
    return (
        _read(store, prefill, naming.prefill_code_entry(identity, key.padded_length), False),
        _read(store, decode, naming.decode_code_entry(identity, key), True),
    )


def _read(store: Store, function: str, code_entry: str, is_decode: bool) -> FunctionInside:
    traced, blobs = _load(store, naming.trace_entry(function))
    compiled, (_, code, hlo) = _load(store, code_entry)
    functions, sources = blobs[: traced["functions"]], blobs[traced["functions"] :]
    entry, _ = xla_files.file_messages()
    whole, first = protos.executable()
    executable = whole.FromString(entry.FromString(code).executable)
    module = Module(first.FromString(executable.hlo).value)
    weights = _Weights(module, traced["captures"])
    kernels = weights.walk(module, is_decode)
    before = weights.walk(Module(zlib.decompress(hlo)), is_decode)
    memory = _memory(executable)
    # Prefill has a branch that runs the prompt. Decode's usual token is not the first, and sampled
    # only if the options say so: see `model.decoding`.
    counted = (
        operations.count_of_round(functions, "else_branch")
        if is_decode
        else operations.count(functions, "then_branch")
    )
    return FunctionInside(
        operations=counted,
        hlo_instructions=len(before),
        optimized_instructions=sum(kernel.instructions for kernel in kernels),
        flops=sum(kernel.flops for kernel in kernels),
        transcendentals=sum(kernel.transcendentals for kernel in kernels),
        bytes=sum(kernel.bytes for kernel in kernels),
        weight_bytes=sum(sum(weights.read_by(kernel).values()) for kernel in kernels),
        constants_bytes=sum(
            costs.size(each.shape)
            for each in module.instructions.values()
            if each.opcode == "constant"
        ),
        code_bytes=sum(len(first.FromString(file).value) for file in executable.object_files),
        argument_bytes=memory["argument"],
        result_bytes=memory["result"],
        temporary_bytes=memory["temporary"],
        trace_s=traced.get("trace_s"),
        compile_s=compiled.get("compile_s"),
        kernels=tuple(_described(weights, origin.Sources(sources), module, kernels)),
    )


class _Weights:
    """The arguments of a function that are weights, by number."""

    def __init__(self, module: Module, captures: list[str]) -> None:
        count = sum(each.opcode == "parameter" for each in module.entry.instructions)
        first = count - len(captures)  # the variables come last
        self._names = dict(enumerate(captures, first))

    def walk(self, module: Module, body_only: bool) -> list[Kernel]:
        shared = {number for number, name in self._names.items() if origin.is_shared(name)}
        return Walk(module, self._layer, shared, body_only).run()

    def read_by(self, kernel: Kernel) -> dict[str, int]:
        return {
            self._names[number]: count
            for number, count in kernel.reads.items()
            if number in self._names and count
        }

    def _layer(self, number: int) -> int | None:
        return origin.layer_of(self._names[number]) if number in self._names else None


def _described(
    weights: _Weights, sources: origin.Sources, module: Module, kernels: list[Kernel]
) -> list[KernelInside]:
    described: list[KernelInside] = []
    for kernel in kernels:
        read = weights.read_by(kernel)
        frames = sources.of(_operation(module, kernel.instruction))
        part = origin.part_of(list(read), list(read.values()), frames)
        if part == origin.OTHER and described:
            part = described[-1].part  # without an own origin it counts with the previous kernel
        described.append(
            KernelInside(
                name=kernel.instruction.name,
                opcode=kernel.instruction.custom_call_target or kernel.instruction.opcode,
                layer=kernel.depth,
                part=part,
                source=str(frames[-1]) if frames else "",
                weights=tuple(read),
                instructions=kernel.instructions,
                calls=kernel.calls,
                flops=kernel.flops,
                transcendentals=kernel.transcendentals,
                bytes=kernel.bytes,
            )
        )
    return described


def _operation(module: Module, instruction: Any) -> str:
    """TensorFlow's name of a kernel's operation; of a fusion's most expensive one."""
    if instruction.opcode != "fusion":
        return instruction.metadata.op_name
    named = [one for one in module.called(instruction)[0].instructions if one.metadata.op_name]
    if not named:
        return instruction.metadata.op_name

    def weight(one: Any) -> int:
        return sum(costs.flops(module, one)) + costs.elements(one.shape)

    return max(named, key=weight).metadata.op_name


def _memory(executable: Any) -> dict[str, int]:
    """Bytes of the buffers that XLA has assigned, by purpose."""
    found = {"argument": 0, "result": 0, "temporary": 0}
    buffers = protos.hlo().BufferAssignmentProto.FromString(executable.buffers)
    for each in buffers.buffer_allocations:
        if each.is_entry_computation_parameter:
            found["argument"] += each.size
        elif each.maybe_live_out:
            found["result"] += each.size
        elif not each.is_constant and not each.is_thread_local:
            found["temporary"] += each.size
    return found


def _load(store: Store, name: str) -> Entry:
    found = store.load(name)
    if found is None:
        raise InvalidRequest(
            "This function is not in the store, so there is nothing to inspect: generate a text "
            "with it first."
        )
    return found
