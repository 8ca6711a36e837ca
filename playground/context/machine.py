"""A description of the machine that serves the page, for measured numbers.

Knows the processor, the system and versions. Must not know paths, host names or users: the
description leaves the machine with every export.
"""

import functools
import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = ("tensorflow", "transformers", "gradio")


@functools.cache
def description() -> dict[str, str | int]:
    """Processor, usable cores, system and versions."""
    return {
        "cpu": _processor(),
        "cores": _cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _PACKAGES},
    }


def summary() -> str:
    """The same in one short line."""
    known = description()
    return f"{known['cpu']}, {known['cores']} cores, TensorFlow {known['tensorflow']}"


def _processor() -> str:
    """The processor's name on Linux, otherwise its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
