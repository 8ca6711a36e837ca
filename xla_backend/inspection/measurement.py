"""`Measurement`: one measured token and the machine's limits, as data."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xla_backend.inspection.inspection import FunctionInside, KernelInside

LIMITS_FILE = "machine.json"


@dataclass(frozen=True)
class MachineLimits:
    """The best values measured on this machine."""

    read_bytes_s: float  # bytes per second that all cores read from memory
    flops_s: float  # operations per second of a large matrix product

    @classmethod
    def read(cls, folder: Path) -> MachineLimits | None:
        """The best values so far, from the store's folder; None before the first measurement."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return cls(**json.loads((folder / LIMITS_FILE).read_text()))
        return None

    def shortest_s(self, flops: float, bytes: float) -> float:
        """The shortest time for this work: the longer one of computing and reading."""
        return max(flops / self.flops_s, bytes / self.read_bytes_s)

    @property
    def ridge(self) -> float:
        """FLOPs per byte above which the processor is the limit, not memory."""
        return self.flops_s / self.read_bytes_s


@dataclass(frozen=True)
class WayOfALayer:
    operations: int  # number of TensorFlow operations
    kernels: int  # that run
    bytes: int  # read and written by them
    seconds: float  # of the median call


@dataclass(frozen=True)
class Measurement:
    """A token of one function, measured."""

    # seconds of a token without the profiler: the median before or after it, whichever is shorter
    token_s: float
    profiled_token_s: float  # with the profiler, the median
    kernel_s: Mapping[str, float]  # seconds per token by kernel name, from XLA's profiler
    prefill_s: float  # of a prompt, without the profiler
    limits: MachineLimits  # of the machine
    load: float  # CPU load while measuring, including this program
    took_s: float  # seconds of the whole measurement, with loading the model
    # one layer by way: "eager", "graph", "xla"; empty if the family's layers cannot be called alone
    ways: Mapping[str, WayOfALayer] = field(default_factory=dict)
    matrices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # see `ModelInfo`

    @property
    def matrices_bytes(self) -> int:
        return sum(sum(of.values()) for of in self.matrices.values())

    @property
    def over_reading(self) -> float:
        """A token's time over the time to read all matrices once."""
        return self.token_s / max(self.matrices_bytes / self.limits.read_bytes_s, 1e-9)

    @property
    def kernels_s(self) -> float:
        """Sum over all kernels of a token."""
        return sum(self.kernel_s.values())

    @property
    def between_s(self) -> float:
        """The time between kernels, without the profiler, which writes in this time."""
        return max(0.0, self.token_s - self.kernels_s)

    @property
    def overhead(self) -> float:
        """How much longer a token took with the profiler, as a share."""
        return self.profiled_token_s / self.token_s - 1

    def wasted_s(self, kernels: Iterable[KernelInside]) -> float:
        """How much longer these take than their FLOPs and bytes need at the machine's limits.

        A kernel that reads from the processor's cache may need less: that is no waste.
        """
        return sum(
            max(0.0, self.kernel_s[k.name] - self.limits.shortest_s(k.flops, k.bytes))
            for k in kernels
            if k.name in self.kernel_s
        )

    def distance(self, function: FunctionInside) -> float:
        """A token's time over the shortest time that the machine's limits allow."""
        return self.token_s / self.limits.shortest_s(function.flops, function.bytes)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Measurement:
        ways = {name: WayOfALayer(**way) for name, way in values["ways"].items()}
        return cls(**{**values, "limits": MachineLimits(**values["limits"]), "ways": ways})
