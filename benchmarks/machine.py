"""The machine of a measurement, and its load from other programs.

Knows Linux's /proc. Must not know what is measured.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path


def description() -> dict[str, str | int]:
    """Processor, cores, memory, system and Python."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(memory / 2**30),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
    }


class Bystanders:
    """Processor time of other programs, which make a measurement unreliable."""

    def __init__(self, process_ids: list[int]) -> None:
        """Starts counting; this process and `process_ids` are not others."""
        self._process_ids = [os.getpid(), *process_ids]
        self._start = self._read()

    def share(self) -> float:
        """The share of all processor time since the start that others used, 0 to 1."""
        everyone, own, total = (
            now - before for now, before in zip(self._read(), self._start, strict=True)
        )
        return max(0.0, everyone - own) / total if total else 0.0

    def _read(self) -> tuple[int, int, int]:
        """Ticks of all programs' work, of ours, and of all processors, since the machine's boot."""
        with Path("/proc/stat").open() as file:
            user, nice, system, *rest = map(int, file.readline().split()[1:9])
        own = 0
        for process_id in self._process_ids:
            fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
            own += int(fields[11]) + int(fields[12])
        return user + nice + system, own, user + nice + system + sum(rest)
