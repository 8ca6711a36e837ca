"""One layer called in three ways: operation by operation, as a graph, compiled by XLA."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from xla_backend.inspection.inspection import FunctionInside
from xla_backend.inspection.measurement import WayOfALayer
from xla_backend.interface.buckets import CacheKey
from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.model.families.experts import Experts
from xla_backend.model.loaded_model import LoadedModel

CALLS = 15
_NOT_RUN = {"Placeholder", "Const", "NoOp", "Identity", "ReadVariableOp"}
_VIEWS = {"Reshape", "ExpandDims", "Squeeze", "Shape"}
"""Operations that move no data."""


def compare(
    loaded: LoadedModel, key: CacheKey, decode: FunctionInside, kernel_s: Mapping[str, float]
) -> dict[str, WayOfALayer]:
    """The second layer of a step in three ways; empty for a family whose layers cannot be called,
    or with experts, which are too many to become plain matrices.

    For the first two ways, the difference between a step with two layers and one with one; for XLA,
    the measured kernels of that layer.
    """
    model: Any = loaded.functions.decoder.model
    layers = getattr(model, "layers", ())[:2]
    if len(layers) < 2 or any(isinstance(part, Experts) for layer in layers for part in layer):
        return {}
    embedding, head, layers = _plain([model.embedding, model.head, layers])
    model = dataclasses.replace(model, embedding=embedding, head=head)
    one, two = (_Step(shortened(model, layers[:n]), key) for n in (1, 2))
    kernels = [kernel for kernel in decode.kernels if kernel.layer == 1]
    xla = WayOfALayer(
        operations=1,
        kernels=len(kernels),
        bytes=sum(kernel.bytes for kernel in kernels),
        seconds=sum(kernel_s.get(kernel.name, 0.0) for kernel in kernels),
    )
    seconds = _medians([step.run for step in (one.eager, two.eager, one.graph, two.graph)])
    return {
        "eager": _difference(two.eager, one.eager, seconds[1] - seconds[0]),
        "graph": _difference(two.graph, one.graph, seconds[3] - seconds[2]),
        "xla": xla,
    }


def shortened(model: Any, layers: Any) -> Any:
    changes = {"layers": layers}
    if hasattr(model, "form"):
        forms = model.form.layers[: len(layers)]
        changes["form"] = dataclasses.replace(model.form, layers=forms)
    return dataclasses.replace(model, **changes)


def _plain(part: Any) -> Any:
    """A part of a model with plain matrices: TensorFlow cannot call our own products."""
    if isinstance(part, Matrix):
        return part.plain()
    if not isinstance(part, (list, tuple)):
        return part
    parts = map(_plain, part)
    return type(part)(*parts) if hasattr(part, "_fields") else type(part)(parts)


@dataclasses.dataclass(frozen=True)
class _Counted:
    run: Callable[[], Any]
    operations: int
    bytes: int


class _Step:
    """A step of a model with few layers."""

    def __init__(self, model: Any, key: CacheKey) -> None:
        prefilled = model.prefill(*model.example(key.padded_length))
        kv_cache = model.empty_kv_cache(key.num_beams, key.max_new_tokens)
        arguments = (
            tf.zeros([key.num_beams], tf.int32),
            tf.constant(0),
            prefilled.context,
            kv_cache,
            tf.zeros([key.num_beams, 1, key.max_new_tokens * key.num_beams]),
        )
        specs = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), arguments)
        traced = tf.function(model.step, autograph=False).get_concrete_function(*specs)
        flat = tf.nest.flatten(arguments)

        def graph() -> Any:
            return traced(*flat)

        def eager() -> Any:
            tf.config.run_functions_eagerly(True)
            try:
                return model.step(*arguments)
            finally:
                tf.config.run_functions_eagerly(False)

        counted = _counted(_operations(model.step, specs))
        self.eager, self.graph = _Counted(eager, *counted), _Counted(graph, *counted)


def _operations(function: Callable[..., Any], specs: Any) -> list[Any]:
    """The operations of a function, including those of functions that it calls."""
    tf.config.run_functions_eagerly(True)
    try:
        traced = tf.function(function, autograph=False).get_concrete_function(*specs)
        return traced.graph.get_operations()
    finally:
        tf.config.run_functions_eagerly(False)


def _counted(operations: list[Any]) -> tuple[int, int]:
    run = [each for each in operations if each.type not in _NOT_RUN]
    moved = [each for each in run if each.type not in _VIEWS]
    return len(run), sum(_bytes(x) for each in moved for x in (*each.inputs, *each.outputs))


def _bytes(x: Any) -> int:
    return x.dtype.size * (x.shape.num_elements() or 0)


def _medians(works: list[Callable[[], Any]]) -> list[float]:
    """Median seconds of each, alternating."""
    found: list[list[float]] = [[] for _ in works]
    for round_number in range(CALLS + 1):
        for work, seconds in zip(works, found, strict=True):
            start = time.perf_counter()
            tf.nest.flatten(work())[0].numpy()
            if round_number:  # the first call of each takes longer
                seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in found]


def _difference(larger: _Counted, smaller: _Counted, seconds: float) -> WayOfALayer:
    operations = larger.operations - smaller.operations
    return WayOfALayer(operations, operations, larger.bytes - smaller.bytes, max(0.0, seconds))
