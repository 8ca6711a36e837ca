"""`TracedFunction`: a TF function traced once, then compiled by XLA once for each set of sizes.

Knows TensorFlow's function definitions and how to run one under a name of our own choosing. Must
not know what the functions compute, nor where definitions are kept (`store`).

Why names of our own: TensorFlow numbers its functions in the order of tracing
(`__inference_decode_4239`), and XLA's persistent cache keys its entries by that name. Under a
stable name an entry is found again whatever was traced before it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Definition:
    """A traced function, apart from the process that traced it.

    Attributes:
        functions: serialized `FunctionDef`s, the function itself first, then those it calls.
        captures: names of the variables that it reads, in the order of its last arguments.
        outputs: shape and dtype of each result; None in a shape is a size that calls decide.
    """

    functions: tuple[bytes, ...]
    captures: tuple[str, ...]
    outputs: tuple[tf.TensorSpec, ...]

    def describe(self) -> dict[str, Any]:
        """What the store keeps beside `functions`, as JSON values."""
        return {
            "captures": list(self.captures),
            "outputs": [[x.shape.as_list(), x.dtype.name] for x in self.outputs],
        }

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], functions: Sequence[bytes]
    ) -> Definition:
        """The inverse of `describe`.

        Raises:
            KeyError, TypeError, ValueError: it describes something else.
        """
        if not functions:
            raise ValueError("it defines no function")
        return cls(
            functions=tuple(functions),
            captures=tuple(description["captures"]),
            outputs=tuple(
                tf.TensorSpec(shape, tf.dtypes.as_dtype(dtype))
                for shape, dtype in description["outputs"]
            ),
        )


class TracedFunction:
    """A Python function of tensors, compiled by XLA under a stable name.

    Calls take and return nests of tensors. The first call for a set of sizes compiles; what a call
    costs is measured by the caller.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        specs: Sequence[Any],
        variables: Mapping[str, tf.Variable],
        structure: Any,
    ) -> None:
        """Prepares; nothing is traced yet.

        Args:
            name: stable and unique in the process: letters, digits and underscores. The same name
                must always mean the same computation over equally shaped weights.
            function: from nests of tensors to a nest of tensors.
            specs: nests of `tf.TensorSpec`, one an argument; None in a shape is decided by calls.
            variables: every variable that the function may read, by name.
            structure: a nest shaped like the function's result; its leaves do not matter.
        """
        self.name = name
        self._function = function
        self._specs = specs
        self._variables = variables
        self._structure = structure
        self._run: Callable[[list[tf.Tensor]], list[tf.Tensor]] | None = None
        self.definition: Definition | None = None

    @property
    def is_traced(self) -> bool:
        """Whether the function can be called."""
        return self._run is not None

    @property
    def output_specs(self) -> Any:
        """The result's nest of `tf.TensorSpec`; only after tracing or adopting."""
        return tf.nest.pack_sequence_as(self._structure, list(self._outputs))

    def trace(self) -> None:
        """Traces the function; costs about a second for a dozen layers.

        Where TensorFlow's two calls outside its public interface are missing, the function runs
        under TensorFlow's own name: everything works but finding compiled code again on disk.
        """
        flat_specs = tf.nest.flatten(self._specs)

        def flat(*flat_arguments: tf.Tensor) -> list[tf.Tensor]:
            arguments = tf.nest.pack_sequence_as(self._specs, list(flat_arguments))
            return tf.nest.flatten(self._function(*arguments))

        # autograph rewrites Python source, which costs seconds; these functions do not need it.
        traced = tf.function(flat, jit_compile=True, autograph=False)
        concrete = traced.get_concrete_function(*flat_specs)
        self._outputs = tuple(tf.TensorSpec(x.shape, x.dtype) for x in concrete.outputs)
        try:
            self.adopt(_define(self.name, concrete, self._variables))
        except Exception:
            _warn_of_numbered_names()
            self._run = lambda arguments: concrete(*arguments)

    def adopt(self, definition: Definition) -> None:
        """Takes a definition, fresh or from the store, and makes it callable.

        Raises:
            KeyError: it reads a variable that is not there.
            Exception: TensorFlow refuses the definition.
        """
        handles = [self._variables[name].handle for name in definition.captures]
        # The functions it calls must be known before the function itself.
        for serialized in reversed(definition.functions):
            _register(serialized)
        self._handles, self._outputs = handles, definition.outputs
        self._run = self._caller(self.name)
        self.definition = definition

    def through(self, stand_in: bytes) -> Callable[..., Any]:
        """What calls another function as this one is called, with the same variables.

        Args:
            stand_in: its serialized `FunctionDef`; it has the arguments and results of this one.

        Raises:
            Exception: TensorFlow refuses the definition.
        """
        run = self._caller(_register(stand_in))
        return lambda *arguments: self._packed(run(tf.nest.flatten(arguments)))

    def _caller(self, name: str) -> Callable[[list[tf.Tensor]], list[tf.Tensor]]:
        from tensorflow.python.eager import context

        running, handles = context.context(), self._handles
        encoded, count = name.encode(), len(self._outputs)
        return lambda arguments: running.call_function(encoded, arguments + handles, count)

    def _packed(self, results: Sequence[tf.Tensor]) -> Any:
        return tf.nest.pack_sequence_as(self._structure, list(results))

    def __call__(self, *arguments: Any) -> Any:
        """Runs the function; compiles it first if these sizes are new."""
        assert self._run is not None, "trace() or adopt() comes first"
        return self._packed(self._run(tf.nest.flatten(arguments)))


