"""A comparison of one function called in three ways: request, results and their arithmetic.

Knows the names of the example functions and the three ways.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from enum import Enum

from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import shown
from xla_backend.interface.results import CacheOutcome
from xla_backend.interface.timing import Statistics

MAX_BATCH_SIZE = 256
"""Keeps the compiled functions of all batch sizes within about a gigabyte of memory."""
TOLERANCE = 1e-5
"""Largest accepted difference of outputs, which are float32 probabilities."""


@dataclass(frozen=True)
class ExampleFunction:
    """A function that can be compared.

    Attributes:
        title: its description for visitors.
        input_shape: of one row of the batch.
    """

    name: str
    title: str
    input_shape: tuple[int, ...]

    def signature(self, rows: int) -> str:
        """The signature of a batch in `jit`'s notation: `float32[8, 10]`."""
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
    """`tf.function`: traced once per input shape, then run as a graph."""
    XLA = "xla"
    """`tf.function(jit_compile=True)`: traced and compiled by XLA once per input shape."""


@dataclass(frozen=True)
class FunctionRequest:
    """The request of a comparison.

    Attributes:
        function: a name of `EXAMPLE_FUNCTIONS`.
        batch_size: rows of the input, 1 to `MAX_BATCH_SIZE`.
        pad: round the compiled ways' batch up to a power of two, and cut their output.

    Raises:
        InvalidRequest: a value is wrong.
    """

    function: str
    batch_size: int
    pad: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.function, str) or self.function not in EXAMPLE_FUNCTIONS:
            raise InvalidRequest(
                f"There is no function {shown(self.function)} here. The functions are: "
                f"{', '.join(EXAMPLE_FUNCTIONS)}."
            )
        if not isinstance(self.pad, bool):
            raise InvalidRequest("pad must be true or false.")
        # JSON and sliders send whole numbers as floats.
        size = self.batch_size
        is_number = isinstance(size, numbers.Real) and not isinstance(size, bool)
        if not (is_number and 1 <= size <= MAX_BATCH_SIZE and size == int(size)):
            raise InvalidRequest(f"batch_size must be a whole number from 1 to {MAX_BATCH_SIZE}.")
        object.__setattr__(self, "batch_size", int(size))

    @property
    def example(self) -> ExampleFunction:
        return EXAMPLE_FUNCTIONS[self.function]

    @property
    def rows(self) -> int:
        """The batch size of the compiled ways."""
        return 1 << (self.batch_size - 1).bit_length() if self.pad else self.batch_size

    @property
    def signature(self) -> str:
        """The input's signature in the compiled ways."""
        return self.example.signature(self.rows)


@dataclass(frozen=True)
class CallPhases:
    """The phases of one call, in seconds; 0 for a phase that its way does not have.

    Attributes:
        trace_s: TensorFlow records the function as a graph.
        compile_s: XLA compiles it.
        run_s: the rest of the call, until its output can be read.
    """

    trace_s: float
    compile_s: float
    run_s: float

    @property
    def total_s(self) -> float:
        """The whole call, in seconds."""
        return self.trace_s + self.compile_s + self.run_s


@dataclass(frozen=True)
class WayResult:
    """The measurements of one way.

    Attributes:
        cache: MISS if this comparison compiled the function, HIT if it was in memory; None for
            eager, which compiles nothing.
        first: the first call with this input shape; on a miss, this comparison's.
        cached: later calls, each from the input (padding included) to a readable output.
        difference: largest absolute difference from eager's output.
    """

    way: Way
    cache: CacheOutcome | None
    first: CallPhases
    cached: Statistics
    difference: float


@dataclass(frozen=True)
class StoredKey:
    """An input shape that a function was compiled for.

    Attributes:
        function: its name.
        rows: the batch size of the compiled functions.
        batch_sizes: of the requests that used it, ascending; those below `rows` were padded.
        graph, xla: phases of the first call in these ways.
    """

    function: str
    rows: int
    batch_sizes: tuple[int, ...]
    graph: CallPhases
    xla: CallPhases

    @property
    def signature(self) -> str:
        """The input's signature."""
        return EXAMPLE_FUNCTIONS[self.function].signature(self.rows)


@dataclass(frozen=True)
class FunctionComparison:
    """One function called in three ways with the same input.

    Attributes:
        results: of each way, eager first.
        queue_s: seconds of waiting for other requests.
    """

    request: FunctionRequest
    results: tuple[WayResult, ...]
    queue_s: float = 0.0

    def of(self, way: Way) -> WayResult:
        return next(result for result in self.results if result.way is way)

    def speedup(self, way: Way) -> float:
        """Eager's median call over this way's."""
        return self._eager_s / self.of(way).cached.p50_s

    def first_call_in_eager_calls(self, way: Way) -> float:
        """The time of this way's first call, in median eager calls."""
        return self.of(way).first.total_s / self._eager_s

    def break_even_calls(self, way: Way) -> int | None:
        """The smallest number of calls, the first included, that take no longer than eager ones.

        With e seconds per eager call, f for this way's first call and c for each later one: the
        least whole n with f + (n - 1) c <= n e. None if its later calls are not faster.
        """
        result = self.of(way)
        later_s = result.cached.p50_s
        if later_s >= self._eager_s:
            return None
        calls = (result.first.total_s - later_s) / (self._eager_s - later_s)
        return max(1, math.ceil(calls))

    @property
    def difference(self) -> float:
        """The largest absolute difference from eager's output."""
        return max(result.difference for result in self.results)

    @property
    def _eager_s(self) -> float:
        return self.of(Way.EAGER).cached.p50_s
