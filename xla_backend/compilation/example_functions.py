"""`ExampleFunctions`: the functions of the *Functions* tab, called in three ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from xla_backend.compilation.any_function import CallResult, CompiledFunction, jit
from xla_backend.interface.function_comparison import (
    EXAMPLE_FUNCTIONS,
    MAX_BATCH_SIZE,
    CallPhases,
    FunctionComparison,
    FunctionRequest,
    StoredKey,
    Way,
    WayResult,
)
from xla_backend.interface.results import CacheOutcome
from xla_backend.interface.timing import summarize

import tensorflow as tf  # isort: skip  (any_function prepares the environment for it)

SEED = 0
BUDGET_S = 2.0
"""Later calls are measured for about this long, and at least `MIN_CALLS` times."""
MIN_CALLS = 3
MAX_CALLS = 200


def dense(initializer: Callable[[], tf.keras.initializers.Initializer]) -> tf.keras.Model:
    """The guide's first model: 10 numbers in, 5 probabilities out."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((10,)),
            tf.keras.layers.Dense(10, activation="relu", kernel_initializer=initializer()),
            tf.keras.layers.Dense(5, activation="softmax", kernel_initializer=initializer()),
        ]
    )


def convolution(initializer: Callable[[], tf.keras.initializers.Initializer]) -> tf.keras.Model:
    """An image classifier: 64 x 64 pixels of 3 colours in, 10 probabilities out."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((64, 64, 3)),
            layers.Conv2D(16, 3, activation="relu", kernel_initializer=initializer()),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu", kernel_initializer=initializer()),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu", kernel_initializer=initializer()),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax", kernel_initializer=initializer()),
        ]
    )


_MODELS = {"dense": dense, "convolution": convolution}


class ExampleFunctions:
    """The functions, and what was traced and compiled of them.

    The caller runs one comparison at a time; `stored` may be called from any thread.
    """

    def __init__(self) -> None:
        self._examples: dict[str, _Example] = {}
        self._stored: tuple[StoredKey, ...] = ()

    def compare(self, request: FunctionRequest) -> FunctionComparison:
        """Calls a function in three ways with the same input and times each.

        Weights and input come from a fixed seed. The ways alternate, one call each, so that other
        load on the machine affects all of them.
        """
        if request.function not in self._examples:
            self._examples[request.function] = _Example.build(request.function)
        example = self._examples[request.function]
        rows = example.rows[: request.batch_size]
        calls = example.calls(rows, request.rows)
        outcomes, outputs = {}, {}
        for way, call in calls.items():
            outcomes[way], outputs[way] = example.first(way, call, request)
        self._record(request)
        seconds: dict[Way, list[float]] = {way: [] for way in calls}
        started = time.perf_counter()
        for done in range(MAX_CALLS):
            if done >= MIN_CALLS and time.perf_counter() - started > BUDGET_S:
                break
            for way, call in calls.items():
                start = time.perf_counter()
                call()
                seconds[way].append(time.perf_counter() - start)
        results = []
        for way in calls:
            cached = summarize(seconds[way])
            assert cached is not None
            difference = float(np.abs(outputs[way] - outputs[Way.EAGER]).max())
            phases = example.phases[way, _size(way, request)]
            results.append(WayResult(way, outcomes[way], phases, cached, difference))
        return FunctionComparison(request, tuple(results))

    def stored(self) -> tuple[StoredKey, ...]:
        """The compiled shapes, in the order of their first calls."""
        return self._stored

    def _record(self, request: FunctionRequest) -> None:
        example = self._examples[request.function]
        name = (request.function, request.rows)
        stored = {(shape.function, shape.rows): shape for shape in self._stored}
        before = stored[name].batch_sizes if name in stored else ()
        stored[name] = StoredKey(
            function=request.function,
            rows=request.rows,
            batch_sizes=tuple(sorted({*before, request.batch_size})),
            graph=example.phases[Way.GRAPH, request.rows],
            xla=example.phases[Way.XLA, request.rows],
        )
        self._stored = tuple(stored.values())


@dataclass
class _Example:
    model: tf.keras.Model
    graph: tf.types.experimental.PolymorphicFunction
    xla: CompiledFunction
    rows: np.ndarray  # the largest input, (MAX_BATCH_SIZE, ...) float32
    # what the first call of each way cost, by way and batch size
    phases: dict[tuple[Way, int], CallPhases] = field(default_factory=dict)
    last: CallResult | None = None  # what `jit` returned at its last call

    @classmethod
    def build(cls, name: str) -> _Example:
        seeds = iter(range(SEED, SEED + 100))
        model = _MODELS[name](lambda: tf.keras.initializers.GlorotUniform(next(seeds)))
        shape = (MAX_BATCH_SIZE, *EXAMPLE_FUNCTIONS[name].input_shape)
        rows = np.random.default_rng(SEED).standard_normal(shape, np.float32)
        return cls(model, tf.function(model), jit(model), rows)

    def calls(self, rows: np.ndarray, padded_rows: int) -> dict[Way, Callable[[], np.ndarray]]:
        """The three ways to call the function, each from NumPy input to NumPy output."""
        inputs = tf.constant(rows)
        count = len(rows)
        padding = [[0, padded_rows - count], *[[0, 0]] * (rows.ndim - 1)]

        def fitted(function: Callable[[tf.Tensor], tf.Tensor]) -> np.ndarray:
            if padded_rows == count:
                return function(inputs).numpy()
            return function(tf.pad(inputs, padding))[:count].numpy()

        def compiled(inputs: tf.Tensor) -> tf.Tensor:
            self.last = self.xla(inputs)
            return self.last.output

        return {
            Way.EAGER: lambda: self.model(inputs).numpy(),
            Way.GRAPH: lambda: fitted(self.graph),
            Way.XLA: lambda: fitted(compiled),
        }

    def first(
        self, way: Way, call: Callable[[], np.ndarray], request: FunctionRequest
    ) -> tuple[CacheOutcome | None, np.ndarray]:
        """One call, with its phases recorded if the shape is new; its outcome and output."""
        started = time.perf_counter()
        trace_s = compile_s = 0.0
        outcome = None
        if way is Way.GRAPH:
            traces = self.graph.experimental_get_tracing_count()
            # Traces as the call itself would, but separately, so that it can be timed.
            spec = tf.TensorSpec([request.rows, *self.rows.shape[1:]], tf.float32)
            self.graph.get_concrete_function(spec)
            trace_s = time.perf_counter() - started
            is_new = self.graph.experimental_get_tracing_count() > traces
            outcome = CacheOutcome.MISS if is_new else CacheOutcome.HIT
        output = call()
        total_s = time.perf_counter() - started
        if way is Way.XLA:
            assert self.last is not None
            outcome = self.last.cache
            trace_s, compile_s = self.last.timing.trace_s, self.last.timing.compile_s
        size = _size(way, request)
        if (way, size) not in self.phases:
            run_s = total_s - trace_s - compile_s
            self.phases[way, size] = CallPhases(trace_s, compile_s, run_s)
        return outcome, output


def _size(way: Way, request: FunctionRequest) -> int:
    """The batch size that a way runs at: eager has nothing to gain from padding."""
    return request.batch_size if way is Way.EAGER else request.rows
