"""The processor of this machine: its instruction sets."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def features() -> str:
    """Instruction sets in alphabetical order; the processor's name if the system lists none."""
    with contextlib.suppress(OSError):
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return platform.processor()
