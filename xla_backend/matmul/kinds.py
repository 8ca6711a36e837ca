"""The format of weights in memory.

Knows the choices and where they are made. Must not know files, nor how products are computed.
"""

from __future__ import annotations

import os

from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import shown

VARIABLE = "XLA_BACKEND_WEIGHTS"
"""Environment variable for a `Registry` without a choice."""
AUTO, FLOAT32, BFLOAT16, INT8 = "auto", "float32", "bfloat16", "int8"
KINDS = (AUTO, FLOAT32, BFLOAT16, INT8)
"""`auto`: as in the checkpoint, so that no number changes: float32, float16, bfloat16, or a GGUF
file's blocks. `float32`: all dequantized. `bfloat16`, `int8`: wider matrices are rounded; narrower
and small ones stay as they are (`matrix.has_product`)."""


def chosen(kind: str | None = None) -> str:
    """The format, or without one the environment's.

    Raises:
        InvalidRequest: there is no such format.
    """
    kind = kind or os.environ.get(VARIABLE) or AUTO
    if kind not in KINDS:
        raise InvalidRequest(
            f"Weights (--weights, {VARIABLE}) must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, "
            f"not {shown(kind, 40)}."
        )
    return kind
