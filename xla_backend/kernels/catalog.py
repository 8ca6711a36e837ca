"""What kernels there are, by the names under which XLA calls them.

Knows how each is built. Names alone need no LLVM: the page asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xla_backend.kernels.matmul.blocks import FORMATS
from xla_backend.kernels.matmul.packing import FLOATS

if TYPE_CHECKING:
    from llvmlite import ir

_FORMATS = (*FLOATS, *FORMATS)
NAMES = {
    **{f"matmul_{each}": f"rows times a matrix in {each}" for each in _FORMATS},
    **{f"matmul_int8_{each}": f"the same with rows rounded to 8 bits, {each}" for each in FORMATS},
    **{f"matmul_split_{each}": f"rows times one of several in {each}" for each in _FORMATS},
    **{f"matmul_int8_split_{each}": f"the same in 8 bits, {each}" for each in FORMATS},
    **{f"columns_{each}": f"columns of a matrix in {each}, dequantized" for each in _FORMATS},
    "attention": "writes keys and values into KV blocks, and attends",
    "earlier": "writes lines into KV blocks, and reads those of the positions before",
    "recurrence": "changes states of rows by tokens (gated delta rule, Mamba-2)",
    "recurrence_step": "the same for a token of each state",
    "grammar_mask": "forbids the tokens that a grammar does not allow",
    "grammar_advance": "the grammar's next state",
    "grammar_drafts": "the tokens that probably come next",
}
"""Each kernel's name, and what it computes."""


def build(name: str) -> ir.Module:
    """A kernel in LLVM's intermediate representation.

    Raises:
        KeyError: there is no such kernel.
    """
    from xla_backend.kernels import grammar
    from xla_backend.kernels.attention import attention, earlier, recurrence
    from xla_backend.kernels.matmul import matmul

    others = {
        attention.NAME: attention.build,
        earlier.NAME: earlier.build,
        recurrence.NAME: recurrence.build,
        recurrence.STEP: recurrence.build_step,
        grammar.MASK: grammar.build_mask,
        grammar.ADVANCE: grammar.build_advance,
        grammar.DRAFTS: grammar.build_drafts,
    }
    if name in others:
        return others[name](name)
    if (number_format := name.removeprefix(matmul.READING)) in _FORMATS:
        return matmul.build_columns(number_format, name)
    form = name.removeprefix(matmul.MATMUL)
    in_eight_bits, is_split = form.startswith("int8_"), "split_" in form
    number_format = form.removeprefix("int8_").removeprefix("split_")
    if number_format not in _FORMATS:
        raise KeyError(name)
    return matmul.build(number_format, in_eight_bits, is_split, name)
