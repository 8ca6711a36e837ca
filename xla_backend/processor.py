"""The processor that this runs on: what it can do, and who made it.

Knows where the system writes that down. Must not know what depends on it.
"""

from __future__ import annotations

import contextlib
import functools
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def features() -> str:
    """Its instruction sets, in alphabetical order; where the system does not say, its name."""
    return " ".join(sorted(_line("flags", "Features").split())) or platform.processor()


def vendor() -> str:
    """Who made it, in the processor's own words; where the system does not say, its name."""
    return _line("vendor_id") or platform.processor()


@functools.cache
def is_intel() -> bool:
    """Whether Intel made it."""
    return "GenuineIntel" in vendor()


def _line(*names: str) -> str:
    """What stands after the first of these names in Linux's description of the processor."""
    with contextlib.suppress(OSError):
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            if line.startswith(names):
                return line.partition(":")[2].strip()
    return ""
