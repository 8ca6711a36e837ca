"""`TracedFunction`: a TF function traced once, then compiled by XLA once per set of shapes.

Why names of our own: TensorFlow numbers its functions in the order of tracing
(`__inference_decode_4239`), and XLA's persistent cache keys its entries by that name. Under a
stable name an entry is found again whatever was traced before it.
"""

from __future__ import annotations

import functools
import logging
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Definition:
    """A traced function in a form that other processes can use.

    Attributes:
        functions: serialized `FunctionDef`s, the function itself first, then those it calls.
        captures: names of the variables that it reads, in the order of its last arguments.
        outputs: shape and dtype of each result; None in a shape is a size that varies by call.
        sources: serialized and compressed `GraphDebugInfo`s: the lines of Python that made the
            operations.
    """

    functions: tuple[bytes, ...]
    captures: tuple[str, ...]
    outputs: tuple[tf.TensorSpec, ...]
    sources: tuple[bytes, ...] = ()

    def describe(self) -> dict[str, Any]:
        """All but the bytes, as JSON values for the store."""
        return {
            "functions": len(self.functions),
            "captures": list(self.captures),
            "outputs": [[x.shape.as_list(), x.dtype.name] for x in self.outputs],
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], blobs: Sequence[bytes]) -> Definition:
        """The inverse of `describe`; `blobs` are the functions, then the sources.

        Raises:
            KeyError, TypeError, ValueError: the description does not fit.
        """
        count = description["functions"]
        if not 0 < count <= len(blobs):
            raise ValueError("it defines no function")
        return cls(
            functions=tuple(blobs[:count]),
            sources=tuple(blobs[count:]),
            captures=tuple(description["captures"]),
            outputs=tuple(
                tf.TensorSpec(shape, tf.dtypes.as_dtype(dtype))
                for shape, dtype in description["outputs"]
            ),
        )


class TracedFunction:
    """A Python function of tensors, compiled by XLA under a stable name.

    Calls take and return nests of tensors. The first call for a set of shapes compiles. Callers
    measure the time.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        specs: Sequence[Any],
        variables: Mapping[str, tf.Variable],
        structure: Any,
        changes: Collection[str] = (),
    ) -> None:
        """`trace` or `adopt` makes it callable.

        Args:
            name: stable and unique in the process: letters, digits and underscores. The same name
                must always mean the same computation over weights of the same shapes.
            function: from nests of tensors to a nest of tensors.
            specs: a nest of `tf.TensorSpec` per argument; None in a shape varies by call.
            variables: all variables that the function may read, by name.
            structure: a nest with the structure of the function's result; its leaves are ignored.
            changes: names of the variables that the function assigns.
        """
        self.name = name
        self._function = function
        self._specs = specs
        self._variables = variables
        self._structure = structure
        self._changes = changes
        self._run: Callable[[list[tf.Tensor]], list[tf.Tensor]] | None = None
        self.definition: Definition | None = None

    @property
    def is_traced(self) -> bool:
        return self._run is not None

    @property
    def captures(self) -> list[tf.TensorSpec | None]:
        """The variables that follow the arguments; None for those that the function only reads."""
        assert self.definition is not None, "only one with a stable name has some"
        return [
            tf.TensorSpec(self._variables[name].shape, self._variables[name].dtype)
            if name in self._changes
            else None
            for name in self.definition.captures
        ]

    @property
    def output_specs(self) -> Any:
        """The result's nest of `tf.TensorSpec`; needs `trace` or `adopt` first."""
        return tf.nest.pack_sequence_as(self._structure, list(self._outputs))

    def trace(self) -> None:
        """Traces the function; takes about a second for a dozen layers.

        This uses two TensorFlow calls that are not public. If they are missing, the function keeps
        TensorFlow's name and still runs, but its compiled code is not found again on disk.
        """
        flat_specs = tf.nest.flatten(self._specs)

        def flat(*flat_arguments: tf.Tensor) -> list[tf.Tensor]:
            arguments = tf.nest.pack_sequence_as(self._specs, list(flat_arguments))
            return tf.nest.flatten(self._function(*arguments))

        # AutoGraph rewrites Python source, which takes seconds; these functions do not need it.
        traced = tf.function(flat, jit_compile=True, autograph=False)
        concrete = traced.get_concrete_function(*flat_specs)
        self._outputs = tuple(tf.TensorSpec(x.shape, x.dtype) for x in concrete.outputs)
        try:
            self.adopt(_define(self.name, concrete, self._variables))
        except Exception:
            warn_of_numbered_names()
            self._run = lambda arguments: concrete(*arguments)

    def adopt(self, definition: Definition) -> None:
        """Makes this function callable from a definition.

        Raises:
            KeyError: it reads a variable that does not exist.
            Exception: TensorFlow refuses the definition.
        """
        handles = [self._variables[name].handle for name in definition.captures]
        # TensorFlow must know the functions that it calls first.
        for serialized in reversed(definition.functions):
            _register(serialized)
        self._handles, self._outputs = handles, definition.outputs
        self._run = self._caller(self.name)
        self.definition = definition

    def through(self, hlo_stub: bytes) -> Callable[..., Any]:
        """A callable that runs an HLO stub with this function's arguments and variables.

        Args:
            hlo_stub: a serialized `FunctionDef` with the arguments and results of this function.

        Raises:
            Exception: TensorFlow refuses the definition.
        """
        run = self._caller(_register(hlo_stub))
        return lambda *arguments: self._packed(run(tf.nest.flatten(arguments)))

    def _caller(self, name: str) -> Callable[[list[tf.Tensor]], list[tf.Tensor]]:
        from tensorflow.python.eager import context

        running, handles = context.context(), self._handles
        encoded, count = name.encode(), len(self._outputs)
        return lambda arguments: running.call_function(encoded, arguments + handles, count)

    def _packed(self, results: Sequence[tf.Tensor]) -> Any:
        return tf.nest.pack_sequence_as(self._structure, list(results))

    def __call__(self, *arguments: Any) -> Any:
        """Runs the function; compiles it first if these shapes are new."""
        assert self._run is not None, "trace() or adopt() comes first"
        return self._packed(self._run(tf.nest.flatten(arguments)))


