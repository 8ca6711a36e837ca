"""The device that XLA compiles for: the processor, or one of NVIDIA's GPUs.

Knows the choice, the driver and the environment variables that TensorFlow reads at its import. Must
not import TensorFlow: the page's process, which predicts from the store, asks too.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import importlib.util
import os
from dataclasses import dataclass

from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import shown

VARIABLE = "XLA_BACKEND_DEVICE"
"""Environment variable: `auto` (a GPU that TensorFlow can use, or else the processor), `cpu` or
`gpu:N`. Read before TensorFlow is imported."""
AUTO, CPU, GPU = "auto", "cpu", "gpu"


@dataclass(frozen=True)
class Device:
    """A device.

    Attributes:
        name: "cpu" or "gpu:N".
        title: of a GPU, what its driver calls it.
        compute_capability: of a GPU, such as "7.5"; compiled code depends on it.
    """

    name: str = CPU
    title: str = ""
    compute_capability: str = ""

    @property
    def is_gpu(self) -> bool:
        return self.name != CPU

    def __str__(self) -> str:
        if not self.is_gpu:
            return self.name
        return f"{self.name} ({self.title}, compute capability {self.compute_capability})"


def check(choice: str) -> str:
    """A choice, or without one the environment's; does not look at the machine.

    Raises:
        InvalidRequest: it is none.
    """
    choice = choice or os.environ.get(VARIABLE) or AUTO
    kind, _, number = choice.partition(":")
    if choice in (AUTO, CPU) or (kind == GPU and number.isascii() and number.isdecimal()):
        return choice
    raise InvalidRequest(
        f"The device (--device, {VARIABLE}) must be auto, cpu or gpu:0, not {shown(choice, 40)}."
    )


def chosen() -> Device:
    """The device of this process and its children.

    Raises:
        InvalidRequest: there is no such device.
    """
    choice = check("")
    if choice == CPU:
        return Device()
    gpus = _gpus()
    if choice == AUTO:
        return gpus[0] if gpus and _has_cuda() else Device()
    number = int(choice.partition(":")[2])
    if number >= len(gpus):
        raise InvalidRequest(
            f"There is no {choice}: NVIDIA's driver knows {len(gpus) or 'no'} GPUs. Choose "
            "--device cpu."
        )
    return gpus[number]


def prepare() -> None:
    """Shows TensorFlow, which is not imported yet, only the chosen device; a GPU's memory is taken
    as it is needed."""
    device = chosen()
    if device.is_gpu:
        visible = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x]
        number = int(device.name.partition(":")[2])
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[number] if visible else str(number)
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        os.environ[VARIABLE] = f"{GPU}:0"  # of those that are visible now
    elif _gpus():
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


@functools.cache
def _gpus() -> tuple[Device, ...]:
    """Those that the driver shows, in its order."""
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return ()
        return tuple(_gpu(driver, number) for number in range(count.value))
    return ()


def _gpu(driver: ctypes.CDLL, number: int) -> Device:
    title, major, minor = ctypes.create_string_buffer(100), ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetName(title, len(title), number)
    driver.cuDeviceComputeCapability(ctypes.byref(major), ctypes.byref(minor), number)
    name = title.value.decode(errors="replace")
    return Device(f"{GPU}:{number}", name, f"{major.value}.{minor.value}")


def _has_cuda() -> bool:
    """Whether the libraries are there that TensorFlow needs, of `tensorflow[and-cuda]` or the
    system's."""
    with contextlib.suppress(ImportError):
        if importlib.util.find_spec("nvidia.cudnn") is not None:
            return True
    return ctypes.util.find_library("cudnn") is not None
