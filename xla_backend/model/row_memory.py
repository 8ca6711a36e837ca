"""The KV memory of rows as a graph sees it: addresses in memory of our own, or variables."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from xla_backend.kernels.graph.kv_operations import Addresses
from xla_backend.kernels.xla.kv_pages import Pages
from xla_backend.model.kv_memory import KVMemory


class OwnMemory(KVMemory):
    """Memory that our own machine code reads and writes."""

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """What compiled functions read and change, by name: nothing."""
        return {}

    def of_rows(self, places: tf.Tensor, blocks: tf.Tensor) -> Addresses:
        """The memory of a call's tokens, from the addresses of their rows' blocks."""
        return Addresses(places, blocks)


class DeviceMemory(KVMemory):
    """Variables, `[blocks, numbers]` float32, whose rows' numbers are the addresses.

    Number 0 is none: what belongs to no row is written there. With states each kind has half of the
    memory. A processor's memory is taken when it is first used, a GPU's at once.

    Attributes:
        variables: what compiled functions read and change, by name.
    """

    def __init__(self, block_bytes: int, limit_bytes: int, state_bytes: int = 0) -> None:
        self.variables: dict[str, tf.Variable] = {}
        super().__init__(block_bytes, limit_bytes // 2 if state_bytes else limit_bytes, state_bytes)
        self._kv = self._made("kv_blocks", self.limit, block_bytes)
        self._states = None
        if state_bytes:
            self._states = self._made("kv_states", self.limit // self.state_blocks, state_bytes)
        self._last_block = self._last_state = 0

    def _made(self, name: str, count: int, size: int) -> tf.Variable:
        empty = tf.raw_ops.Empty(shape=[1 + count, size // 4], dtype=tf.float32, init=False)
        self.variables[name] = tf.Variable(empty, trainable=False)
        return self.variables[name]

    def of_rows(self, places: tf.Tensor, blocks: tf.Tensor) -> Pages:
        """The memory of a call's tokens, from the numbers of their rows' blocks."""
        states = () if self._states is None else self._states.handle
        return Pages(places, blocks, self._kv.handle, states)

    def copy(self, address: int) -> int:
        copied = self.take()
        _copy(self._kv, tf.constant(address), tf.constant(copied))
        return copied

    def copy_state(self, address: int, to: int) -> None:
        _copy(self._states, tf.constant(address), tf.constant(to))

    def content(self, address: int) -> np.ndarray:
        return _row(self._kv, tf.constant(address)).numpy().reshape(-1).view(np.uint8)

    def write(self, address: int, content: np.ndarray) -> None:
        _write(self._kv, tf.constant(address), tf.constant(content.view(np.float32)[None]))

    def state(self, address: int) -> np.ndarray:
        return _row(self._states, tf.constant(address)).numpy().reshape(-1).view(np.uint8)

    def write_state(self, address: int, content: np.ndarray) -> None:
        _write(self._states, tf.constant(address), tf.constant(content.view(np.float32)[None]))

    def _new(self, size: int) -> int:
        self._last_block += 1
        return self._last_block

    def _new_state(self) -> int:
        self._last_state += 1
        return self._last_state


# Compiled by XLA, which changes a variable in place.


@tf.function(jit_compile=True, autograph=False)
def _row(variable: tf.Variable, address: tf.Tensor) -> tf.Tensor:
    return xla.dynamic_slice(variable, tf.stack([address, 0]), [1, variable.shape[1]])


@tf.function(jit_compile=True, autograph=False)
def _write(variable: tf.Variable, address: tf.Tensor, content: tf.Tensor) -> None:
    place = tf.stack([address, 0])
    variable.assign(xla.dynamic_update_slice(variable.read_value(), content, place))


@tf.function(jit_compile=True, autograph=False)
def _copy(variable: tf.Variable, address: tf.Tensor, to: tf.Tensor) -> None:
    _write.python_function(variable, to, _row.python_function(variable, address))
