"""`jit`: compiles any TensorFlow function or Keras model with XLA, and times every call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xla_backend.compilation import xla_folder
from xla_backend.compilation.startup import prepare_environment

prepare_environment()  # before TensorFlow is imported, by this module or another

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.eager import record  # noqa: E402

from xla_backend.compilation.function_cache import Built, FunctionCache  # noqa: E402
from xla_backend.interface.errors import FORKED, EngineStopped  # noqa: E402
from xla_backend.interface.results import CacheEntry, CacheOutcome, FirstCall, Signature  # noqa: E402

_STATIC = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class CallTiming:
    """Where the time of one call went, in seconds."""

    trace_s: float  # TensorFlow traces the graph; 0 on a hit
    compile_s: float  # XLA compiles it; 0 on a hit
    run_s: float  # it runs until the result can be read
    total_s: float  # the whole call, measured independently of the phases


@dataclass(frozen=True)
class CallResult:
    output: Any  # what the function returned, a nest of tensors
    cache: CacheOutcome  # HIT or MISS
    signature: Signature  # which compiled function ran
    timing: CallTiming  # where the time went
    first_call: FirstCall  # cost of the first call with this signature; on a miss, of this call

    @property
    def speedup(self) -> float | None:
        """How many times longer the first call took than this run; None on the first call."""
        if self.cache is CacheOutcome.MISS or self.timing.run_s <= 0:
            return None
        return self.first_call.total_s / self.timing.run_s


class CompiledFunction:
    """A function that XLA compiles once per signature; made by `jit`. Thread-safe."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"jit takes a function or a Keras model, not {function!r}.")
        self._pid = os.getpid()  # XLA's threads are not copied either
        self.name = _name(function)
        self._function = function
        self._cache: FunctionCache[Callable[[list[tf.Tensor]], Any]] = FunctionCache()

    def __call__(self, *args: Any, **kwargs: Any) -> CallResult:
        """Runs the function; traces and compiles it first if the signature is new.

        The signature has the shape and dtype of tensors and arrays, and the value of Python
        numbers, strings, booleans and None, as for `tf.function`.

        Raises:
            TypeError: an argument has another type.
            EngineStopped: this process is a fork of the one that made it.
            Exception: tracing, compiling or running failed.
        """
        if os.getpid() != self._pid:
            raise EngineStopped(FORKED)
        started = time.perf_counter()
        leaves = [_as_leaf(leaf) for leaf in tf.nest.flatten((args, kwargs))]
        signature = Signature(_describe(tf.nest.pack_sequence_as((args, kwargs), leaves)))
        tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]

        def build() -> Built:
            with record.stop_recording():  # a tape that is open would change what is built
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

    def cached_functions(self) -> list[CacheEntry]:
        """The compiled functions: the cost of their first calls and statistics of later ones."""
        return self._cache.cached_functions()

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
            # Without the result's shape XLA compiles in the first run, so run_s includes that.
            # A second run to tell them apart could repeat a side effect.
            return Built(lambda tensors: _wait(traced(*tensors)), CacheOutcome.MISS, trace_s, 0.0)
        _wait(switched(tf.constant(False), *tensors))
        # TensorFlow never reuses this numbered name, so XLA's file for it would only take room.
        if xla_folder.is_ready():
            xla_folder.collect(switched.name.decode())
        compile_s = time.perf_counter() - start
        returned = traced.structured_outputs

        def run(tensors: list[tf.Tensor]) -> Any:
            if record.could_possibly_record():  # a tape has no gradient of the switch
                return _wait(traced(*tensors))
            outputs = iter(_wait(switched(tf.constant(True), *tensors)))
            # None is the only value that a traced function returns and that is not a tensor.
            values = [None if x is None else next(outputs) for x in tf.nest.flatten(returned)]
            return tf.nest.pack_sequence_as(returned, values)

        return Built(run, CacheOutcome.MISS, trace_s, compile_s)


def jit(function: Callable[..., Any]) -> CompiledFunction:
    """Compiles a TensorFlow function or a Keras model with XLA, once per input signature.

    Args:
        function: a function of tensors, a Keras model or layer, or a method of one.

    Example:
        >>> import tensorflow as tf
        >>> from xla_backend import jit
        >>> double = jit(lambda x: 2 * x)
        >>> double(tf.ones([3])).cache.value, double(tf.zeros([3])).cache.value
        ('miss', 'hit')
        >>> [str(entry.key) for entry in double.cached_functions()]
        ['float32[3]']
    """
    return CompiledFunction(function)


def _switched(traced: Any, specs: Sequence[tf.TensorSpec]) -> Any:
    """The function with a switch: when it is off, the call returns zeros and runs nothing.

    Such a call compiles the function, so compiling can be timed without running. None if a result
    has no fixed shape: the zeros would have none either.
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
    """Waits until the outputs can be read; returns them."""
    for leaf in tf.nest.flatten(outputs):
        if tf.is_tensor(leaf):
            leaf.numpy()
    return outputs


def _as_leaf(value: Any) -> Any:
    if isinstance(value, tf.Tensor | tf.Variable | np.ndarray | np.generic):
        return tf.convert_to_tensor(value)
    if isinstance(value, _STATIC):
        return value
    raise TypeError(
        "A compiled function takes tensors, arrays, and Python numbers, strings, booleans and "
        f"None, not {type(value).__name__}."
    )


def _describe(arguments: tuple[tuple, dict[str, Any]]) -> str:
    """The arguments' types as text: `float32[8, 4], training=True`."""
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
    own = getattr(function, "__name__", None) or getattr(function, "name", None)
    own = own or type(function).__name__
    owner = getattr(getattr(function, "__self__", None), "name", None)
    return f"{owner}.{own}" if owner else own
