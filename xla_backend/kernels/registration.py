"""Kernels that this process has compiled and given to XLA by name."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from xla_backend.kernels import catalog, ffi, machine_code


def is_possible() -> bool:
    """Whether this TensorFlow and this processor can run our own machine code."""
    return ffi.are_possible() and machine_code.suits()


def prepare(*names: str) -> None:
    """Starts compiling and registering kernels of the catalog, once per process.

    In another thread, while the caller reads weights.
    """
    with _preparing:
        for name in names:
            if name not in _started:
                _started[name] = _executor.submit(_register, name)


def wait_until_ready() -> None:
    """Waits for all kernels that `prepare` started.

    Raises:
        RuntimeError: XLA refuses one; the next `prepare` of its name tries again.
    """
    for name, started in list(_started.items()):
        if started.exception() is not None:
            _started.pop(name, None)
        started.result()


_preparing = threading.Lock()
_executor = ThreadPoolExecutor(1, "kernels")
_started: dict[str, Future[None]] = {}


def _register(name: str) -> None:
    ffi.register(name, machine_code.address(catalog.build(name), name))
