"""The machine code of kernels on this processor, as text, with its instructions counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from llvmlite import ir

from xla_backend.kernels import catalog, machine_code
from xla_backend.kernels.matmul import matmul, micro_kernel
from xla_backend.kernels.matmul.blocks import FORMATS
from xla_backend.kernels.matmul.packing import FLOATS

_NAMED = 6
"""Kinds of instructions that a count names."""
_LABEL = re.compile(r"([.\w]+):")
_JUMP = re.compile(r"\tj\w+\t(\.\w+)")


def module(name: str, rows: int | None, in_eight_bits: bool = False) -> ir.Module:
    """A kernel of the catalog, or the micro-kernel of a format for some rows.

    Raises:
        ValueError: there is none; the message says what to give.
    """
    if rows is None:
        if name not in catalog.NAMES:
            raise ValueError(f"There is no kernel {name}: see `list`, or give a format and --rows.")
        return catalog.build(name)
    if name not in (*FLOATS, *FORMATS) or rows < 1:
        raise ValueError(f"--rows needs a format: {', '.join((*FLOATS, *FORMATS))}.")
    integers = matmul.quantized_rows(name, in_eight_bits)
    made = ir.Module(name)
    micro_kernel.micro_kernel(made, rows, name, prefetches=True, integers=integers).linkage = ""
    return made


def assembly(name: str, rows: int | None = None, in_eight_bits: bool = False) -> str:
    """The machine code. A comment before each function and each innermost loop counts."""
    lines = machine_code.assembly(module(name, rows, in_eight_bits)).splitlines()
    return "\n".join(_counted([line for line in lines if not line.startswith("\t.")]))


def _counted(lines: list[str]) -> Iterator[str]:
    labels = {found[1]: at for at, line in enumerate(lines) if (found := _LABEL.match(line))}
    functions = [at for name, at in labels.items() if not name.startswith(".")]
    ends = dict(zip(functions, [*functions[1:], len(lines)], strict=True))
    # The last jump back to each label ends its loop; one without another in it is innermost.
    loops: dict[int, int] = {}
    for at, line in enumerate(lines):
        if (found := _JUMP.match(line)) and labels.get(found[1], at) < at:
            loops[labels[found[1]]] = at + 1
    for at, line in enumerate(lines):
        if at in ends:
            yield f"\n# {_count(lines[at : ends[at]])}"
        if at in loops and not any(at < other < loops[at] for other in loops):
            yield f"# innermost loop: {_count(lines[at : loops[at]])}"
        yield line


def _count(lines: Iterable[str]) -> str:
    kinds = Counter(line.split()[0] for line in lines if line.startswith("\t"))
    named = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common(_NAMED))
    return f"{kinds.total()} instructions: {named}"
