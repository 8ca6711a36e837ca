"""The formats of weights in memory, and of activations.

Knows the choices and where they are made.
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
ACTIVATIONS_VARIABLE = "XLA_BACKEND_ACTIVATIONS"
EXACT = "exact"
ACTIVATIONS = (EXACT, INT8)
"""`int8`: products with blocks round activations to 8 bits (`activations`), which is faster and
changes some tokens."""


def chosen(kind: str | None = None) -> str:
    """The format, or without one the environment's.

    Raises:
        InvalidRequest: there is no such format.
    """
    return _known("Weights (--weights", VARIABLE, kind, KINDS)


def chosen_activations(kind: str | None = None) -> str:
    """The format of activations, or without one the environment's; raises as `chosen`."""
    return _known("Activations (--activations", ACTIVATIONS_VARIABLE, kind, ACTIVATIONS)


def both(weights: str, activations: str) -> str:
    """The formats of weights and activations as one string: compiled functions depend on both."""
    return weights if activations == EXACT else f"{weights} {activations}"


def _known(what: str, variable: str, kind: str | None, kinds: tuple[str, ...]) -> str:
    kind = kind or os.environ.get(variable) or kinds[0]
    if kind not in kinds:
        raise InvalidRequest(
            f"{what}, {variable}) must be {', '.join(kinds[:-1])} or {kinds[-1]}, "
            f"not {shown(kind, 40)}."
        )
    return kind
