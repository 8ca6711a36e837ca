"""`jit`: any TensorFlow function or Keras model, compiled by XLA, timed and accounted for.

Knows how a call's arguments become a signature, and how tracing, compiling and running are told
apart. Must not know language models: those have an engine of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xla_backend import xla_folder
from xla_backend.startup import prepare_environment

prepare_environment()  # before TensorFlow is imported, by this module or another

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from xla_backend.function_cache import Built, FunctionCache  # noqa: E402
from xla_backend.results import CacheEntry, CacheOutcome, FirstCall, Signature  # noqa: E402

_STATIC = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class CallTiming:
    """Where the time of one call went, in seconds.

    Attributes:
        trace_s: making the TensorFlow graph; 0 on a hit.
        compile_s: XLA compiling it; 0 on a hit.
        run_s: running it, until the result is there.
        total_s: all of the call, measured apart from the phases.
    """

    trace_s: float
    compile_s: float
    run_s: float
    total_s: float


@dataclass(frozen=True)
class CallResult:
    """What one call gave.

    Attributes:
        output: what the function returned, a nest of tensors.
        cache: HIT or MISS.
        signature: which compiled function ran.
        timing: where the time went.
        first_call: what the first call with this signature cost; this very call on a miss.
    """

    output: Any
    cache: CacheOutcome
    signature: Signature
    timing: CallTiming
    first_call: FirstCall

    @property
    def speedup(self) -> float | None:
        """How many times longer the first call took than this run; None on the first call."""
        if self.cache is CacheOutcome.MISS or self.timing.run_s <= 0:
            return None
        return self.first_call.total_s / self.timing.run_s


class CompiledFunction:
    """A function that XLA compiles once for each signature; made by `jit`. Thread-safe."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Prepares; nothing is traced yet.

        Raises:
            TypeError: it cannot be called.
        """
        if not callable(function):
            raise TypeError(f"jit takes a function or a Keras model, not {function!r}.")
        self.name = _name(function)
        self._function = function
        self._cache: FunctionCache[Callable[[list[tf.Tensor]], Any]] = FunctionCache()

    def __call__(self, *args: Any, **kwargs: Any) -> CallResult:
        """Runs the function; traces and compiles it first if the signature is new.

        Tensors and arrays count with shape and type. Python numbers, strings, booleans and None
        are part of the signature with their values, as for `tf.function`.

        Raises:
            TypeError: an argument is none of these.
            Exception: whatever tracing, compiling or running raises.
        """
        started = time.perf_counter()
        leaves = [_as_leaf(leaf) for leaf in tf.nest.flatten((args, kwargs))]
        signature = Signature(_describe(tf.nest.pack_sequence_as((args, kwargs), leaves)))
        tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]

        def build() -> Built:
            return self._build((args, kwargs), leaves, tensors)

        slot, outcome = self._cache.get(self.name, signature, build)
        ready = time.perf_counter()
        output = slot.built.function(tensors)
        ended = time.perf_counter()
        self._cache.record(slot, ended - ready)
        is_first = outcome is CacheOutcome.MISS
        return CallResult(
            output=output,
            cache=outcome,
            signature=signature,
            timing=CallTiming(
                trace_s=slot.built.trace_s if is_first else 0.0,
                compile_s=slot.built.compile_s if is_first else 0.0,
                run_s=ended - ready,
                total_s=ended - started,
            ),
            first_call=slot.first_call,
        )

    def entries(self) -> list[CacheEntry]:
        """The compiled functions, what they cost once and what their calls took since."""
        return self._cache.entries()

    def _build(self, structure: Any, leaves: list, tensors: list[tf.Tensor]) -> Built:
        start = time.perf_counter()

        def call(*tensors: tf.Tensor) -> Any:
            fresh = iter(tensors)
            values = [next(fresh) if tf.is_tensor(leaf) else leaf for leaf in leaves]
            args, kwargs = tf.nest.pack_sequence_as(structure, values)
            return self._function(*args, **kwargs)

        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        traced = tf.function(call, jit_compile=True).get_concrete_function(*specs)
        switched = _switched(traced, specs)
        trace_s = time.perf_counter() - start

        start = time.perf_counter()
        if switched is None:
            # Compiling without running would take knowing the result's shape. It then counts as
            # part of the first run: running it twice could do twice what shall be done once.
            return Built(lambda tensors: _wait(traced(*tensors)), CacheOutcome.MISS, trace_s, 0.0)
        _wait(switched(tf.constant(False), *tensors))
        # A numbered name will not be met again: what XLA left to be found under it only takes room.
        if xla_folder.is_ready():
            xla_folder.collect(switched.name.decode())
        compile_s = time.perf_counter() - start
        returned = traced.structured_outputs

        def run(tensors: list[tf.Tensor]) -> Any:
            outputs = iter(_wait(switched(tf.constant(True), *tensors)))
            # None is the one thing that a function can return and that is no tensor.
            values = [None if x is None else next(outputs) for x in tf.nest.flatten(returned)]
            return tf.nest.pack_sequence_as(returned, values)

        return Built(run, CacheOutcome.MISS, trace_s, compile_s)


def jit(function: Callable[..., Any]) -> CompiledFunction:
    """Compiles a TensorFlow function or a Keras model with XLA, once for each input signature.

    Args:
        function: a function of tensors, a Keras model or layer, or a method of one.

    Example:
        >>> import tensorflow as tf
        >>> from xla_backend import jit
        >>> double = jit(lambda x: 2 * x)
        >>> double(tf.ones([3])).cache.value, double(tf.zeros([3])).cache.value
        ('miss', 'hit')
        >>> [str(entry.key) for entry in double.entries()]
        ['float32[3]']
    """
    return CompiledFunction(function)


def _switched(traced: Any, specs: Sequence[tf.TensorSpec]) -> Any:
    """The function with a switch in front: switched off it returns zeros and runs nothing.

    Calling it so compiles it, which is how compiling is timed apart from running. Without a result
    of fixed shape there are no zeros to return: None.
    """
    outputs = traced.outputs
    if not all(output.shape.is_fully_defined() for output in outputs):
        return None

    def switch(is_on: tf.Tensor, *tensors: tf.Tensor) -> list[tf.Tensor]:
        def running() -> list[tf.Tensor]:
            return [x for x in tf.nest.flatten(traced(*tensors)) if tf.is_tensor(x)]

        return tf.cond(
            is_on, running, lambda: [tf.zeros(output.shape, output.dtype) for output in outputs]
        )

    function = tf.function(switch, jit_compile=True, autograph=False)
    return function.get_concrete_function(tf.TensorSpec([], tf.bool), *specs)


def _wait(outputs: Any) -> Any:
    """The outputs, once they are there."""
    for leaf in tf.nest.flatten(outputs):
        if tf.is_tensor(leaf):
            leaf.numpy()
    return outputs


def _as_leaf(value: Any) -> Any:
    """An argument's leaf: a tensor, or a Python value that is part of the signature.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(value, tf.Tensor | tf.Variable | np.ndarray | np.generic):
        return tf.convert_to_tensor(value)
    if isinstance(value, _STATIC):
        return value
    raise TypeError(
        "A compiled function takes tensors, arrays, and Python numbers, strings, booleans and "
        f"None, not {type(value).__name__}."
    )


def _describe(arguments: tuple[tuple, dict[str, Any]]) -> str:
    """Arguments as a reader would write their types: `float32[8, 4], training=True`."""
    args, kwargs = arguments
    named = [f"{name}={_describe_one(kwargs[name])}" for name in sorted(kwargs)]
    return ", ".join([*map(_describe_one, args), *named])


def _describe_one(value: Any) -> str:
    if tf.is_tensor(value):
        return f"{value.dtype.name}{value.shape.as_list()}"
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: str(item[0]))
        return "{" + ", ".join(f"{key!r}: {_describe_one(x)}" for key, x in items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_describe_one, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_describe_one, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def _name(function: Callable[..., Any]) -> str:
    """What a function is called: `model`, `model.method` or `function`."""
    own = getattr(function, "__name__", None) or getattr(function, "name", None)
    own = own or type(function).__name__
    owner = getattr(getattr(function, "__self__", None), "name", None)
    return f"{owner}.{own}" if owner else own
