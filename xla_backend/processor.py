"""The processor that this runs on: what it can do.

Knows where the system writes that down. Must not know what depends on it.
"""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def features() -> str:
    """Its instruction sets, in alphabetical order; where the system does not say, its name."""
    with contextlib.suppress(OSError):
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return platform.processor()
