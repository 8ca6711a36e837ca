"""`Measurement`: one token as it was measured, and what the machine can do at most, as data.

Knows what the numbers mean and how they agree. Must not know how they are measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xla_backend.inspection.inspection import FunctionInside


@dataclass(frozen=True)
class MachineLimits:
    """The best that was ever measured on this machine.

    Attributes:
        read_bytes_s: bytes that all cores read from memory, a second.
        flops_s: operations of a large product of matrices, a second.
    """

    read_bytes_s: float
    flops_s: float

    def shortest_s(self, flops: float, bytes: float) -> float:
        """The shortest time that so much work can take: what lasts longer, numbers or memory."""
        return max(flops / self.flops_s, bytes / self.read_bytes_s)

    @property
    def ridge(self) -> float:
        """FLOPs a byte from which on not memory limits, but the processor."""
        return self.flops_s / self.read_bytes_s


@dataclass(frozen=True)
class WayOfALayer:
    """One layer, called in one way.

    Attributes:
        operations: that TensorFlow carries out. kernels: pieces of machine code that run.
        bytes: read and written by them. seconds: of a call, the median.
    """

    operations: int
    kernels: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Measurement:
    """A token of one function, measured.

    Attributes:
        token_s: a token without the profiler, in seconds: the median before or after, whichever is
            shorter. profiled_token_s: a token with it, the median.
        kernel_s: of a token, by the kernel's name; measured by XLA's profiler.
        prefill_s: a prompt, without the profiler.
        limits: of the machine.
        ways: one layer by way: "eager", "graph", "xla"; empty where the model's family has no
            layers that can be called alone.
        load: how many programs wanted a core meanwhile, this one among them.
        took_s: all of it, with loading the model, in seconds.
    """

    token_s: float
    profiled_token_s: float
    kernel_s: Mapping[str, float]
    prefill_s: float
    limits: MachineLimits
    load: float
    took_s: float
    ways: Mapping[str, WayOfALayer] = field(default_factory=dict)

    @property
    def kernels_s(self) -> float:
        """All kernels of a token together."""
        return sum(self.kernel_s.values())

    @property
    def between_s(self) -> float:
        """What is left of a token without the profiler: the way from one kernel to the next.

        With the profiler that way is longer: it is where the profiler writes.
        """
        return max(0.0, self.token_s - self.kernels_s)

    @property
    def overhead(self) -> float:
        """How much longer a token took with the profiler, as a share."""
        return self.profiled_token_s / self.token_s - 1

    def distance(self, function: FunctionInside) -> float:
        """How many times as long a token took as the machine's limits allow."""
        return self.token_s / self.limits.shortest_s(function.flops, function.bytes)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Measurement:
        """The inverse of `to_json`."""
        ways = {name: WayOfALayer(**way) for name, way in values["ways"].items()}
        return cls(**{**values, "limits": MachineLimits(**values["limits"]), "ways": ways})
