"""Kernels that get no memory."""

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest
import tensorflow as tf

from tests.xla_backend.kernels.attention.rows import Rows, prompt
from xla_backend.kernels import machine_code, registration
from xla_backend.kernels.attention import attention
from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.kernels.matmul import matmul
from xla_backend.kernels.matmul.blocks import rounded

LIBRARY = ctypes.CDLL(None)
LIBRARY.malloc.restype, LIBRARY.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]


class Memory:
    """`malloc` of kernels that are compiled from now on: fails once, at a call that is set."""

    def __init__(self) -> None:
        self.left = -1
        self._malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(self._allocate)
        address = ctypes.cast(self._malloc, ctypes.c_void_p).value
        llvm.add_symbol("malloc_of_the_test", address)

    def _allocate(self, size: int) -> int | None:
        self.left -= 1
        return None if self.left == -1 else LIBRARY.malloc(size)

    def check(self, call: Callable[[], np.ndarray], expected: np.ndarray) -> int:
        """Every call fails with a sentence, and those after it are right; how many failed."""
        failed = 0
        while True:
            self.left = failed
            try:
                call()
            except tf.errors.ResourceExhaustedError as error:
                assert "not enough memory for a kernel" in str(error)
            else:
                assert self.left >= 0
                self.left = -1
                return failed
            assert self.left < 0
            failed += 1
            self.left = -1
            np.testing.assert_array_equal(call(), expected)


MEMORY = Memory()


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    address = machine_code.address
    monkeypatch.setattr(
        machine_code,
        "address",
        lambda module, name: address(
            str(module).replace('@"malloc"', '@"malloc_of_the_test"'), name
        ),
    )
    monkeypatch.setattr(registration, "_started", {})
    monkeypatch.setattr(matmul, "MATMUL", "matmul_without_memory_")
    monkeypatch.setattr(matmul, "READING", "columns_without_memory_")
    monkeypatch.setattr(attention, "NAME", "attention_without_memory")
    return MEMORY


def test_a_product_without_memory_is_an_error(memory: Memory) -> None:
    generator = np.random.default_rng(0)
    weights = rounded(generator.standard_normal((1024, 512), np.float32))

    def variable(
        shape: tuple[int, ...], dtype: np.dtype, write: Callable[[np.ndarray], None]
    ) -> tf.Variable:
        array = np.empty(shape, dtype)
        write(array)
        return tf.Variable(array, trainable=False)

    multiply = tf.function(Matrix.of(weights, variable).multiply, jit_compile=True, autograph=False)
    x = tf.constant(generator.standard_normal((20, 512), np.float32))
    assert memory.check(lambda: multiply(x).numpy(), multiply(x).numpy())


def test_attention_without_memory_is_an_error(memory: Memory) -> None:
    """Whether the call lacks it or one of its threads."""
    rows = Rows(64, heads=6, kv_heads=2)
    attend, operands = rows.function(), rows.operands(prompt(0, 0, 130))
    assert memory.check(lambda: attend(*operands).numpy(), attend(*operands).numpy()) > 4
