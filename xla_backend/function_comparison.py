"""One function called in three ways: what can be asked for, and what was measured.

Knows the examples by name, the three ways, and the arithmetic of their comparison. Must not import
TensorFlow (the page's process imports this module) nor know what the functions compute.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from enum import Enum

from xla_backend.errors import InvalidRequest
from xla_backend.options import shown
from xla_backend.results import CacheOutcome
from xla_backend.timing import Statistics

MAX_BATCH_SIZE = 256
"""Bounds the memory that compiled functions of all batch sizes take: about a gigabyte."""
MAX_CALLS = 1000
DEFAULT_CALLS = 200
TOLERANCE = 1e-5
"""Outputs may differ by this much: they are probabilities, in float32."""


@dataclass(frozen=True)
class ExampleFunction:
    """A function that can be compared.

    Attributes:
        title: what it is, for a visitor to read.
        input_shape: of one row of the batch.
    """

    name: str
    title: str
    input_shape: tuple[int, ...]

    def signature(self, rows: int) -> str:
        """The type of a batch, as `jit` writes it: `float32[8, 10]`."""
        return f"float32{[rows, *self.input_shape]}"


EXAMPLE_FUNCTIONS = {
    function.name: function
    for function in (
        ExampleFunction("dense", "Two dense layers", (10,)),
        ExampleFunction("convolution", "Small convolution network", (64, 64, 3)),
    )
}


class Way(str, Enum):
    """A way to call a function."""

    EAGER = "eager"
    """Python runs it operation by operation."""
    GRAPH = "graph"
    """`tf.function`: traced once for each shape, then run as a graph."""
    XLA = "xla"
    """`tf.function(jit_compile=True)`: traced, then compiled by XLA, once for each shape."""


@dataclass(frozen=True)
class FunctionRequest:
    """What shall be compared.

    Attributes:
        function: a name of `EXAMPLE_FUNCTIONS`.
        batch_size: rows of the input, 1 to `MAX_BATCH_SIZE`.
        pad: the compiled ways run at the next power of two, and their output is cut afterwards.
        calls: most calls to measure in each way after its first; slow functions get fewer.

    Raises:
        InvalidRequest: a value is none of these.
    """

    function: str
    batch_size: int
    pad: bool = False
    calls: int = DEFAULT_CALLS

    def __post_init__(self) -> None:
        if not isinstance(self.function, str) or self.function not in EXAMPLE_FUNCTIONS:
            raise InvalidRequest(
                f"There is no function {shown(self.function)} here. The functions are: "
                f"{', '.join(EXAMPLE_FUNCTIONS)}."
            )
        if not isinstance(self.pad, bool):
            raise InvalidRequest("pad must be true or false.")
        for name, most in (("batch_size", MAX_BATCH_SIZE), ("calls", MAX_CALLS)):
            value = getattr(self, name)
            # JSON and sliders send whole numbers as floats.
            is_whole = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not (is_whole and 1 <= value <= most and value == int(value)):
                raise InvalidRequest(f"{name} must be a whole number from 1 to {most}.")
            object.__setattr__(self, name, int(value))

    @property
    def example(self) -> ExampleFunction:
        """The function."""
        return EXAMPLE_FUNCTIONS[self.function]

    @property
    def rows(self) -> int:
        """The batch size that the compiled ways run at."""
        return 1 << (self.batch_size - 1).bit_length() if self.pad else self.batch_size

    @property
    def signature(self) -> str:
        """The input's type in the compiled ways."""
        return self.example.signature(self.rows)


@dataclass(frozen=True)
class CallPhases:
    """What one call cost, in seconds; a way that does not trace or compile has zeros there.

    Attributes:
        trace_s: TensorFlow recording the function as a graph.
        compile_s: XLA compiling it.
        run_s: the rest of the call, until its output can be read.
    """

    trace_s: float
    compile_s: float
    run_s: float

    @property
    def total_s(self) -> float:
        """All of the call."""
        return self.trace_s + self.compile_s + self.run_s


@dataclass(frozen=True)
class WayResult:
    """What one way of calling cost.

    Attributes:
        cache: MISS when the function was made for this comparison, HIT when it was there; None for
            eager, which makes nothing.
        first: the first call with this shape; this comparison's on a miss.
        cached: calls after the first, each measured as a caller sees it, from the input (padding
            included) to an output that can be read.
        difference: largest absolute difference of an output from eager's.
    """

    way: Way
    cache: CacheOutcome | None
    first: CallPhases
    cached: Statistics
    difference: float


@dataclass(frozen=True)
class KeptShape:
    """A shape that a function was compiled for.

    Attributes:
        function: its name.
        rows: the batch size of the compiled functions.
        batch_sizes: what ran on it, in ascending order; other numbers than `rows` were padded.
        graph, xla: what the first call cost in these ways.
    """

    function: str
    rows: int
    batch_sizes: tuple[int, ...]
    graph: CallPhases
    xla: CallPhases

    @property
    def signature(self) -> str:
        """The input's type."""
        return EXAMPLE_FUNCTIONS[self.function].signature(self.rows)


@dataclass(frozen=True)
class FunctionComparison:
    """One function called in three ways with the same input.

    Attributes:
        results: the ways, eager first.
        queue_s: seconds of waiting for other requests.
    """

    request: FunctionRequest
    results: tuple[WayResult, ...]
    queue_s: float = 0.0

    def of(self, way: Way) -> WayResult:
        """One way's result."""
        return next(result for result in self.results if result.way is way)

    def speedup(self, way: Way) -> float:
        """How many times longer eager's median call takes than this way's."""
        return self._eager_s / self.of(way).cached.p50_s

    def first_call_in_eager_calls(self, way: Way) -> float:
        """How many eager calls fit into the time of this way's first call."""
        return self.of(way).first.total_s / self._eager_s

    def worth_after(self, way: Way) -> int | None:
        """From how many calls on, the first included, this way takes less time than eager.

        With eager at e a call, this way at f for the first and c for each later one: the least
        whole n with f + (n - 1) c <= n e. None when its later calls are not faster.
        """
        result = self.of(way)
        later_s = result.cached.p50_s
        if later_s >= self._eager_s:
            return None
        calls = (result.first.total_s - later_s) / (self._eager_s - later_s)
        return max(1, math.ceil(calls))

    @property
    def difference(self) -> float:
        """The largest absolute difference between two ways' outputs and eager's."""
        return max(result.difference for result in self.results)

    @property
    def _eager_s(self) -> float:
        return self.of(Way.EAGER).cached.p50_s
