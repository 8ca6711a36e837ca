"""`Kernels`: what computes a model, chosen once when it is loaded.

Knows the two implementations of the same operations: machine code of our own, and XLA alone. Must
not know what they compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import tensorflow as tf

from xla_backend.checkpoints import kinds
from xla_backend.kernels import grammar, registration
from xla_backend.kernels.attention import attention, earlier, recurrence
from xla_backend.kernels.attention.recurrence import Heads
from xla_backend.kernels.graph import kv_operations
from xla_backend.kernels.graph.grammar_operations import GrammarAddresses
from xla_backend.kernels.graph.matrix import has_product
from xla_backend.kernels.matmul.blocks import Weights
from xla_backend.kernels.xla import states
from xla_backend.kernels.xla.grammar_tables import GrammarTables
from xla_backend.model.row_memory import DeviceMemory, OwnMemory


class States(Protocol):
    """States of texts without KV memory; see `kv_operations`."""

    def read_all(self, lines: tf.Tensor, heads: Heads) -> tuple[tf.Tensor, tf.Tensor]: ...

    def step(
        self,
        lines: tf.Tensor,
        prompt: tf.Tensor,
        states: tf.Tensor,
        source: tf.Tensor,
        heads: Heads,
    ) -> tf.Tensor: ...


@dataclass(frozen=True)
class Kernels:
    """An implementation.

    Attributes:
        multiplies: whether a matrix keeps its format and is multiplied by our own product; others
            are float32.
        states: of padded texts.
        memory: makes the KV memory of a pool, from bytes of a block, of all and of a state.
        grammars: makes what holds the grammars of a pool's rows.
        prepare: begins to compile what a pool needs, and what its rows' states need.
    """

    multiplies: Callable[[Weights], bool]
    states: States
    memory: Callable[[int, int, int], OwnMemory | DeviceMemory]
    grammars: Callable[[], GrammarAddresses | GrammarTables]
    prepare: Callable[[bool], None]


def _prepare(has_states: bool) -> None:
    names = [attention.NAME, earlier.NAME, grammar.MASK, grammar.ADVANCE, grammar.DRAFTS]
    registration.prepare(*names, *([recurrence.NAME, recurrence.STEP] if has_states else []))


KERNELS = {
    kinds.OWN: Kernels(has_product, kv_operations, OwnMemory, GrammarAddresses, _prepare),
    kinds.XLA: Kernels(
        lambda weights: False, states, DeviceMemory, GrammarTables, lambda has_states: None
    ),
}
"""By the names of `kinds.KERNELS`."""
