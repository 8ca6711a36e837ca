"""The number of TensorFlow operations, for one call or one round of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from xla_backend.inspection.hlo import protos

Branch = Literal["then_branch", "else_branch"]

_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_BRANCHES = {"If", "StatelessIf"}
_LOOPS = {"While", "StatelessWhile"}


def count(functions: Sequence[bytes], branch: Branch) -> int:
    """The operations of a function and of those that it calls, per call.

    A loop counts one round, a choice among lengths (`switch_case`) the shortest.

    Args:
        functions: serialized definitions, the function itself first.
        branch: which of two branches counts.
    """
    counter = _Counter(functions, branch)
    return counter.of(counter.root.signature.name)


def count_of_round(functions: Sequence[bytes], branch: Branch) -> int:
    """The same for one round of the function's own loop."""
    counter = _Counter(functions, branch)
    bodies = [node.attr["body"].func.name for node in counter.root.node_def if node.op in _LOOPS]
    return max((counter.of(body) for body in bodies), default=0)


class _Counter:
    def __init__(self, functions: Sequence[bytes], branch: Branch) -> None:
        message, _ = protos.graphs()
        parsed = [message.FromString(one) for one in functions]
        self.root = parsed[0]
        self._by_name = {one.signature.name: one for one in parsed}
        self._branch = branch
        self._counted: dict[str, int] = {}

    def of(self, name: str) -> int:
        if name not in self._counted:
            function = self._by_name.get(name)
            nodes = function.node_def if function is not None else ()
            self._counted[name] = sum(1 + self._inside(node) for node in nodes)
        return self._counted[name]

    def _inside(self, node: Any) -> int:
        if node.op in _CALLS:
            return self.of(node.attr["f"].func.name)
        if node.op in _BRANCHES:
            return self.of(node.attr[self._branch].func.name)
        if node.op in _LOOPS:
            return self.of(node.attr["body"].func.name)
        if node.op in ("Case", "StatelessCase"):
            return self.of(node.attr["branches"].list.func[0].name)
        return self.of(node.op) if node.op in self._by_name else 0
