"""Tries calls of a fresh `tf.function` and counts the traces and compilations of each."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from xla_backend.checkpoints.models import Registry
from xla_backend.child_process.child_side import first_line
from xla_backend.interface.errors import InvalidRequest
from xla_backend.retracing.question import WEIGHTED, Argument, Attempt, Change, Findings, Trial

Values = Mapping[str, Any]
MODEL = "gpt2-stories"


def weighted(x: tf.Tensor, factor: Any, mask: tf.Tensor | None = None) -> tf.Tensor:
    """`x` times a factor, and zero where a mask is false."""
    y = x * tf.cast(factor, x.dtype)
    return y if mask is None else tf.where(mask, y, tf.zeros_like(y))


def find(question: Trial, dumps: Path, registry: Registry) -> Findings:
    """Calls a fresh function twice, and again for each change alone.

    Args:
        dumps: the folder in which XLA writes a file for each compiled module.
        registry: has the model whose `generate` may be traced.

    Raises:
        InvalidRequest: the file cannot be read, or does not define what it must.
    """
    if question.file is not None:
        function, first, second = _of_file(question.file)
    else:
        function = weighted if question.function == WEIGHTED else _generate(registry)
        first, second = _values(question.first), _values(question.second)

    def attempts(*calls: Values) -> list[Attempt]:
        signature = _any_rows(first) if question.any_rows else None
        fresh = tf.function(function, signature, jit_compile=question.jit_compile)
        return [_attempt(fresh, values, dumps) for values in calls]

    changes = []
    for group in _together(first, second):
        alone = attempts(first, {**first, **{name: second.get(name) for name, _, _ in group}})[1]
        changes += [
            Change(name, str(was), str(now), was.changes(now), alone) for name, was, now in group
        ]
    one, two = attempts(first, second)
    return Findings(one, two, tuple(changes))


def _generate(registry: Registry) -> Callable[..., Any]:
    from xla_backend.baselines.baseline_process import load_model

    model = load_model(registry.locate(MODEL))
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = model.generation_config.eos_token_id
    return model.generate


def _together(first: Values, second: Values) -> list[list[tuple[str, Argument, Argument]]]:
    """The arguments that differ; those with new sizes, which must match, in one group."""
    sizes, others = [], []
    for name in dict.fromkeys([*first, *second]):
        was, now = (_described(name, values.get(name)) for values in (first, second))
        if kinds := was.changes(now):
            if "shape" in kinds:
                sizes.append((name, was, now))
            else:
                others.append([(name, was, now)])
    return [sizes, *others] if sizes else others


def _attempt(function: Any, values: Values, dumps: Path) -> Attempt:
    traces, modules = function.experimental_get_tracing_count(), _compiled(dumps)
    problem = ""
    start = time.perf_counter()
    try:
        tf.nest.map_structure(lambda x: x.numpy(), function(**values))
    except Exception as error:
        problem = _message_of(error)
    seconds = time.perf_counter() - start
    traced = function.experimental_get_tracing_count() > traces
    return Attempt(traced, _compiled(dumps) > modules, seconds, problem)


def _message_of(error: Exception) -> str:
    """An error in one line: TensorFlow's text begins with the location."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentence = lines[-1] if lines and lines[0] == "in user code:" else first_line(error)
    is_named = sentence.partition(":")[0].isidentifier()
    return sentence[:200] if is_named else f"{type(error).__name__}: {sentence}"


def _compiled(dumps: Path) -> int:
    """How many modules XLA has compiled for functions; single operations are not dumped."""
    return len(list(dumps.glob("*.before_optimizations.txt")))


def _values(arguments: tuple[Argument, ...]) -> Values:
    return {
        each.name: tf.ones(each.shape, each.dtype) if each.dtype else each.value
        for each in arguments
    }


def _any_rows(values: Values) -> list[tf.TensorSpec]:
    return [
        tf.TensorSpec([None, *x.shape[1:]] if x.shape.rank else [], x.dtype)
        for x in values.values()
    ]


def _described(name: str, value: Any) -> Argument:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        dtype = getattr(value.dtype, "name", str(value.dtype))
        return Argument(name, dtype, tuple(value.shape))
    is_plain = value is None or isinstance(value, int | float | str)
    return Argument(name, value=value if is_plain else repr(value)[:60])


def _of_file(path: Path) -> tuple[Callable[..., Any], Values, Values]:
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    except Exception as error:
        raise InvalidRequest(f"{path} cannot be run: {_message_of(error)}.") from error
    function, calls = names.get("function"), names.get("calls")
    function = getattr(function, "python_function", function)
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
        defaults = {
            name: each.default
            for name, each in signature.parameters.items()
            if each.default is not each.empty
        }
        first, second = ({**defaults, **call} for call in calls)  # type: ignore[union-attr]
        for call in (first, second):
            signature.bind(**call)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            f"{path} must define `function` and `calls`, a list of two dicts with its arguments: "
            f"{first_line(error)}."
        ) from error
    return function, first, second  # type: ignore[return-value]