def _register(definition: bytes) -> str:
    """Tells TensorFlow of a serialized `FunctionDef`, unless it knows that name; returns it."""
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.python.eager import context

    function, running = FunctionDef.FromString(definition), context.context()
    name = function.signature.name
    if not running.has_function(name):
        running.add_function_def(function)
    return name


@functools.cache
def _warn_of_numbered_names() -> None:
    """Once a process: what is wrong with one function is wrong with all."""
    logger.warning(
        "This TensorFlow does not let functions be renamed: compiled functions will not be found "
        "again on disk.",
        exc_info=True,
    )


def _define(name: str, concrete: Any, variables: Mapping[str, tf.Variable]) -> Definition:
    """The definition of a concrete function with every function in it renamed."""
    library = {f.signature.name: f for f in concrete.graph.as_graph_def().library.function}
    root = concrete.function_def
    library[root.signature.name] = root
    renamed: dict[str, str] = {}

    def visit(old: str) -> None:
        if old in renamed or old not in library:
            return
        renamed[old] = name if not renamed else f"{name}_{len(renamed)}"
        for node in library[old].node_def:
            for called in _called(node):
                visit(called)

    def _called(node: Any) -> list[str]:
        names = [node.op]
        for key in sorted(node.attr):
            value = node.attr[key]
            if value.HasField("func"):
                names.append(value.func.name)
            names.extend(function.name for function in value.list.func)
        return names

    visit(root.signature.name)
    functions = []
    for old, new in renamed.items():
        function = type(root)()
        function.CopyFrom(library[old])
        function.signature.name = new
        for node in function.node_def:
            node.op = renamed.get(node.op, node.op)
            for value in node.attr.values():
                if value.HasField("func"):
                    value.func.name = renamed.get(value.func.name, value.func.name)
                for called in value.list.func:
                    called.name = renamed.get(called.name, called.name)
        functions.append(function.SerializeToString(deterministic=True))
    by_handle = {id(variable.handle): key for key, variable in variables.items()}
    return Definition(
        functions=tuple(functions),
        captures=tuple(by_handle[id(handle)] for handle in concrete.captured_inputs),
        outputs=tuple(tf.TensorSpec(x.shape, x.dtype) for x in concrete.outputs),
    )