def _register(definition: bytes) -> str:
    """Registers a serialized `FunctionDef` unless TensorFlow has that name; returns the name."""
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.python.eager import context

    function, running = FunctionDef.FromString(definition), context.context()
    name = function.signature.name
    if not running.has_function(name):
        running.add_function_def(function)
    return name


@functools.cache
def warn_of_numbered_names() -> None:
    """Warns once per process: if renaming fails for one function, it fails for all."""
    logger.warning(
        "This TensorFlow does not let functions be renamed: compiled functions will not be found "
        "again on disk.",
        exc_info=True,
    )


def _define(name: str, concrete: Any, variables: Mapping[str, tf.Variable]) -> Definition:
    """The definition of a concrete function, with all functions in it renamed."""
    library = {f.signature.name: f for f in concrete.graph.as_graph_def().library.function}
    root = concrete.function_def
    library[root.signature.name] = root
    renamed: dict[str, str] = {}

    def visit(old: str) -> None:
        if old in renamed or old not in library:
            return
        renamed[old] = name if not renamed else f"{name}_{len(renamed)}"
        for node in library[old].node_def:
            for called in (node.op, *(each.name for each in _called(node))):
                visit(called)

    visit(root.signature.name)
    functions = []
    for old, new in renamed.items():
        function = type(root)()
        function.CopyFrom(library[old])
        function.signature.name = new
        for node in function.node_def:
            node.op = renamed.get(node.op, node.op)
            for called in _called(node):
                called.name = renamed.get(called.name, called.name)
        functions.append(function.SerializeToString(deterministic=True))
    by_handle = {id(variable.handle): key for key, variable in variables.items()}
    return Definition(
        functions=tuple(functions),
        captures=tuple(by_handle[id(handle)] for handle in concrete.captured_inputs),
        outputs=tuple(tf.TensorSpec(x.shape, x.dtype) for x in concrete.outputs),
        sources=_sources(concrete),
    )


def _called(node: Any) -> Iterator[Any]:
    """The functions in a node's attributes, in the order of these."""
    for key in sorted(node.attr):
        value = node.attr[key]
        if value.HasField("func"):
            yield value.func
        yield from value.list.func


def _sources(concrete: Any) -> tuple[bytes, ...]:
    """The origins of the operations of a concrete function and of those that it calls.

    Takes a twentieth of the time of tracing. It is not needed for running, so what is missing is
    left out.
    """
    found: dict[str, bytes] = {}

    def visit(function: Any) -> None:
        if function.name not in found:
            info = function.graph_debug_info.SerializeToString(deterministic=True)
            found[function.name] = zlib.compress(info, 1)
            for called in function.graph._functions.values():
                visit(called)

    try:
        visit(concrete._inference_function)
    except AttributeError:
        logger.debug("This TensorFlow does not say where operations come from.", exc_info=True)
    return tuple(found.values())
