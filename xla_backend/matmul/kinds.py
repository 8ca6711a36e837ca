"""Which format the weights of models are kept in: what was asked for.

Knows the choices and where they are made. Must not know files, nor how products are computed.
"""

from __future__ import annotations

import os

from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import shown

VARIABLE = "XLA_BACKEND_WEIGHTS"
"""Environment variable of the choice, for a `Registry` that is told none."""
AUTO, FLOAT32, BFLOAT16, INT8 = "auto", "float32", "bfloat16", "int8"
KINDS = (AUTO, FLOAT32, BFLOAT16, INT8)
"""`auto`: as the checkpoint has them, so that no number changes: float32, float16, bfloat16, or a
GGUF file's blocks. `float32`: all made wide. `bfloat16`, `int8`: wider ones are
rounded to it; narrower ones and small matrices stay as they are (`matrix.has_product`)."""


def chosen(kind: str | None = None) -> str:
    """The kind, or where none is given the one that the environment asks for.

    Raises:
        InvalidRequest: there is none of that name.
    """
    kind = kind or os.environ.get(VARIABLE) or AUTO
    if kind not in KINDS:
        raise InvalidRequest(
            f"Weights (--weights, {VARIABLE}) are kept as {', '.join(KINDS[:-1])} or {KINDS[-1]}, "
            f"not as {shown(kind, 40)}."
        )
    return kind
