"""The formats of weights in memory and of activations, and the kernels that compute with them."""

from __future__ import annotations

import os

from xla_backend.compilation import device
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import shown
from xla_backend.kernels import registration

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
KERNELS_VARIABLE = "XLA_BACKEND_KERNELS"
OWN, XLA = "own", "xla"
KERNELS = (AUTO, OWN, XLA)
"""`own`: machine code of our own. `xla`: XLA alone, where that cannot run: on a GPU, another system
than Linux, an old processor. `auto`: `own` where it can run."""


def chosen(kind: str | None = None) -> str:
    """The format, or without one the environment's."""
    return _known("Weights (--weights", VARIABLE, kind, KINDS)


def chosen_activations(kind: str | None = None) -> str:
    """The format of activations, or without one the environment's; raises as `chosen`."""
    return _known("Activations (--activations", ACTIVATIONS_VARIABLE, kind, ACTIVATIONS)


def chosen_kernels(kernels: str | None = None) -> str:
    """The kernels, or without a choice the environment's: `OWN` or `XLA`."""
    kernels = known_kernels(kernels)
    if kernels == XLA:
        return XLA
    is_possible = registration.is_possible() and not device.chosen().is_gpu
    if kernels == OWN and not is_possible:
        raise InvalidRequest(
            "Own kernels (--kernels own) need Linux, a processor that converts float16, and no "
            "GPU (--device cpu); choose --kernels xla."
        )
    return OWN if is_possible else XLA


def known_kernels(kernels: str | None = None) -> str:
    """As `chosen_kernels`, but `auto` stays; does not look at the machine."""
    return _known("Kernels (--kernels", KERNELS_VARIABLE, kernels, KERNELS)


def all_of(weights: str, activations: str, kernels: str) -> str:
    """Formats and kernels as one string: compiled functions depend on all."""
    more = [activations] * (activations != EXACT) + [kernels] * (kernels != OWN)
    return " ".join([weights, *more])


def _known(what: str, variable: str, kind: str | None, kinds: tuple[str, ...]) -> str:
    kind = kind or os.environ.get(variable) or kinds[0]
    if kind not in kinds:
        raise InvalidRequest(
            f"{what}, {variable}) must be {', '.join(kinds[:-1])} or {kinds[-1]}, "
            f"not {shown(kind, 40)}."
        )
    return kind
